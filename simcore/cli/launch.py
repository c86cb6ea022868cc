"""``--launch`` and ``--emit``: reads and writes launch files of other programs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from simcore.base.errors import InvalidConfig, SimcoreError, UnknownName
from simcore.cli.output import complain, write
from simcore.request.inputs import DESCRIBED
from simcore.strategy.dialects import DIALECTS, Launch, read_launch


def emit_problems(dialect: str, as_json: bool, explain: str | None) -> list[str]:
    """Error messages about ``--emit``."""
    found = []
    if dialect not in DIALECTS:
        found.append(str(UnknownName("dialect", dialect, DIALECTS)))
    if as_json or explain is not None:
        other = "--json" if as_json else "--explain"
        found.append(f"--emit and {other} both write standard output: drop one")
    return found


def model_in(launch: str, problems: list[str]) -> Any:
    """The model that a launch file names or describes; None, with a message, if it does neither."""
    from simcore.workload.permission import UntrustedName
    from simcore.workload.resolve import resolve_model

    try:
        read = read_launch(launch)
    except SimcoreError as err:
        problems.append(str(err))
        return None
    name = read.model or (DESCRIBED if read.described else "")
    if name == DESCRIBED:
        return name
    if not name and (found := _model_called(read)):
        name, by = found
        complain(f"WARNING: model {name}, by {by}: --model says otherwise")
    if not name:
        problems.append("--model is missing: name one of `simcore list models` "
                        "(the launch file does not name it)")  # fmt: skip
        return None
    try:
        resolve_model(name)
    except SimcoreError as err:
        problems.append(f"the launch file trains {name}: {err}: give --model, or its config.json")
        return None
    return UntrustedName(name)


def _model_called(read: Launch) -> tuple[str, str] | None:
    """(known model, what calls it so): an argument of an unknown script, or the name of a file.

    Files are those of the program that are not at hand, such as ``llama3_1/8B_full``.
    """
    from simcore.workload.models import MODELS

    hint = read.model_hint
    if hint and (name := _known(hint)):
        return name, f"{hint} of an unknown script"
    for file in read.absent_files:
        path = PurePath(file)
        stems = [path.name.removesuffix(".yaml").removesuffix(".yml").removesuffix(".toml")]
        while "_" in stems[-1]:
            stems.append(stems[-1].rpartition("_")[0])
        for stem in stems:
            for text in (f"{path.parent.name}-{stem}" if path.parent.name else stem, stem):
                name = re.sub(r"(?<=\d)_(?=\d)", ".", text, count=1)
                if re.search(r"[a-zA-Z]\w*\W*\d", name) and MODELS.path(name) is not None:
                    return name, f"the name of {file}"
    return None


def _known(text: str) -> str:
    """The model of models_db, or of a vision library, of that name; "" where there is none."""
    from simcore.workload.resolve import resolve_model

    for name in (text, f"timm:{text}", f"torchvision:{text}"):
        try:
            resolve_model(name)
        except SimcoreError:
            continue
        return name
    return ""


def warn_unknown(launch: str, *, strict: bool = False) -> None:
    """Warn on standard error about keys of a launch file that are unknown or not followed.

    Raises InvalidConfig with them instead if ``strict``.
    """
    read = read_launch(launch)
    odd = (*read.unknown, *read.approximated)
    if strict and odd:
        raise InvalidConfig(list(odd))
    for sentence in odd:
        complain(f"WARNING: {sentence}")


def write_launch(dialect: str, model: str, gpus: str, options: Mapping[str, Any]) -> None:
    """Print the predicted job as a launch file, and on standard error what the file leaves out.

    Raises InvalidConfig that lists everything that the format cannot express.
    """
    from simcore import api

    made = api.launch_file(dialect, model, gpus, **options)
    write(made.text)
    if made.left:
        complain(f"note: not in this file, set them when you launch: {', '.join(made.left)}")
    if made.implied:
        words = " ".join(f"--{word}" for word in made.implied)
        complain(f"note: the program that reads this file is predicted with {words}")
