"""Heavy packages stay where they belong, no imports run in circles; layers: ``lint-imports``."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from tree import ROOT, imports, modules, parsed

SMALL_ENOUGH_LINES = 500


#: Tracing runs a user's module; all but the files that a prediction imports may need torch.
TRACE = "simcore/workload/trace/"
TRACE_WITHOUT_TORCH = (
    "__init__",
    "blocks",
    "cache",
    "convert",
    "inputs",
    "kinds",
    "record",
    "yamlout",
)

#: The kinds of plots; the package's own ``__init__`` imports them, and matplotlib, when drawing.
PLOTS = "simcore/report/plots/"

#: Package -> modules that may import it, inside functions only but for ``AT_MODULE_LEVEL``.
LAZY: dict[str, str | tuple[str, ...]] = {
    "scipy": "simcore/calibrate/",
    "torch": ("simcore/calibrate/", TRACE),
    "matplotlib": PLOTS,
    "pandas": ("simcore/calibrate/", "simcore/report/frames.py"),
    "jinja2": "simcore/report/html/__init__.py",
    "watchfiles": "simcore/cli/watch.py",
    "pyarrow": "simcore/planning/output.py",
    "simpy": "simcore/planning/",
}
#: Modules that exist to use the package, and that nothing imports but inside a function.
AT_MODULE_LEVEL = (
    TRACE, PLOTS, "simcore/calibrate/nets.py", "simcore/calibrate/job/kernel_runs.py",
    "simcore/calibrate/job/op_timer.py", "simcore/calibrate/job/real_step.py",
)  # fmt: skip


@pytest.mark.parametrize("package", LAZY)
def test_heavy_packages_are_imported_inside_functions_of_their_home(package: str) -> None:
    wrong = [
        f"{module}:{line}" + ("" if inside else " at module level")
        for module in modules()
        for name, line, inside in imports(module)
        if name == package
        and not (
            (inside or module.as_posix().startswith(AT_MODULE_LEVEL))
            and module.as_posix().startswith(LAZY[package])
        )
    ]
    assert not wrong


def test_what_imports_heavy_packages_at_once_is_imported_late() -> None:
    """Nothing outside the plots imports one of their kinds, and nothing the templates."""
    late = ("simcore.report.plots.", "jinja2")
    wrong = []
    for module in modules():
        if module.as_posix().startswith(PLOTS):
            continue
        top = [n for n in parsed(module).body if isinstance(n, ast.ImportFrom) and n.module]
        wrong += [f"{module}: {n.module}" for n in top if (n.module or "").startswith(late)]
    assert not wrong


def test_what_a_prediction_imports_of_tracing_has_no_torch() -> None:
    for stem in TRACE_WITHOUT_TORCH:
        module = Path(f"{TRACE}{stem}.py")
        assert not [line for name, line, _ in imports(module) if name == "torch"], module


def test_the_import_reader_sees_what_it_should() -> None:
    lazy = {(m.as_posix(), name, inside) for m in modules() for name, _, inside in imports(m)}
    assert ("simcore/calibrate/curve_fits.py", "scipy", True) in lazy
    assert ("simcore/planning/output.py", "pyarrow", True) in lazy
    assert ("simcore/physics/kernel.py", "numpy", False) in lazy


def test_no_module_is_too_long_to_read() -> None:
    lengths = {m: len((ROOT / m).read_text(encoding="utf-8").splitlines()) for m in modules()}
    assert len(lengths) > 60  # the tree was found
    assert not {str(m): n for m, n in lengths.items() if n > SMALL_ENOUGH_LINES}


def test_every_package_says_what_it_is() -> None:
    for module in modules():
        if module.name == "__init__.py":
            assert ast.get_docstring(parsed(module)), module
        assert (ROOT / module.parent / "__init__.py").exists(), f"{module.parent} is no package"


@cache
def _known() -> frozenset[str]:
    """The modules of the package, by dotted name."""
    return frozenset(".".join(m.with_suffix("").parts).removesuffix(".__init__") for m in modules())


def _names_imported(module: Path, *, late: bool = False) -> set[str]:
    """Modules of the package that a module imports as it loads, or for the type checker.

    ``late``: those that its functions import as well.
    """
    known, found = _known(), set[str]()

    def walk(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not late:
                continue
            if isinstance(child, ast.Import):
                found.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                inner = {f"{child.module}.{alias.name}" for alias in child.names}
                found.update(inner & known or {child.module})
            walk(child)

    walk(parsed(module))
    return (found & known) - {"simcore"}  # the package itself holds the version


def _refuse_circles(graph: dict[str, set[str]]) -> None:
    assert len(graph) > 400 and any(graph.values())
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as err:
        pytest.fail(f"imports in a circle: {' -> '.join(err.args[1])}")


def test_no_circle_among_modules_types_included() -> None:
    _refuse_circles(
        {
            ".".join(m.with_suffix("").parts).removesuffix(".__init__"): _names_imported(m)
            for m in modules()
        }
    )


def test_no_circle_hides_in_functions() -> None:
    """An import inside a function saves time; it is no way around the order of modules.

    A package may ask its own files for what they register, which ask it for what they share.
    """
    graph: dict[str, set[str]] = {}
    for module in modules():
        name = ".".join(module.with_suffix("").parts)
        package = name.removesuffix(".__init__")
        own = f"{package}." if package != name else "none of it"
        found = {n for n in _names_imported(module, late=True) if not n.startswith(own)}
        graph[package] = found
    _refuse_circles(graph)
