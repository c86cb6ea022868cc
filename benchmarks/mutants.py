"""How many small faults the tests notice: the mutation score.

    python -m benchmarks.mutants [--n 300] [--seed 1] [--folders physics,step] [--part 1/5]
                                 [--jobs 2] [--json]

A mutant is a module with one operator, comparison, number or condition changed (cosmic-ray's
operators). Mutants are drawn at random from the modules of the folders; each runs the tests that
mirror its module (``tests/physics/test_ring*.py`` of ``simcore/physics/ring.py``), or all tests of
the mirrored folder where no file is named after it. A mutant that no test notices has survived:
either a test is missing, or the mutant computes the same (list such mutants in ``EQUIVALENT``).
The score is the share of noticed mutants, with the lower bound of its 95 % interval (Wilson).
``--part 2/5`` judges the second fifth of a draw: the parts' counts add up to the draw's.
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
from collections import Counter
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
#: What a star is part of that is no operator: parameters given by name alone, and a mapping in
#: braces that another is put into. Its mutants compute the same, or are no Python.
_NO_OPERATORS = ("parameters", "dictorsetmaker")
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
    ("core/ReplaceFalseWithTrue", "repr="): "what a record prints of itself computes nothing",
    ("core/NumberReplacer", "example="): "an example beside a field of the page computes nothing",
}
#: Single mutants that compute the same, each with its reason: (file below ``simcore/``, operator,
#: the line's beginning or a part of it, which of the operator's places on such lines, from 0). The
#: operator on numbers has two places for each number: one more, and one less.
EQUIVALENT: dict[tuple[str, str, str, int], str] = {
    ("step/schedules/interleaved.py", "ReplaceComparisonOperator_Lt_LtE", "if longest % vpp", 0):
        "chunks that are none shorter share as equal ones do: 1",
    ("step/schedules/dualpipe.py", "NumberReplacer", "(near + 1) // 2 and near % 2 == 1", 0):
        "halves of an odd number and one, and of an odd number and two, are equal",
    **dict.fromkeys(
        ((f"step/parallel/{file}.py", "NumberReplacer", "expert_ranks: float = 1.0", n)
         for file in ("dp", "manual") for n in (0, 1)),
        "where nothing is divided, the default of expert ranks is not read",
    ),
    **dict.fromkeys(
        (("step/parallel/__init__.py", "NumberReplacer", "expert_ranks: float = 1.0", n)
         for n in range(4)),
        "what each parallelism must have is never called; of DDP, which divides nothing, not read",
    ),
    ("step/transients.py", "NumberReplacer", "before = 0.0", 1):
        "what is read of less than nothing counts as nothing",
    **dict.fromkeys(
        ((file, "NumberReplacer", line, 1) for file, line in (
            ("step/parallel/context.py", "return {self.way.sent: collective_time_s("),
            ("step/parallel/expert.py", "return {\"all_to_all\": exchange_s(rows"),
            ("step/parallel/expert.py", "seconds = exchange_s(n_bytes"),
            ("step/parallel/layer_ranks.py", "op: collective_time_s(op"),
            ("timing/collectives.py", "total = total + times * collective_time_s("),
        )),
        "a message of one size has one row, which is the first and the last",
    ),
    ("memory/parts.py", "NumberReplacer", "if len(self.storage_bytes[0]) == 1:", 1):
        "all rows of an array are equally long",
    **dict.fromkeys(
        (("memory/parts.py", "NumberReplacer", line, n) for n in (0, 1) for line in (
            "longest = max(len(columns[0])", "rows = [np.where(np.arange(longest) < len(c[0])",
        )),
        "all columns of moments are equally long",
    ),
    ("memory/job.py", "NumberReplacer", "return float(memory_over(request, *axis_of(request)", 1):
        "a list of one stage has one, which is the first and the last",
    ("memory/job.py", "NumberReplacer", "terms={k: float(v[0])", 1):
        "one configuration is the first and the last",
    ("memory/job.py", "NumberReplacer", "terms={k: float(v[0])", 3):
        "one configuration is the first and the last",
    **dict.fromkeys(
        (("memory/job.py", "NumberReplacer", line, 1) for line in (
            "moment=MOMENTS[int(memory.moment[0])]",
            "return max(device_bytes - float(mean.device[0]), 0.0)",
        )),
        "one configuration is the first and the last",
    ),
    **dict.fromkeys(
        ((file, operator, line, 0)
         for operator in ("ReplaceBinaryOperator_FloorDiv_Mul", "NumberReplacer")
         for file, line in (("memory/together.py", "at_once = max(1,"),
                            ("memory/job.py", "at_once, found = max(1,"))),
        "how many stages are computed together changes no figure",
    ),
    ("memory/events.py", "NumberReplacer", "step and self.state.early[0]", 1):
        "one configuration is the first and the last",
    ("memory/over_time.py", "ReplaceComparisonOperator_LtE_Lt", "if memory.needed[0] <= limit", 0):
        "what fits without a limit is the same with it: the short cut saves time alone",
    ("step/kernels.py", "ReplaceTrueWithFalse", "], align=True)", 0):
        "where columns of a table lie in memory changes no figure",
    ("strategy/balanced_cut.py", "NumberReplacer", "after, start = [infinite]", 2):
        "where nothing ends no start is read",
    **dict.fromkeys(
        (("strategy/balanced_cut.py", "NumberReplacer", "after, start = [infinite]", n)
         for n in (0, 4)),
        "no layer ends behind the last one: a place more is not read",
    ),
    **dict.fromkeys(
        (("physics/fabric_shares.py", operator, "(True, False) if b < 1.0 else", 0)
         for operator in ("NumberReplacer", "ReplaceComparisonOperator_Lt_LtE")),
        "that a job which always sends does not has probability 0, and slows no other",
    ),
    ("strategy/dialects/megatron_model.py", "ReplaceComparisonOperator_Gt_GtE",
     "return int(text) if text.isdigit()", 0): "a size of 0 is read as none, as None is",
    ("strategy/dialects/megatron_model.py", "NumberReplacer",
     "return int(text) if text.isdigit()", 1): "a size of 0 is read as none, as None is",
    ("strategy/options/job.py", "NumberReplacer", "Control(label=\"Optimizer\"", 0):
        "of equal places the control that is declared first stands first",
    ("step/schedules/base.py", "NumberReplacer", "(work.kind == \"weights\" and len(cell) > 1)", 1):
        "a stage that has run the backward before is free no earlier than it ended",
    ("physics/collectives/pairwise.py", "ReplaceComparisonOperator_GtE_Gt",
     "if chosen >= groups:", 0): "of all groups chosen the formula is that without groups",
    ("timing/stage_steps.py", "NumberReplacer", "jobs[0].classes[0].kernels", 1):
        "stages of one job run on one cluster",
    ("step/parallel/dp.py", "ReplaceBinaryOperator_Mul_Div", "buckets=0 * n_ranks", 0):
        "nothing divided is nothing",
    **dict.fromkeys(
        (("timing/stage_steps.py", "NumberReplacer", "slowdown = alike[0].jobs[0].classes[0]", n)
         for n in (1, 3)),
        "stages of one job run on one cluster, and so do jobs that differ in recompute",
    ),
    **dict.fromkeys(
        (("memory/result.py", "NumberReplacer", "/ value if value else 1.0", n) for n in (2, 3)),
        "of nothing any share is nothing",
    ),
    **dict.fromkeys(
        (("strategy/balanced_cut.py", "NumberReplacer", line, n) for line, n in (
            ("at = (low + high + 1) // 2", 0), ("high, at = at - 1, max(at - step, low + 1)", 3),
        )),
        "a search finds the same from any place that is left",
    ),
    ("physics/collectives/__init__.py", "NumberReplacer", "or library.nvls_bw_bytes_per_s > 0", 0):
        "no switch reduces a byte a second",
    ("memory/job.py", "NumberReplacer", "cached_bytes=min(float(memory.cached[0])", 1):
        "one configuration is the first and the last",
    ("memory/events.py", "NumberReplacer", "one = np.ones(1)", 0):
        "of equal configurations the first is read",
    ("strategy/balanced_cut.py", "AddNot", "fits, trial if low <= trial < high else low)", 0):
        "a search finds the same limit from any trial",
    ("memory/allocator.py", "NumberReplacer", "dtype=np.int64).reshape(-1, 4).T", 0):
        "numpy computes the length of any axis that is negative",
    ("timing/evaluate.py", "NumberReplacer", "first = jobs[0]", 1):
        "jobs that differ in their part of a model or its recompute have one issuer and cluster",
    **dict.fromkeys(
        (("memory/job.py", "NumberReplacer", "_AT_ONCE, MOST_BATCH = 100", n) for n in (0, 1)),
        "memory grows with the batch: dividing the range in any number finds the same",
    ),
    ("step/kernels.py", "NumberReplacer", "FULL_LOAD_BYTES = 16.0", 1):
        "loads are powers of two of bytes: none lies between 8 and 16",
    ("strategy/dialects/recipes.py", "NumberReplacer", "target, node = statement.targets[0]", 1):
        "a list of one has one, which is the first and the last",
    **dict.fromkeys(
        (("timing/evaluate.py", "NumberReplacer", "ends[parts[0]] = makespan_s(graph", n)
         for n in (1, 3)),
        "a list of one part has one, which is the first and the last",
    ),
    ("timing/compute.py", "NumberReplacer", "task_s = computing.weights @ phases[0]", 1):
        "one class is the first and the last",
    ("timing/compute.py", "NumberReplacer", "tile=(down, across) if (of_kind", 1):
        "a tile of one pads nothing",
    ("timing/evaluate.py", "ReplaceComparisonOperator_Lt_LtE", "if n_chunks < 2:", 0):
        "slices of the axis give what the whole axis does",
    ("timing/evaluate.py", "NumberReplacer", "if n_chunks < 2:", 0):
        "slices of the axis give what the whole axis does",
    ("physics/fill.py", "ReplaceComparisonOperator_GtE_Gt", "spent = np.where(waves >= 1.0", 0):
        "of one whole wave the tail and the slices are one",
    ("physics/fill.py", "ReplaceComparisonOperator_GtE_Gt", "tail = np.where(waves >= 1.0", 0):
        "the tail of one whole wave is one",
    ("physics/fill.py", "NumberReplacer", "useful * np.minimum(best, 1.0))", 2):
        "no product fills more than the device: the bound takes rounding off",
    ("memory/over_time.py", "AddNot", "if memory.needed[0] <= limit and", 0):
        "what fits without a limit is the same with it: the short cut saves time alone",
    ("physics/collectives/__init__.py", "ReplaceComparisonOperator_LtE_Lt", "if n <= 1:", 0):
        "the formula gives 0 for one, too",
    ("physics/collectives/__init__.py", "NumberReplacer", "if n <= 1:", 1):
        "the formula gives 0 for one, too",
    ("physics/expert_layer.py", "NumberReplacer", "_DRAWS, ranks, -1)", 0):
        "numpy computes the length of any axis that is negative",
    ("physics/expert_layer.py", "NumberReplacer", "flat = loads.reshape(len(loads), -1)", 0):
        "numpy computes the length of any axis that is negative",
    ("physics/expert_layer.py", "ReplaceUnaryOperator_Delete_USub", "order = np.argsort(-flat", 0):
        "turns taken from the other end mirror all places on the circle of tokens",
    ("physics/fabric_shares.py", "NumberReplacer", "np.full(2 * n_ports, port)", 0):
        "limits of links that nothing uses",
    **dict.fromkeys(
        (("physics/fabric_shares.py", "NumberReplacer", "by_fit.round(9)", n) for n in (0, 1)),
        "any rounding between that of floats and the least difference of shares gives the same",
    ),
    ("physics/collectives/__init__.py", "ReplaceComparisonOperator_Gt_GtE",
     "library.nvls_bw_bytes_per_s > 0", 0): "switches that do not reduce have no options",
    ("physics/collectives/__init__.py", "NumberReplacer", "library.nvls_bw_bytes_per_s > 0", 1):
        "switches that do not reduce have no options",
    ("physics/collectives/pairwise.py", "NumberReplacer", "spread = np.minimum(groups", 0):
        "places with parts of several groups are computed apart, others have no more than one",
    ("physics/collectives/pat.py", "NumberReplacer", "hop = nccl.net_s(group", 1):
        "a table by protocol has one column",
    ("physics/collectives/pat.py", "NumberReplacer", "ok = (n <= group.n_nodes) & (n > 1)", 1):
        "one rank costs nothing in any way",
    ("physics/collectives/pairwise.py", "ReplaceComparisonOperator_Gt_GtE",
     "if lib.oversubscription > 1.0:", 0): "uplinks as fast as all nodes limit nothing",
    ("physics/collectives/pairwise.py", "NumberReplacer", "if lib.oversubscription > 1.0:", 1):
        "uplinks faster than all nodes limit nothing",
    **dict.fromkeys(
        (("physics/kernel.py", "NumberReplacer", "row_bytes: FloatLike = 0.0", n) for n in (0, 1)),
        "of rows that are not read again the size does not count",
    ),
    ("timing/compute.py", "NumberReplacer", "if len(phases) == 1:", 1):
        "a short cut for one class, of which the way for several gives the same",
    ("timing/convex.py", "NumberReplacer", "right = np.full(len(rows), 2.0)", 1):
        "of rows without further points nothing is read",
    ("timing/convex.py", "ReplaceComparisonOperator_Gt_GtE", "alone = rows[np.bincount(", 0):
        "of rows without such points nothing is read",
    ("timing/convex.py", "ReplaceBinaryOperator_Sub_Add", "straight = near.all(axis=0)", 0):
        "an interval of one has its middle at its left end, on its chord",
    ("timing/evaluate.py", "NumberReplacer", "return {**own[0], **common}", 1):
        "one class is the first and the last",
    ("timing/evaluate.py", "NumberReplacer", "terms = {k: np.concatenate([p.terms_s[k]", 2):
        "all pieces have the same terms",
    ("timing/exchanges.py", "NumberReplacer", "share = np.where(apart, 1.0 / placed", 2):
        "a pair within a node sends nothing over its share of the NICs",
    ("timing/timed.py", "NumberReplacer", "awaited_per_phase=np.zeros((len(found), 2))", 0):
        "of nothing awaited any number of columns is nothing",
    ("timing/steps.py", "NumberReplacer", "return steps_of_alike([request]", 1):
        "a list of one has one request, which is the first and the last",
    ("timing/stage_steps.py", "NumberReplacer", "first, tables = jobs[0]", 1):
        "parts of one model have one strategy, one cluster and equal shares",
    **dict.fromkeys(
        (("timing/steps.py", "NumberReplacer", line, 1) for line in (
            "points = with_library(requests[0]", "if requests[0].placed is None:",
        )),
        "requests that differ in recompute alone have one library and one layout",
    ),
    **dict.fromkeys(
        (("timing/steps.py", "NumberReplacer", "return float(steps_of(request, Points.of(", n)
         for n in (0, 3)),
        "all columns of the axis are alike",
    ),
    ("strategy/dialects/torchrun.py", "NumberReplacer", "if after[:1] == (\"-m\",)", 4):
        "a longer slice of what follows is empty where the shorter one is",
    ("strategy/balanced_cut.py", "ReplaceBinaryOperator_FloorDiv_Mul", "size = n_layers //", 0):
        "a search finds the same from any start",
    ("strategy/balanced_cut.py", "ReplaceBinaryOperator_FloorDiv_Mul", "used, more, a, size =", 0):
        "a search finds the same from any start",
    ("strategy/balanced_cut.py", "NumberReplacer", "n_layers = ends[-1][1]", 3):
        "the last stage ends at one place, the first and the last possible",
    ("strategy/balanced_cut.py", "ReplaceBinaryOperator_Add_Sub", "at = min(max(guess", 0):
        "a search finds the same from any start",
    **dict.fromkeys(
        (("strategy/dialects/shell.py", "ReplaceComparisonOperator_Lt_LtE",
          "return abs(a) // abs(b) *", n) for n in (0, 1)),
        "nothing divided is nothing with either sign, and what divides is not nothing",
    ),
    ("strategy/dialects/shell.py", "NumberReplacer", "return abs(a) // abs(b) *", 2):
        "nothing divided is nothing with either sign",
    ("strategy/dialects/shell.py", "NumberReplacer", "return abs(a) // abs(b) *", 4):
        "what divides is not nothing",
    ("strategy/balanced_cut.py", "ReplaceBinaryOperator_Add_Sub", "b = _furthest(within", 0):
        "a search finds the same from any start",
    ("strategy/balanced_cut.py", "ReplaceBinaryOperator_Add_Sub", "b = _furthest(partial(fits", 0):
        "a search finds the same from any start",
    ("strategy/balanced_cut.py", "ReplaceBinaryOperator_Add_Sub", "low, at = at, min(", 0):
        "a search finds the same with any steps",
    **dict.fromkeys(
        (("strategy/balanced_cut.py", "ReplaceBreakWithContinue", "break", n) for n in (0, 1)),
        "what is too slow or too large for a stage is so for a longer one: breaks save time alone",
    ),
    ("strategy/balanced_cut.py", "ReplaceBinaryOperator_Add_Sub", "high, at = at - 1, max(", 0):
        "a search finds the same with any steps",
    ("strategy/balanced_cut.py", "ReplaceBinaryOperator_Sub_Add", "high, at = at - 1, max(", 1):
        "a search finds the same with any steps",
    ("strategy/balanced_cut.py", "NumberReplacer", "for a in range(b - mine, before - 1, -1):", 0):
        "stages that begin before all earlier ones end cost infinitely much",
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
    """All mutants of a module. Tells where ``EQUIVALENT`` names what is gone."""
    text = file.read_text(encoding="utf-8")
    nodes, lines = list(ast_nodes(get_ast(text))), text.splitlines()
    name = file.relative_to(ROOT).as_posix()
    equal = {key[1:] for key in EQUIVALENT if name == f"simcore/{key[0]}"}
    for operator_name in OPERATORS:
        operator, short = get_operator(operator_name)(), operator_name.removeprefix("core/")
        places = [(node, start) for node in nodes for start, _ in operator.mutation_positions(node)]
        arguments = tuple(word for of, word in EQUIVALENT_ARGUMENTS if of == operator_name)
        passed: Counter[str] = Counter()
        for occurrence, (node, (row, column)) in enumerate(places):
            line = lines[row - 1]
            same = line.lstrip().startswith(tuple(EQUIVALENT_LINES))
            same = same or line[:column].endswith(arguments)
            same = same or ("Binary" in short and node.parent.type in _NO_OPERATORS)
            for part in {part for of, part, _ in equal if of == short and part in line}:
                key = short, part, passed[part]
                passed[part] += 1
                same = same or key in equal
            if not same:
                yield Mutant(name, operator_name, occurrence)
        if gone := [k for k in equal if k[0] == short and passed[k[1]] <= k[2]]:
            sys.stderr.write(f"{name}: EQUIVALENT names what is not there: {gone}\n")


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
    if gone := {key[0] for key in EQUIVALENT if not (ROOT / "simcore" / key[0]).is_file()}:
        sys.stderr.write(f"EQUIVALENT names files that are gone: {', '.join(sorted(gone))}\n")
    rooms = [ROOT / "simcore" / folder for folder in folders]
    files = [f for room in rooms for f in (sorted(room.rglob("*.py")) or [room])]
    every = [mutant for file in files for mutant in mutants_of(file)]
    return random.Random(seed).sample(every, min(n, len(every)))


def part_of(mutants: Sequence[Mutant], part: str) -> Sequence[Mutant]:
    """The part of a draw that ``part`` names: "2/5" is the second fifth. Raises ValueError."""
    n, of = (int(number) for number in part.split("/"))
    if not 1 <= n <= of:
        raise ValueError(f"{part} is no part: write 1/5 to 5/5")
    return mutants[len(mutants) * (n - 1) // of : len(mutants) * n // of]


def main() -> int:
    """Print the score and every mutant that no test noticed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("--n", type=int, default=300, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--folders", default=",".join(FOLDERS), help="or modules of simcore/, by commas"
    )
    parser.add_argument("--part", default="1/1", help="2/5: the second fifth of the draw alone")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--json", action="store_true", help="every mutant with its outcome")
    asked = parser.parse_args()
    mutants = part_of(drawn(asked.folders.split(","), asked.n, asked.seed), asked.part)
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
