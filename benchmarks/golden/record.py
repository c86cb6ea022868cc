"""Runs jobs in several processes and keeps their answers in one file."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.golden.jobs import Job, Sampler, keys_of
from benchmarks.golden.run import Answer, run

Record = tuple[Job, Answer]

#: Word of the command line -> the kinds of jobs that it selects.
KINDS = {"predict": "predict", "tables": "table", "sweeps": "sweep", "plans": "plan"}
#: The recording of a few jobs that a test compares.
SAMPLE = Path(__file__).with_name("sample.jsonl.gz")
#: Significant digits of the figures in that recording.
DIGITS = 12
#: Predictions that a process gets at a time. They are sorted by model, so that the model's cached
#: graph is used for all of them.
_CHUNK = 24
#: Number of rounds that draw more jobs for option values that too few accepted jobs have, and jobs
#: per value and round.
_ROUNDS, _OF_EACH = 4, 10


def default_file() -> Path:
    """``$SIMCORE_GOLDEN``, or a file in the user's cache folder."""
    if named := os.environ.get("SIMCORE_GOLDEN"):
        return Path(named)
    from platformdirs import user_cache_path

    return user_cache_path("simcore") / "golden.jsonl.gz"


def answered(jobs: Sequence[Job], processes: int) -> list[Answer]:
    """The answers to jobs, in their order."""
    order = sorted(range(len(jobs)), key=lambda i: (_weight(jobs[i]), jobs[i].get("model", "")))
    chunks: list[list[int]] = []
    for i in order:
        alone = jobs[i]["kind"] != "predict"
        if (
            alone
            or not chunks
            or len(chunks[-1]) >= _CHUNK
            or jobs[chunks[-1][0]]["kind"] != "predict"
        ):
            chunks.append([])
        chunks[-1].append(i)
    work = [[jobs[i] for i in chunk] for chunk in chunks]
    found: dict[int, Answer] = {}
    for chunk, answers in zip(chunks, _mapped(work, processes), strict=True):
        found.update(zip(chunk, answers, strict=True))
    return [found[i] for i in range(len(jobs))]


def _mapped(work: list[list[Job]], processes: int) -> Iterator[list[Answer]]:
    if processes < 2 or len(work) < 2:
        yield from map(_chunk, work)
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ProcessPoolExecutor(processes) as pool:
        done = 0
        for jobs, answers in zip(work, pool.map(_chunk, work), strict=True):
            done += len(jobs)
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{done:,} jobs")
            yield answers
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")


def _chunk(jobs: list[Job]) -> list[Answer]:
    return [run(job) for job in jobs]


def _weight(job: Job) -> int:
    """A sort key that puts long jobs first, so that no process starts one when others are done."""
    return {"table": 0, "plan": 1, "sweep": 2, "predict": 3}[job["kind"]]


def sampled(processes: int, say: Callable[[str], None]) -> list[Record]:
    """All jobs of a new recording with their answers.

    Every value of an option is in at least some jobs that simcore accepts.
    """
    from benchmarks.golden.fixed import fixed_jobs

    sampler = Sampler()
    jobs = _once([*fixed_jobs(), *sampler.first()])
    records = list(zip(jobs, answered(jobs, processes), strict=True))
    for _ in range(_ROUNDS):
        short = sampler.missing(accepted(records))
        if not short:
            break
        say(f"{len(short)} values are in too few jobs: {', '.join(s.key for s in short[:8])} ...")
        more = [job for s in short for job in sampler.with_setting(s, _OF_EACH)]
        known = {_text(job) for job, _ in records}
        more = [job for job in _once(more) if _text(job) not in known]
        records += zip(more, answered(more, processes), strict=True)
    if short := sampler.missing(accepted(records)):
        say(f"still in too few accepted jobs: {', '.join(s.key for s in short)}")
    return [
        ({"id": f"{job['kind']}-{i}", **job}, answer) for i, (job, answer) in enumerate(records)
    ]


def accepted(records: Iterable[Record]) -> list[Job]:
    """The records of predictions that simcore did not refuse."""
    return [job for job, answer in records if job["kind"] == "predict" and "error" not in answer]


def told(records: Sequence[Record]) -> str:
    """A summary of a recording in two lines."""
    counts = {word: sum(job["kind"] == kind for job, _ in records) for word, kind in KINDS.items()}
    rows = sum(len(answer.get("rows", ())) for _, answer in records)
    good = accepted(records)
    pairs = {(a, b) for job in good for a in keys_of(job) for b in keys_of(job) if a < b}
    return (
        f"{', '.join(f'{n:,} {word}' for word, n in counts.items())} ({rows:,} figures of rows)\n"
        f"{len(good):,} predictions are accepted, of {len({j['model'] for j in good}):,} models, "
        f"with {len(pairs):,} pairs of values of options"
    )


def write(path: Path, records: Iterable[Record], digits: int | None = None) -> None:
    """Write jobs and answers as gzipped JSON lines; equal records give identical bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as out:
        for job, answer in records:
            kept = rounded(answer, digits) if digits else answer
            out.write(json.dumps({"job": job, "answer": kept}, ensure_ascii=False).encode() + b"\n")


def read(path: Path) -> list[Record]:
    """The records of a file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [(r["job"], r["answer"]) for r in map(json.loads, lines)]


def write_sample(records: Sequence[Record], path: Path = SAMPLE, count: int = 200) -> None:
    """Write a small part of a recording, with every option, few models and no tables."""
    write(path, small_part(records, count), DIGITS)


def small_part(records: Sequence[Record], count: int) -> list[Record]:
    """A few records of few models that together cover as many option values as possible."""
    models: set[str] = set()
    covered: set[str] = set()
    chosen: list[Record] = []
    left = [r for r in records if r[0]["kind"] == "predict" and _is_steady(*r)]

    def gain(record: Record) -> float:
        job, answer = record
        new = sum(key not in covered for key in keys_of(job))
        return (new if "error" not in answer else 0.4) - (job["model"] not in models) * 0.5

    while left and len(chosen) < count:
        best = max(range(len(left)), key=lambda i: gain(left[i]))
        job, answer = left.pop(best)
        models.add(job["model"])
        covered |= set(keys_of(job)) if "error" not in answer else set()
        chosen.append((job, answer))
    return chosen


def _is_steady(job: Job, answer: Answer) -> bool:
    """Whether a job needs no optional library and its answer is not a crash."""
    return ":" not in job["model"] and not answer.get("message", "").startswith("crash")


def rounded(value: Any, digits: int) -> Any:
    """A JSON value with every float rounded to this many significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {k: rounded(v, digits) for k, v in value.items()}
    return [rounded(v, digits) for v in value] if isinstance(value, list) else value


def _text(job: Job) -> str:
    return json.dumps(job, sort_keys=True)


def _once(jobs: Iterable[Job]) -> list[Job]:
    return list({_text(job): job for job in jobs}.values())
