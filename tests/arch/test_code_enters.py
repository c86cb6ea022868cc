"""Where the package can make text into code that runs: nowhere but in the places named here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tree import ROOT, modules, parsed

#: Calls that run what they are given, or build any object from it.
RUNS = {
    "eval", "exec", "__import__", "import_module", "run_path", "run_module", "system", "popen",
    "unsafe_load", "full_load",
}  # fmt: skip
#: Modules whose ``load`` and ``loads`` do.
LOADERS = {
    "pickle",
    "ForkingPickler",
    "marshal",
    "shelve",
    "dill",
    "joblib",
    "cloudpickle",
    "torch",
    "jsonpickle",
}
#: Each place, and what keeps data from it. docs/security.md has those that a user meets.
PLACES = {
    ("simcore/workload/trace/callables.py", "import_module"): "permission.permitted",
    ("simcore/workload/trace/run/script/child.py", "run_path"): "the script that capture names",
    ("simcore/workload/trace/run/script/child.py", "run_module"): "the same",
    ("simcore/workload/trace/zoos.py", "import_module"): "names written in the file",
    ("simcore/base/lookup.py", "import_module"): "names of a table in the file",
    ("simcore/workload/archs/__init__.py", "import_module"): "names of a table in the file",
    ("simcore/workload/ops/__init__.py", "import_module"): "names of a table in the file",
    ("simcore/strategy/dialects/__init__.py", "import_module"): "names of a table in the file",
    ("simcore/strategy/options/kinds.py", "import_module"): "module:NAME of the option table",
    ("simcore/report/plots/__init__.py", "import_module"): "names of a table in the file",
    ("simcore/report/text_of.py", "import_module"): "names of a table in the file",
    ("simcore/cli/main.py", "import_module"): "names of a table in the file",
    ("simcore/__init__.py", "import_module"): "names of a table in the file",
    ("simcore/api/__init__.py", "import_module"): "names of a table in the file",
    ("simcore/serve/worker.py", "ForkingPickler.loads"): "a pipe to the process that forked it",
    ("simcore/planning/workers/dask_cluster.py", "pickle.loads"): "bytes that the client made",
}


def calls(tree: ast.AST) -> Iterator[str]:
    """What a module calls of these, by any name's last part; ``shell=True`` of any call."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        words = {k.arg: k.value for k in node.keywords}
        for word in ("shell", "allow_pickle", "trust_remote_code"):
            if isinstance(said := words.get(word), ast.Constant) and said.value is True:
                yield word
        if isinstance(node.func, ast.Name) and node.func.id in RUNS:
            yield node.func.id
        elif isinstance(node.func, ast.Attribute):
            owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            if owner in LOADERS and node.func.attr in ("load", "loads", "open"):
                yield f"{owner}.{node.func.attr}"
            elif node.func.attr in RUNS and owner != "platform":
                yield node.func.attr


def test_the_walk_sees_them() -> None:
    text = (
        "eval(x); pickle.loads(x); importlib.import_module(x); np.load(f, allow_pickle=True)\n"
        "os.system(x); subprocess.run(x, shell=True); torch.load(f); json.loads(x); re.compile(x)\n"
    )
    assert sorted(calls(ast.parse(text))) == [
        "allow_pickle", "eval", "import_module", "pickle.loads", "shell", "system", "torch.load",
    ]  # fmt: skip


def test_code_enters_in_these_places_alone() -> None:
    found = {(m.as_posix(), call) for m in modules() for call in calls(parsed(m))}
    assert found - PLACES.keys() == set()
    assert PLACES.keys() - found == set(), "places that are no more"


def variables(tree: ast.AST) -> Iterator[str]:
    """The environment's variables that a module reads or sets, where it names them itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, words = node.func.value, node.args[:1]
        elif isinstance(node, ast.Subscript):
            owner, words = node.value, [node.slice]
        else:
            continue
        if isinstance(owner, ast.Attribute) and owner.attr == "environ":
            yield from (w.value for w in words if isinstance(w, ast.Constant))


def test_no_other_variable_is_read_than_the_documented_ones() -> None:
    found = {name for m in modules() for name in variables(parsed(m))}
    assert len(found) > 8
    text = Path(ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert [name for name in sorted(found) if f"`${name}`" not in text] == []


def test_yaml_is_read_as_plain_data() -> None:
    """ruamel's ``safe`` builds plain values, ``rt`` its own; ``unsafe`` builds any object."""
    kinds = {
        k.value.value
        for m in modules()
        for node in ast.walk(parsed(m))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "YAML"
        for k in node.keywords
        if k.arg == "typ" and isinstance(k.value, ast.Constant)
    }
    assert kinds == {"safe", "rt"}


def test_every_place_of_the_permission_is_documented() -> None:
    text = Path(ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    for word in ("--allow-code", "allow_code", "workload/settings.py", "pickle", "serve", "YAML"):
        assert word in text
