"""How many small faults the tests notice: the mutation score.

    python -m benchmarks.mutants [--n 300] [--seed 1] [--folders physics,step] [--jobs 2] [--json]

A mutant is a module with one operator, comparison, number or condition changed (cosmic-ray's
operators). Mutants are drawn at random from the modules of the folders; each runs the tests that
mirror its module (``tests/physics/test_ring*.py`` of ``simcore/physics/ring.py``), or all tests of
the mirrored folder where no file is named after it. A mutant that no test notices has survived:
either a test is missing, or the mutant computes the same (list such mutants in ``EQUIVALENT``).
The score is the share of noticed mutants, with the lower bound of its 95 % interval (Wilson).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

from benchmarks.mutant_runs import Change, judge

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("physics", "step", "strategy", "timing", "memory")
#: Binary operators that formulas are made of, each replaced by one that gives another number.
_SWAPS = ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Add", "Pow_Mul")
_COMPARISONS = ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "Lt_GtE", "LtE_Lt", "Gt_GtE", "Gt_LtE", "GtE_Gt")
OPERATORS = (
    *(f"core/ReplaceBinaryOperator_{pair}" for pair in _SWAPS),
    *(f"core/ReplaceComparisonOperator_{pair}" for pair in _COMPARISONS),
    "core/ReplaceUnaryOperator_Delete_USub", "core/ReplaceUnaryOperator_Delete_Not",
    "core/AddNot", "core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue",
    "core/ReplaceAndWithOr", "core/ReplaceOrWithAnd", "core/ReplaceBreakWithContinue",
    "core/NumberReplacer", "core/ZeroIterationForLoop",
)  # fmt: skip
#: Starts of lines of which every mutant computes the same as the module, each with its reason.
EQUIVALENT_LINES = {
    "@dataclass": "flags that forbid writing or save memory compute nothing",
    "@lru_cache": "another size of a cache gives the same values",
    "start, quote, array = 1": "the first line gives all three their values",
    "if TYPE_CHECKING:": "what type checkers alone import computes nothing",
    "trial = ": "a search finds the same limit from any trial",
    "step = 1": "a search finds the same with any steps",
    "step *= 2": "a search finds the same with any steps",
    "_ADDRESS_RANGE =": "any range that is longer than a device's memory keeps segments apart",
}
#: Arguments of which a mutant computes the same: (operator, what stands before the place).
EQUIVALENT_ARGUMENTS = {
    (
        "core/ReplaceTrueWithFalse",
        "strict=",
    ): "zip is given equal lengths: nothing is left to refuse",
}
#: Single mutants that compute the same: (file, operator, occurrence), each with its reason.
EQUIVALENT: dict[tuple[str, str, int], str] = {
    ("simcore/step/schedules/interleaved.py", "core/ReplaceComparisonOperator_Lt_LtE", 1):
        "chunks that are none shorter share as equal ones do: 1",
    **dict.fromkeys(
        ((f"simcore/step/parallel/{file}.py", "core/NumberReplacer", n)
         for file in ("ddp", "dp", "manual") for n in (0, 1)),
        "where nothing is divided, the default of expert ranks is not read",
    ),
    ("simcore/memory/parts.py", "core/NumberReplacer", 19):
        "all rows of an array are equally long",
    ("simcore/memory/over_time.py", "core/AddNot", 3):
        "what fits without a limit is the same with it: the short cut saves time alone",
    ("simcore/step/program.py", "core/NumberReplacer", 30):
        "no dependence is below -1, nor below -2",
    ("simcore/physics/expert_layer.py", "core/NumberReplacer", 40):
        "numpy computes the length of any axis that is negative",
    ("simcore/physics/expert_layer.py", "core/NumberReplacer", 48):
        "numpy computes the length of any axis that is negative",
    ("simcore/strategy/dialects/torchrun.py", "core/NumberReplacer", 26):
        "a longer slice of what follows is empty where the shorter one is",
    ("simcore/strategy/balanced_cut.py", "core/ReplaceBinaryOperator_Add_Sub", 2):
        "a search finds the same from any start",
    ("simcore/strategy/balanced_cut.py", "core/ReplaceBinaryOperator_Add_Sub", 4):
        "a search finds the same from any start",
    ("simcore/strategy/balanced_cut.py", "core/ReplaceBinaryOperator_Add_Sub", 6):
        "a search finds the same with any steps",
    ("simcore/strategy/balanced_cut.py", "core/ReplaceBinaryOperator_Sub_Add", 5):
        "a search finds the same with any steps",
    ("simcore/strategy/cuts.py", "core/NumberReplacer", 35):
        "a list repeated less than once is empty, as it is repeated not at all",
    ("simcore/strategy/balanced_cut.py", "core/NumberReplacer", 78):
        "stages that begin before all earlier ones end cost infinitely much",
    ("simcore/timing/collectives.py", "core/NumberReplacer", 33):
        "a message of one size has one row, which is the first and the last",
}  # fmt: skip
#: z of a two-sided 95 % interval.
_Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module: one operator, applied at its n-th possible place."""

    file: str
    operator: str
    occurrence: int


