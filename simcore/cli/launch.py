"""``--launch`` and ``--emit``: reads and writes launch files of other programs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from simcore.base.errors import InvalidConfig, SimcoreError, UnknownName, UsageError
from simcore.cli.output import complain, write, writing
from simcore.request.inputs import DESCRIBED
from simcore.strategy.dialects import DIALECTS, Launch, read_launch

if TYPE_CHECKING:
    from simcore.api import Prediction
    from simcore.request.emit import LaunchFile


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
    from simcore.workload.resolve import resolve_model
    from simcore.workload.settings import UntrustedName

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
        complain(f"WARNING: model {name}, by {by}: give --model for another one")
    if not name and (refused := [u.text for u in read.unsupported if u.word in {None, "model"}]):
        problems += refused
        return None
    if not name:
        script = read.other.get("script", "") if read.dialect in DIALECTS else ""
        why = (f"{script} is no script that is known, and its flags name no model" if script
               else "the launch file does not name it")  # fmt: skip
        problems.append(f"--model is missing: name one of `simcore list models` ({why})")
        return None
    try:
        resolve_model(name)
    except SimcoreError as err:
        with suppress(SimcoreError):  # programs of a vision library name its models alone
            resolve_model(own := f"{read.software}:{name}")
            return UntrustedName(own)
        problems.append(f"the launch file trains {name}: {err}: give --model, or its config.json")
        return None
    return UntrustedName(name)


def _model_called(read: Launch) -> tuple[str, str] | None:
    """A known model that the launch file hints at, and where it does; None where nothing does.

    Hints are arguments of an unknown script, and names of the program's own configuration files
    that are not at hand, such as ``llama3_1/8B_full``.
    """
    from simcore.workload.models import MODELS

    for hint in read.model_hints:
        if name := _known(hint):
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
    for file in read.absent_files:  # of a vision library
        if re.search(r"\d", stem := PurePath(file).stem) and (name := _known(stem)):
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


def folder_problems(folder: Path | None) -> list[str]:
    """Error messages about ``--save-dir``."""
    if folder is None:
        return []
    if folder.exists() and not folder.is_dir():
        return [f"--save-dir {str(folder)!r} is a file: name a folder"]
    return []


def usual_dialect(model: str, gpus: str, options: Mapping[str, Any]) -> str:
    """The dialect of the job's program, else the one that states most of it, for a folder where
    none is named.
    """
    from simcore import api
    from simcore.strategy.dialects.runnable import USERS, program_of, writes_for

    software, left = options.get("software"), dict[str, int]()
    for dialect in api.choices()["emit"]:
        if writes_for(dialect, software):
            with suppress(SimcoreError):  # it cannot express this job
                left[dialect] = len(api.launch_file(dialect, model, gpus, **options).left)
    if not left:
        raise UsageError("no program's launch file can express this job: --emit says why")
    own = program_of(software)
    return own if own in left and own != USERS else min(left, key=lambda dialect: left[dialect])


def write_launch(
    dialect: str, model: str, gpus: str, options: Mapping[str, Any],
    folder: Path | None = None, answer: Prediction | None = None,
) -> None:  # fmt: skip
    """Print the predicted job as a launch file, and on standard error what the file leaves out.

    With ``folder`` and the ``answer`` it is written there, with a script that starts it and the
    predicted figures. Raises InvalidConfig that lists everything that the format cannot express.
    """
    from simcore import api

    made = api.launch_file(dialect, model, gpus, **options)
    left = made.left
    if folder is None or answer is None:
        write(made.text)
    else:
        left = _write_folder(folder, made, answer, model, gpus, options)
    if left:
        complain(f"note: not in this file, set them when you launch: {', '.join(left)}")
    if made.implied:
        words = " ".join(f"--{word}" for word in made.implied)
        complain(f"note: the program that reads this file is predicted with {words}")


def _write_folder(
    folder: Path, made: LaunchFile, answer: Prediction, model: str, gpus: str,
    options: Mapping[str, Any],
) -> tuple[str, ...]:  # fmt: skip
    """Write the folder; return the options that it does not state."""
    from simcore.cli.options import command_of
    from simcore.strategy.dialects.runnable import OF_SCRIPT, SCRIPT

    said = tuple(word.replace("_", "-") for word in OF_SCRIPT)
    started = SCRIPT in made.files
    left = tuple(w for w in made.left if not (started and w.partition(" ")[0] in said))
    first = SCRIPT if started else next(iter(made.files))
    batch = "#SBATCH" in made.files[first]
    again = f"simcore predict --model {shlex.quote(model)} --gpus {shlex.quote(gpus)}"
    words = [w for option in left for w in _as_flag(option)]
    page = readme(
        answer, made, left,
        start=f"{'sbatch' if batch else 'bash'} {SCRIPT}" if started else "",
        commands=(command_of(model, gpus, options), " ".join([again, "--launch", first, *words])),
    )  # fmt: skip
    with writing("--save-dir", folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {**made.files, "README.md": page}.items():
            (folder / name).write_text(text, encoding="utf-8")
    complain(f"job in {folder}: {', '.join([*made.files, 'README.md'])}")
    return left


def _as_flag(option: str) -> tuple[str, str]:
    name, _, value = option.partition(" ")
    return f"--{name}", shlex.quote(value)


def readme(
    answer: Prediction, made: LaunchFile, left: Sequence[str], *, start: str,
    commands: tuple[str, str],
) -> str:  # fmt: skip
    """The page of a folder: how it is started, what is predicted of it, what it does not state."""
    from simcore import __version__
    from simcore.report.text import render

    by, again = commands
    lines = [
        "# A predicted job",
        "",
        f"Files: {', '.join(f'`{name}`' for name in made.files)}.",
        "",
    ]
    if start:
        lines += ["```sh", start, "```", "", "Arguments of the script go to the program. Not here, "
                  "because no prediction gives them: the learning rate and its schedule, data, "
                  "checkpoints, the number of steps."]  # fmt: skip
    if left:
        lines += ["", "Predicted, but not stated by these files: set them yourself.", "",
                  *(f"- {word}" for word in left)]  # fmt: skip
    lines += ["", f"## Predicted by simcore {__version__}", ""]
    if by:
        lines += ["```sh", by, "```", ""]
    lines += ["```text", render(answer).rstrip(), "```", "",
              "What the files say, with what they do not, is predicted by", "",
              "```sh", again, "```"]  # fmt: skip
    if made.implied:
        said = " ".join(f"--{word}" for word in made.implied)
        lines += ["", f"There the program is the one that reads the files: `{said}`."]
    return "\n".join(lines) + "\n"
