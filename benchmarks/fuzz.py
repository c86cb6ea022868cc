"""Inputs that nobody would write: python -m benchmarks.fuzz --n 100000.

Jobs, sweeps, model files, configs, calibrations, tables, launch lines, traces, topologies and job
lists are made at random or by altering good ones, and given to the command line; uploads are given
to what reads the page's. No input may end in an error that is not simcore's own, an answer outside
its schema, a NaN, or take more than 10 s of processor time or 1 GB. Exit code 1 if one does; each
is printed with its number, which ``--from N --n 1`` repeats.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import multiprocessing
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from simcore.base.errors import SimcoreError
from simcore.cli.main import run
from simcore.serve.compute import shown_name
from simcore.strategy.options import OPTIONS, Number, Switch, Whole
from simcore.strategy.options.kinds import names_of

#: Longest processor time [s] and most memory beyond that at the start [bytes] of one input.
MOST_S, MOST_BYTES = 10.0, 1e9
#: Longest time by the clock [s]: an input that waits for ever uses no processor. Other programs may
#: keep the processor busy for a while.
MOST_WAITED_S = 120.0
#: Inputs of one process, whose caches grow with each; then its failures are printed.
_AT_ONCE = 500
ROOT = Path(__file__).resolve().parents[1]
#: Texts that break readers: signs, sizes, encodings, formulas, controls.
ODD = (
    "", " ", "0", "-1", "nan", "inf", "-inf", "1e400", "1e-400", "9" * 400, "٣", "½", "max", "auto",
    "none", "null", "true", "[]", "{}", "\0", "\ud800", "\x1b[31m", "\u202e", "$x$", "<b>", "'\"",
    "*a", "&a [*a]", "!!python/object:os.system x", "%s", "{0}", "../../etc/passwd", "/dev/null",
    "os:system", "a" * 300, "1:1:1", "4x", "x8xH100", "8xH100+", "0x0xT4", "1e3", "1_000", "0x10",
    "16 GB", "25 Gbit/s", "-5 ms", "\n", ",", ";", "=", "--help", "é" * 20, "\ufeff",
)  # fmt: skip
Words = list[str]
Make = Callable[[random.Random, Path], Words]


class TookTooLong(BaseException):
    """An input that takes longer than ``MOST_S``."""


def altered(rng: random.Random, raw: bytes) -> bytes:
    """Some bytes with a few parts cut, repeated, exchanged or replaced."""
    for _ in range(rng.choice([1, 1, 2, 4, 8])):
        at = rng.randrange(len(raw) + 1)
        to = min(len(raw), at + rng.choice([1, 2, 8, 40, 400]))
        other = rng.randrange(len(raw) + 1)
        odd = rng.choice(ODD).encode("utf-8", "surrogatepass")
        raw = rng.choice([
            raw[:at] + raw[to:], raw[:at] + odd + raw[to:], raw[:to] + raw[at:to] + raw[to:],
            raw[:at] + raw[other : other + 40] + raw[to:], raw[:at], raw[:at] + odd + raw[at:],
            raw[:at] + bytes(rng.randrange(256) for _ in range(to - at)) + raw[to:],
        ])  # fmt: skip
    return raw


def _seeds(*patterns: str, most: int = 60, largest: int = 30_000) -> list[bytes]:
    files = sorted({f for p in patterns for f in ROOT.glob(p) if f.is_file()})
    small = [f for f in files if f.stat().st_size <= largest]
    return [f.read_bytes() for f in small[:: max(1, len(small) // most)]]


@dataclass(frozen=True)
class FromFile:
    """Commands with a file that is made by altering a good one.

    In ``words``, ``FILE`` is its path and ``NEW`` that of a file beside it, for what is written.
    """

    name: str
    seeds: Sequence[bytes]
    words: Words

    def __call__(self, rng: random.Random, folder: Path) -> Words:
        """Words of a command with one of the seeds altered."""
        return self.with_content(altered(rng, rng.choice(self.seeds)), folder)

    def with_content(self, raw: bytes, folder: Path) -> Words:
        """Words of a command with this file, which is written to the folder."""
        path = folder / self.name
        path.write_bytes(gzip.compress(raw, 1) if self.name.endswith(".gz") else raw)
        paths = {"FILE": str(path), "NEW": str(folder / "new.yaml")}
        return [paths.get(w, w) for w in self.words]


def _file(name: str, seeds: Sequence[bytes], *words: str) -> FromFile:
    return FromFile(name, seeds, list(words))


#: Options of a prediction that are none of the job, some with odd values.
_ANSWERS = ("--measured=ODD", "--measured=850ms", "--inference", "--explain=ODD", "--tokens=ODD",
            "--tokens=300B", "--deadline=ODD", "--price=ODD", "--prices=ODD", "--set=ODD",
            "--cost=ODD", "--scaling")  # fmt: skip

#: Those whose answer is another one than a prediction.
_OTHERS = ("--measured", "--inference", "--explain", "--scaling")


def _job(rng: random.Random, _folder: Path) -> Words:
    """A prediction with a few options of any kind, some with odd values."""
    from simcore.hardware.spec import GPUS

    gpus = "+".join(
        "x".join([*(str(rng.choice([1, 2, 3, 8, 64, 1000])) for _ in range(rng.choice([0, 1, 2]))),
                  rng.choice(GPUS.names())])
        for _ in range(rng.choice([1, 1, 1, 2, 3]))
    )  # fmt: skip
    more = [rng.choice(_ANSWERS)] if rng.random() < 0.2 else []
    return [
        *_asked(rng, "predict", gpus, most=1),
        *(m.replace("ODD", rng.choice(ODD)) for m in more),
    ]


def _sweep(rng: random.Random, _folder: Path) -> Words:
    """A sweep over up to eight clusters and two values of an option."""
    from simcore.hardware.spec import GPUS

    nodes = rng.choice(["1", "1..3", "2,4", "1..8*2", "4..1", "x"])
    return _asked(rng, "sweep", f"{rng.choice(GPUS.names())}:{nodes}x{rng.choice([1, 8])}", most=2)


def _asked(rng: random.Random, command: str, gpus: str, most: int) -> Words:
    """A command with a few options of at most so many values of any kind, some of them odd."""
    from simcore.hardware.spec import NODES
    from simcore.workload.models import MODELS

    words = [command, "--json", "--model", rng.choice(MODELS.names()), "--gpus", gpus]
    for option in rng.sample(list(OPTIONS.options().values()), rng.choice([0, 1, 2, 3, 5])):
        kind, flag = option.kind, option.flag or f"--{option.name.replace('_', '-')}"
        if isinstance(kind, Switch):
            values = ["on", "off"]
        elif isinstance(kind, Whole | Number):
            values = [str(2 ** rng.randrange(12)), str(rng.randrange(1, 40)), "0", "1000000"]
        else:
            names = getattr(kind, "names", None)
            values = list(names_of(names)) if names else []
            values = values or [rng.choice(NODES.names()), "full", "8", "1:2", "cpu", "ib-hdr 4:1"]
        given = [rng.choice(ODD) if rng.random() < 0.2 else rng.choice(values)
                 for _ in range(rng.randint(1, most))]  # fmt: skip
        words.append(f"{flag}={','.join(given)}")
    if rng.random() < 0.05:
        words[rng.randrange(len(words))] = rng.choice(ODD)
    return words


def _launch(rng: random.Random, folder: Path) -> Words:
    """A launch line or file of a program, altered."""
    raw = altered(rng, rng.choice(_LAUNCH))
    if rng.random() < 0.5:
        return LAUNCH_FILES[rng.choice(list(LAUNCH_FILES))].with_content(raw, folder)
    return [*_LAUNCHED, raw.decode("utf-8", "replace")[:2000]]


_ASK = ("--gpus", "8xA100", "--json")
_LAUNCH = _seeds("tests/strategy/dialects/**/*.*", most=150)
_LAUNCHED = ("predict", "--json", "--model", "gpt2", "--gpus", "8xA100", "--launch")
#: Launch files by their ending.
LAUNCH_FILES = {
    f"launch {end}": _file(f"x{end}", _LAUNCH, *_LAUNCHED, "FILE")
    for end in (".sh", ".json", ".yaml", ".toml", ".py", ".ipynb")
}
_TOPOLOGIES = _seeds("docs/examples/topo*", "tests/topologies.py")
_TRACES = [gzip.decompress((ROOT / "docs/examples/rank0.json.gz").read_bytes())]
_FLEET = [b"submit_s,gpus,run_s,name,priority,limit_s\n0,8,100,a,1,200\n5,4,50,b,0,60\n"]
_CONFIGS = [
    json.dumps({"model_type": kind, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 100,
                "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                "num_experts": 4, "num_experts_per_tok": 2}).encode()
    for kind in ("llama", "mixtral", "gpt2", "bert", "qwen3_moe", "t5", "vit", "mamba2")
]  # fmt: skip
_TABLES = [
    *_seeds("validate/tables/*.csv", "validate/corpora/*/*.csv"),
    b"model,gpus,micro_batch,step_time_s,notes\ngpt2,8xH100,8,0.046,x\nbert-base,8xT4,4,0.1,\n",
]
_CALIBRATIONS = _seeds("hardware_db/calibrations/l*.yaml")
#: Stands for a command: a file is given to what reads the page's uploads.
_UPLOAD = "upload to the page"
#: What is made, by name, and how often.
KINDS: dict[str, tuple[int, Make]] = {
    "job": (10, _job),
    "sweep": (1, _sweep),
    "launch": (4, _launch),
    "model": (3, _file("x.yaml", _seeds("models_db/*.yaml"), "predict", "--model", "FILE", *_ASK)),
    "config": (3, _file("x.json", _CONFIGS, "predict", "--model", "FILE", *_ASK)),
    "calibration": (1, _file("x.yaml", _CALIBRATIONS, "predict", "--model", "gpt2",
                             "--calibration", "FILE", *_ASK)),
    "table": (1, _file("x.csv", _TABLES, "validate", "FILE", "--json")),
    "trace": (3, _file("x.json", _TRACES, "explain-trace", "FILE", "--json")),
    "packed trace": (1, _file("x.json.gz", _TRACES, "explain-trace", "FILE", "--json")),
    "topology": (2, _file("x.txt", _TOPOLOGIES, "node-from-topo", "FILE", "--gpu", "V100",
                          "-o", "NEW")),
    "fleet": (1, _file("x.csv", _FLEET, "fleet", "FILE", "--gpus", "16", "--json")),
    "upload": (2, _file("x.json", _CONFIGS, _UPLOAD, "model", "FILE")),
    "calibration upload": (1, _file("x.yaml", _CALIBRATIONS, _UPLOAD, "calibration", "FILE")),
}  # fmt: skip


def files() -> dict[str, FromFile]:
    """The kinds that are a file, launch files among them."""
    made = {name: kind for name, (_, kind) in KINDS.items() if isinstance(kind, FromFile)}
    return made | LAUNCH_FILES


def fuzz(n: int, first: int = 0, kinds: Sequence[str] = ()) -> tuple[list[str], Counter[str]]:
    """(What went wrong, a line each; how often each kind ended with which exit code)."""
    failures: list[str] = []
    ends: Counter[str] = Counter()
    chosen = {k: v for k, v in KINDS.items() if not kinds or k in kinds}
    weights = [often for often, _ in chosen.values()]
    with tempfile.TemporaryDirectory() as folder, bounded():
        for number in range(first, first + n):
            rng = random.Random(number)
            kind = rng.choices(list(chosen), weights)[0]
            words = chosen[kind][1](rng, Path(folder))
            code, wrong = tried(words)
            ends[f"{kind}: {code}"] += 1
            if wrong:
                shown = " ".join(w if len(w) < 200 else f"{w[:200]}..." for w in words)
                failures.append(f"{number} ({kind}): {wrong}\n    {shown!a}")
    return failures, ends


def tried(words: Words) -> tuple[int | None, str]:
    """(Exit code of a command, what is wrong with how it ended)."""
    out, err = io.StringIO(), io.StringIO()
    code = None
    signal.setitimer(signal.ITIMER_PROF, MOST_S)
    signal.setitimer(signal.ITIMER_REAL, MOST_WAITED_S)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = _uploaded(words) if words[0] == _UPLOAD else run(words)
    except TookTooLong as late:
        return None, f"takes more than {late}"
    except BaseException as error:
        return None, f"raises {type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    said = err.getvalue()
    if code not in (0, 1, 2):
        return code, f"exit code {code}: {said[-300:]!a}"
    if "needs more memory than the machine gives" in said:
        return code, f"takes more than {MOST_BYTES:g} bytes"
    return code, _wrong_answer(words, out.getvalue()) if code < 2 else ""


def _uploaded(words: Words) -> int:
    """The exit code that a command would have which reads an upload."""
    try:
        shown_name(words[1], Path(words[2]).read_bytes())  # type: ignore[arg-type]
    except SimcoreError:
        return 2
    return 0


def _wrong_answer(words: Words, text: str) -> str:
    """What is wrong with an answer: no JSON, a NaN, outside the schema of predictions."""
    if "--json" not in words or "--help" in words:
        return ""
    try:
        answer = json.loads(text, parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError) as err:
        return f"no JSON: {type(err).__name__}: {text[:100]!a}"
    if words[0] == "predict" and not any(w.startswith(_OTHERS) for w in words):
        error = next(_schema().iter_errors(answer), None)
        return f"not as in the schema: {error.message[:200]}" if error else ""
    return ""


_SCHEMA: list[Any] = []


def _schema() -> Any:
    if not _SCHEMA:
        from jsonschema import Draft202012Validator

        from simcore.report.schema import build

        _SCHEMA.append(Draft202012Validator(build()))
    return _SCHEMA[0]


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Bounds of time and memory, which end with the block."""

    def end(number: int, _frame: object) -> None:
        waited = number == signal.SIGALRM
        raise TookTooLong(f"{MOST_WAITED_S:g} s" if waited else f"{MOST_S:g} s of processor time")

    before = resource.getrlimit(resource.RLIMIT_DATA)
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    most = int(pages * resource.getpagesize() + MOST_BYTES)
    handlers = {n: signal.signal(n, end) for n in (signal.SIGALRM, signal.SIGPROF)}
    resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def main() -> int:
    """Try the inputs and print what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=2000, help="number of inputs")
    parser.add_argument("--from", type=int, default=0, dest="first", help="number of the first")
    parser.add_argument("--kind", action="append", default=[], choices=KINDS)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    asked = parser.parse_args()
    begun = time.monotonic()
    ends: Counter[str] = Counter()
    n_failures, end = 0, asked.first + asked.n
    firsts = range(asked.first, end, _AT_ONCE)
    sizes = [min(_AT_ONCE, end - first) for first in firsts]
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(asked.jobs, context, max_tasks_per_child=1) as pool:
        for first, found in zip(
            firsts, pool.map(partial(fuzz, kinds=asked.kind), sizes, firsts), strict=True
        ):
            failures, ended = found
            for line in failures:
                print(line)  # noqa: T201
            print(f"from {first:,} on: {len(failures)} failures", file=sys.stderr, flush=True)  # noqa: T201
            ends, n_failures = ends + ended, n_failures + len(failures)
    for how, times in sorted(ends.items()):
        print(f"{times:8,}  {how}")  # noqa: T201
    print(f"{asked.n:,} inputs in {time.monotonic() - begun:.0f} s, {n_failures} failures")  # noqa: T201
    return int(bool(n_failures))


if __name__ == "__main__":
    sys.exit(main())
