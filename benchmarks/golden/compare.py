"""Compares recorded answers with those of the current code."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

from benchmarks.golden.jobs import Job
from benchmarks.golden.record import KINDS, Record
from benchmarks.golden.run import Answer, table_path

#: Relative difference of two figures that count as equal.
TOLERANCE = 1e-9
#: Difference of two figures that is rounding, in any unit: of seconds that cancel to zero.
ROUNDING = 1e-15
#: Samples leave out tables with more bytes, because a table is always predicted as a whole.
_SMALL_BYTES = 100_000
#: Number of sweeps and plans of a sample, as a fraction of the number of its predictions.
_MANY_FRAC = 0.02

Kind = Literal["equal", "differs", "newly refused", "newly accepted", "other message"]


@dataclass(frozen=True)
class Change:
    """One figure or text that differs from the recording."""

    field: str
    old: Any
    new: Any

    @property
    def frac(self) -> float | None:
        """|new - old| / |old| of a figure; None for texts and for what only one answer has."""
        if not _number(self.old) or not _number(self.new):
            return None
        return abs(self.new - self.old) / abs(self.old) if self.old else float("inf")

    @property
    def group(self) -> str:
        """The field's name without list indices and row names."""
        return re.sub(r"^rows\..*\.(\w+)$", r"rows[].\1", re.sub(r"\[\d+\]", "[]", self.field))


@dataclass(frozen=True)
class Compared:
    """A job and the changes of its answer."""

    job: Job
    kind: Kind
    changes: tuple[Change, ...] = ()

    @property
    def frac(self) -> float:
        """The largest relative change of a figure; 0 if only texts have changed."""
        return max((c.frac for c in self.changes if c.frac is not None), default=0.0)


def compared(job: Job, old: Answer, new: Answer, ignored: Sequence[str] = ()) -> Compared:
    """The differences of two answers to a job, except in fields whose names start with a prefix."""
    if ("error" in old) != ("error" in new):
        kind: Kind = "newly refused" if "error" in new else "newly accepted"
        told = "message", old.get("message"), new.get("message")
        return Compared(job, kind, (Change(*told),))
    changes = tuple(c for c in changes_of("", old, new) if not c.field.startswith(tuple(ignored)))
    if not changes:
        return Compared(job, "equal")
    return Compared(job, "other message" if "error" in old else "differs", changes)


def changes_of(field: str, old: Any, new: Any) -> Iterator[Change]:
    """The leaves (numbers, texts) of two JSON values that differ by more than rounding."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            name = f"{field}.{key}" if field else key
            yield from changes_of(name, old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from changes_of(f"{field}[{i}]", a, b)
    elif _number(old) and _number(new):
        if abs(new - old) > max(TOLERANCE * max(abs(old), abs(new)), ROUNDING):
            yield Change(field, old, new)
    elif old != new:
        yield Change(field, old, new)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def chosen(records: Sequence[Record], only: Sequence[str], sample: int | None) -> list[Record]:
    """The records of some kinds; for a sample, a fixed random part of each kind."""
    found = []
    for word in only or KINDS:
        of_kind = [r for r in records if r[0]["kind"] == KINDS[word]]
        if sample is not None and word == "tables":
            of_kind = [r for r in of_kind if _is_small(table_path(r[0]["file"]))]
        elif sample is not None:
            most = sample if word == "predict" else max(1, round(sample * _MANY_FRAC))
            of_kind = Random(1).sample(of_kind, min(most, len(of_kind)))
        found += of_kind
    return found


def _is_small(path: Path) -> bool:
    return path.is_file() and path.stat().st_size < _SMALL_BYTES


class Renames:
    """Options and values that are called otherwise now, from texts ``OLD=NEW``.

    ``offload=host``: an option, or a value of any option; ``optimizer:bert-adam=optimizer:adam,
    bias_correction:off``: one value of an option, as one option or several.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._pairs = [(old, new) for old, _, new in (text.partition("=") for text in texts)]

    def job(self, job: Job) -> Job:
        """The job with today's names of options and values."""
        if not self._pairs or "words" not in job:
            return job
        words = dict(job["words"])
        for old, new in self._pairs:
            option, is_value, value = old.partition(":")
            if is_value:
                if str(words.get(option)) == value:
                    del words[option]
                    words.update({k: v for k, _, v in (w.partition(":") for w in new.split(","))})
            else:
                words = {new if k == old else k: new if v == old else v for k, v in words.items()}
        names = {old: new for old, new in self._pairs if ":" not in old}
        return {**job, "words": words, "model": names.get(job["model"], job["model"])}

    def answer(self, answer: Answer) -> Answer:
        """The answer, with today's names where it repeats options of the job."""
        names = {
            old.rpartition(":")[2]: new.partition(",")[0].rpartition(":")[2]
            for old, new in self._pairs
        }
        inputs = answer.get("inputs")
        if not names or not isinstance(inputs, Mapping):
            return answer
        return {**answer, "inputs": {k: names.get(v, v) if isinstance(v, str) else v
                                     for k, v in inputs.items()}}  # fmt: skip


def report(found: Sequence[Compared], worst: int = 20) -> str:
    """Counts, changes by field and the jobs that change most, as text."""
    counts: dict[str, int] = defaultdict(int)
    fields: dict[str, list[tuple[Compared, Change]]] = defaultdict(list)
    for one in found:
        counts[one.kind] += 1
        for change in one.changes:
            if one.kind == "differs":
                fields[change.group].append((one, change))
    lines = [f"{len(found):,} jobs: " + ", ".join(f"{n:,} {k}" for k, n in counts.items())]
    if fields:
        lines.append(f"{'field':<48}{'jobs':>6}  largest relative change")
    for name, entries in sorted(fields.items(), key=lambda f: -len(f[1])):
        fracs = [c.frac for _, c in entries if c.frac is not None]
        largest = f"{max(fracs):.3g}" if fracs else _short(entries[0][1])
        n_jobs = len({id(one) for one, _ in entries})
        lines.append(f"{name:<48}{n_jobs:>6}  {largest}")
    for kind in ("newly refused", "newly accepted", "other message"):
        some = [one for one in found if one.kind == kind]
        for one in some[:worst]:
            change = one.changes[-1]
            lines += [f"{kind}: {words_of(one.job)}", f"    {_short(change)}"]
    differing = sorted((o for o in found if o.kind == "differs"), key=lambda o: -o.frac)
    for one in differing[:worst]:
        largest_change = max(one.changes, key=lambda c: -1.0 if c.frac is None else c.frac)
        lines += [
            f"differs by {one.frac:.3g}: {words_of(one.job)}",
            f"    {largest_change.field}: {_short(largest_change)}",
        ]
    return "\n".join(lines)


def words_of(job: Job) -> str:
    """A job as text: the call that predicts it."""
    if job["kind"] == "table":
        return f"validate {job['file']}"
    said = ", ".join(f"{k}={v!r}" for k, v in job["words"].items())
    called = f"{job['model']!r}, {job['gpus']!r}"
    return f"{job['kind']}({called}{', ' if said else ''}{said})"


def _short(change: Change) -> str:
    return f"{str(change.old)[:160]} -> {str(change.new)[:160]}"


def write_list(path: Path, found: Sequence[Compared]) -> None:
    """Write each job whose answer differs, one JSON object per line."""
    with path.open("w", encoding="utf-8") as out:
        for one in found:
            if one.kind != "equal":
                changes = [{"field": c.field, "old": c.old, "new": c.new} for c in one.changes]
                line = {"kind": one.kind, "job": one.job, "changes": changes}
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