@dataclass(frozen=True, slots=True)
class Judged:
    """A mutant, whether the tests noticed it, and the line that it changed."""

    mutant: Mutant
    outcome: str
    line: str
    #: Tests that enter the changed function, or may notice what changes at import.
    entering: int


def mutants_of(file: Path) -> Iterator[Mutant]:
    """All mutants of a module."""
    text = file.read_text(encoding="utf-8")
    nodes, lines = list(ast_nodes(get_ast(text))), text.splitlines()
    name = file.relative_to(ROOT).as_posix()
    for operator_name in OPERATORS:
        operator = get_operator(operator_name)()
        places = [place for node in nodes for place in operator.mutation_positions(node)]
        arguments = tuple(word for of, word in EQUIVALENT_ARGUMENTS if of == operator_name)
        for occurrence, ((row, column), _) in enumerate(places):
            line = lines[row - 1]
            same = line.lstrip().startswith(tuple(EQUIVALENT_LINES))
            same = same or line[:column].endswith(arguments)
            if not same and (name, operator_name, occurrence) not in EQUIVALENT:
                yield Mutant(name, operator_name, occurrence)


def tests_of(file: str) -> tuple[str, ...]:
    """The tests that mirror a module: files named after it, else its folder's."""
    path = Path(file)
    folder = Path("tests", *path.parts[1:-1])
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    named = sorted(
        p.relative_to(ROOT).as_posix() for p in (ROOT / folder).glob(f"test_{path.stem}*.py")
    )
    return tuple(named) or (folder.as_posix(),)


def copy_of_repository(where: Path) -> None:
    """A copy of the files that git tracks or would add: edits do not meddle with a run."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if not (ROOT / name).is_file():
            continue
        target = where / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)


def change_of(mutant: Mutant) -> Change:
    """The module of a mutant before and after, and its tests."""
    before = (ROOT / mutant.file).read_text(encoding="utf-8")
    after = mutate_code(before, get_operator(mutant.operator)(), mutant.occurrence)
    if after is None:
        raise RuntimeError(f"{mutant} changes nothing")
    return Change(mutant.file, before, after, tests_of(mutant.file))


def _changed_line(before: str, after: str) -> str:
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    return next(
        (
            f"{n}: {old.strip()}  ->  {new.strip()}"
            for n, (old, new) in enumerate(pairs, 1)
            if old != new
        ),
        "",
    )


def lower_bound(noticed: int, of: int) -> float:
    """Lower bound of the 95 % interval of a fraction (Wilson 1927)."""
    if not of:
        return 0.0
    share, z2 = noticed / of, _Z95**2
    middle = share + z2 / (2 * of)
    half = _Z95 * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    return (middle - half) / (1 + z2 / of)


def drawn(folders: Sequence[str], n: int, seed: int) -> list[Mutant]:
    """``n`` mutants of the modules of ``folders`` (or single modules), the same for a seed."""
    rooms = [ROOT / "simcore" / folder for folder in folders]
    files = [f for room in rooms for f in (sorted(room.rglob("*.py")) or [room])]
    every = [mutant for file in files for mutant in mutants_of(file)]
    return random.Random(seed).sample(every, min(n, len(every)))


def main() -> int:
    """Print the score and every mutant that no test noticed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("--n", type=int, default=300, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--folders", default=",".join(FOLDERS), help="or modules of simcore/, by commas"
    )
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--json", action="store_true", help="every mutant with its outcome")
    asked = parser.parse_args()
    mutants = drawn(asked.folders.split(","), asked.n, asked.seed)
    changes = [change_of(mutant) for mutant in mutants]
    found: list[Judged] = []

    def hear(number: int, outcome: str, entering: int) -> None:
        line = _changed_line(changes[number].before, changes[number].after)
        found.append(Judged(mutants[number], outcome, line, entering))
        if outcome in ("survived", "crashed"):
            sys.stderr.write(f"{outcome} {entering:3} tests  {mutants[number].file}:{line}\n")

    with tempfile.TemporaryDirectory() as folder:
        copy_of_repository(Path(folder).resolve())
        judge(changes, Path(folder).resolve(), asked.jobs, hear)
    noticed = sum(one.outcome != "survived" for one in found)
    score = {
        "mutants": len(found), "noticed": noticed,
        "score_frac": noticed / len(found) if found else 0.0,
        "lower_95_frac": lower_bound(noticed, len(found)),
    }  # fmt: skip
    if asked.json:
        sys.stdout.write(
            json.dumps({**score, "judged": [asdict(one) for one in found]}, indent=1) + "\n"
        )
    else:
        for folder in sorted({one.mutant.file.split("/")[1] for one in found}):
            of = [one for one in found if one.mutant.file.split("/")[1] == folder]
            seen = sum(one.outcome != "survived" for one in of)
            sys.stdout.write(f"{folder:9}{seen:4} of {len(of)}\n")
        sys.stdout.write(
            f"{noticed} of {len(found)} mutants noticed: {score['score_frac']:.0%}, "
            f"at least {score['lower_95_frac']:.0%} with 95 % confidence\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
