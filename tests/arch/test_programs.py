"""Facts about training programs are records: no module is named after one, or branches on one."""

import ast
import re

from tree import ROOT, modules, parsed

from simcore.strategy.programs import PROGRAMS, aliases

#: Folders that speak of programs by name, and why.
SPEAK_OF_PROGRAMS = {
    "simcore/strategy/dialects/": "each reads one program's own launch files",
    "simcore/strategy/options/": "keys of launch files, examples in help texts",
    "simcore/serve/": "examples and launch files to download",
}
#: Names that mean something else as well: a word, a kernel launcher, torch's word for ZeRO-3.
OTHER_MEANINGS = {
    "scaling": "the scaling curve",
    "megatron": "a kind of --issuer: how a host launches kernels",
    "fsdp": "torch's word for --strategy zero3",
    "fsdp2": "torch's word for --strategy zero3",
    "plain": "no program at all",
    "diffusers": "the library whose modules a model is of, a setting of it",
    "timm": "a library of models",
    "torchvision": "a library of models",
    "lightning": "a kind of linear attention",
}


def names() -> set[str]:
    """Programs, their aliases and their releases, as ``--software`` takes them."""
    found = {*PROGRAMS.names(), *aliases()}
    return found | {f"{n}@{r}" for n in PROGRAMS.names() for r in PROGRAMS[n].releases}


def quoted(text: str) -> set[str]:
    """The strings of a module's code, without its docstrings."""
    tree = ast.parse(text)
    scopes = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, scopes) and node.body and isinstance(node.body[0], ast.Expr)
    }
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    }


def test_no_module_branches_on_a_program() -> None:
    assert {"deepspeed", "deepspeed@2021", "torchtune", "trl"} <= names()
    asked = names() - OTHER_MEANINGS.keys()
    wrong = {
        module.as_posix(): sorted(found)
        for module in modules()
        if not module.as_posix().startswith(tuple(SPEAK_OF_PROGRAMS))
        if (found := quoted((ROOT / module).read_text("utf-8")) & asked)
    }
    assert not wrong


def test_no_module_is_named_after_a_program_or_a_year() -> None:
    programs = {n.partition("@")[0] for n in names()} - OTHER_MEANINGS.keys()
    stems = {n.partition(".")[0].replace("-", "_") for n in programs}
    wrong = [
        module.as_posix()
        for module in modules()
        if not module.as_posix().startswith("simcore/strategy/dialects/")
        if module.stem in stems or re.search(r"(?<!\d)20[12]\d(?!\d)", module.stem)
    ]
    assert not wrong


def identifiers(tree: ast.AST) -> set[str]:
    """Names of variables, arguments, functions, classes and attributes."""
    kinds = {ast.Name: "id", ast.arg: "arg", ast.keyword: "arg", ast.Attribute: "attr",
             ast.FunctionDef: "name", ast.ClassDef: "name"}  # fmt: skip
    found = (getattr(n, kinds[type(n)]) for n in ast.walk(tree) if type(n) in kinds)
    return {name.lower() for name in found if name}


def test_no_name_in_code_is_a_programs() -> None:
    """A mechanism is named after what it does; its users are records."""
    # transformers is imported, as a library
    asked = {*PROGRAMS.names()} - OTHER_MEANINGS.keys() - {"transformers"} | {"megatron"}
    wrong = {
        (module.as_posix(), name)
        for module in modules()
        if not module.as_posix().startswith(tuple(SPEAK_OF_PROGRAMS))
        for name in identifiers(parsed(module))
        if asked & set(name.split("_"))
    }
    assert not wrong
