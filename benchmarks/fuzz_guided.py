"""Files altered towards lines of simcore not yet reached: python -m benchmarks.fuzz_guided.

atheris (``pip install atheris``) alters the same good files as ``benchmarks.fuzz``, and keeps those
that reach a new branch of simcore to alter them further. The same ends are failures: an error that
is not simcore's own, an answer outside its schema, a NaN, more than 10 s or 1 GB. The first failure
of a kind ends it; its file is kept and named. Exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import fuzz

#: The program of one kind: simcore is imported while atheris marks its branches.
_PROGRAM = """
import sys, tempfile
from pathlib import Path
import atheris
with atheris.instrument_imports(include=["simcore"], enable_loader_override=False):
    from benchmarks import fuzz
kind, folder = fuzz.files()[sys.argv[1]], Path(sys.argv[2])

def one(raw):
    with fuzz.bounded():
        code, wrong = fuzz.tried(kind.with_content(raw, folder))
    if wrong:
        raise RuntimeError(wrong)

atheris.Setup([sys.argv[0], *sys.argv[3:]], one)
atheris.Fuzz()
"""


def guided(kind: str, seeds: list[bytes], seconds: int, kept: Path) -> tuple[int, str]:
    """(How many files of a kind were tried, what went wrong or nothing)."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus")
        corpus.mkdir()
        for at, seed in enumerate(seeds):
            (corpus / str(at)).write_bytes(seed)
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, kind, folder, str(corpus),
             f"-max_total_time={seconds}", "-max_len=30000", "-timeout=120",
             "-rss_limit_mb=4096", "-print_final_stats=1",
             f"-artifact_prefix={kept}/{kind.replace(' ', '-')}-"],
            check=False, capture_output=True, text=True, errors="replace",
        )  # fmt: skip
    tried = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    wrong = "" if not done.returncode else done.stderr + done.stdout
    return int(tried[1]) if tried else 0, wrong


def main() -> int:
    """Alter the files of each kind for a while and print what went wrong."""
    files = fuzz.files()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each kind")
    parser.add_argument("--kind", action="append", default=[], choices=files)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()),
                        help="folder for files that end in a failure")  # fmt: skip
    asked = parser.parse_args()
    failed = False
    for name, kind in files.items():
        if asked.kind and name not in asked.kind:
            continue
        tried, wrong = guided(name, list(kind.seeds), asked.seconds, asked.keep)
        print(f"{tried:9,}  {name}: {wrong[-3000:] or 'no failure'}", flush=True)  # noqa: T201
        failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
