"""An option's name stands in the table and where its meaning is acted on, and in few other places.

What else shows an option (help, signatures, sweeps, the page, JSON, completion) reads the table.
"""

from __future__ import annotations

import ast
from pathlib import Path

import simcore
from simcore.strategy.options import OPTIONS

PACKAGE = Path(simcore.__file__).parent
#: The table itself, and files of which each states what one program, or one published run, does.
APART = ("strategy/options/", "strategy/dialects/", "strategy/programs/", "validate/")
#: Files that may name an option: those that act on it.
MOST = 9
#: Options whose name is also that of something else: columns of answers and of sweeps, kinds of
#: kernels, terms of time and of memory, links and nodes of the hardware, settings of networks.
ALSO_ELSE = {
    "attention", "calibration", "cp", "ema", "ep", "fabric", "global_batch", "grad_accum",
    "inputs", "launch", "layout", "lora_rank", "micro_batch", "network", "node", "offload",
    "optimizer", "overlap", "pp", "precision", "recompute", "seq_len", "settings", "software",
    "stages", "strategy", "tp", "vpp",
}  # fmt: skip


def _files_naming() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in OPTIONS.options()}
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith(APART):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
        for name, places in found.items():
            if name in texts:
                places.append(place)
    return found


def test_an_option_is_named_where_it_is_acted_on_and_nowhere_else() -> None:
    found = _files_naming()
    many = {n: places for n, places in found.items() if len(places) > MOST}
    assert set(many) == ALSO_ELSE
    assert sum(len(places) <= 3 for places in found.values()) > 20


def test_what_shows_options_names_none() -> None:
    """Of the outer layers only a rival, a file or the size of a checkpoint is named."""
    readers = (
        "cli/main.py", "cli/names.py", "cli/synonyms.py", "api/result.py",
        "serve/controls.py", "serve/problems.py", "planning/compare.py", "request/choices.py",
        "report/schema.py",
    )  # fmt: skip
    named: dict[str, set[str]] = {}
    for name, places in _files_naming().items():
        for place in places:
            if place in readers and name not in ALSO_ELSE:
                named.setdefault(place, set()).add(name)
    assert named == {
        "api/result.py": {"nnodes", "nproc_per_node"},  # dropped where ``gpus`` replaces them
        "report/schema.py": {"shard_ranks"},  # of the answer's own
    }


def test_the_page_s_script_names_no_option_but_those_it_draws_apart() -> None:
    script = (PACKAGE / "serve" / "static" / "controls.js").read_text(encoding="utf-8")
    named = {n for n in OPTIONS.options() if f'"{n}"' in script or f"'{n}'" in script}
    assert named == {"micro_batch"}
