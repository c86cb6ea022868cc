"""The options of commands: those that several share, the job's from the option table, and reading.

The decorator ``takes_job`` gives the options of a job to a command that ends in ``**job``. Values
are read with ``Problems``, so that every mistake in a command is reported at once.
``command_of`` writes a job as a user would type it.
"""

from __future__ import annotations

import inspect
import shlex
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from simcore.base.errors import Problems, UnknownName
from simcore.base.units import parse_quantity
from simcore.strategy.layout import DEGREES
from simcore.strategy.options import (
    OPTIONS,
    Number,
    Option,
    Whole,
    command_words,
    read_options,
    written_out,
)

Command = TypeVar("Command", bound=Callable[..., Any])

#: Options that ``--with`` does not accept: files, and the node, which has a flag.
_NOT_WITH = ("calibration", "fabric", "launch", "node")
#: Other words for the two values of a switch.
_SAME = {"yes": "on", "true": "on", "no": "off", "false": "off"}


def completion(kind: str) -> Callable[[typer.Context, str], list[str]]:
    """A completion of the names of a kind (``cli.names``), looked up when TAB is pressed."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        from simcore.cli.names import completions

        return completions(kind, incomplete, ctx.params)

    return complete


def option(flag: str, metavar: str, text: str, names: str = "") -> Any:
    """An option of a command: flag, placeholder of its value, help text and kind of its names."""
    return typer.Option(
        flag, metavar=metavar, help=text, show_default=False,
        autocompletion=completion(names) if names else None,
    )  # fmt: skip


#: The model, the cluster, and the format of the answer.
MODEL = Annotated[str | None, option("--model", "NAME", "Model to train (needed).", "model")]
AS_JSON = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]

#: For commands that read names of models from files. No file of defaults can set it.
ALLOW_CODE = Annotated[
    bool,
    typer.Option("--allow-code", help="Run Python code (pkg.mod:callable) that a file names."),
]

#: Prices of GPU-hours.
PRICE = Annotated[
    list[str] | None, option("--price", "GPU=DOLLARS", "Price per GPU-hour: H100=2.5.")
]
PRICES = Annotated[
    str | None,
    option("--prices", "LIST", "Use one price list only: runpod, lambda, akash.", "price list"),
]

#: Failures and checkpoints: read by ``cli.goodput.reliability``.
FAILURES = Annotated[
    str | None,
    option("--failures", "RATE", "Failures per GPU and hour; 0: none. Default: 2e-5 (Llama 3)."),
]
CHECKPOINT_BW = Annotated[
    str | None,
    option("--checkpoint-bw", "RATE", 'Checkpoint bandwidth of all ranks together: "50 GB/s".'),
]
CHECKPOINT_EVERY = Annotated[
    str | None,
    option("--checkpoint-every", "TIME", "Time between checkpoints: 20min; default: the best."),
]
RESTART = Annotated[
    str | None, option("--restart", "TIME", "Time to restart after a failure (default 10min).")
]
STRAGGLERS = Annotated[
    str | None,
    option("--stragglers", "P:SLOWER", "Share of slow nodes, and their slowdown: 0.01:0.2."),
]

#: For commands over many jobs: options that are the same for all of them.
WITH = Annotated[
    list[str] | None,
    option("--with", "WORD=VALUE", "An option of `predict` for all points: overlap=none, "
           "prefetch-blocks=2."),
]  # fmt: skip

#: What a log of nccl-tests may not contain: arguments of ``calibrate.nccl.groups.Stated``.
LOG_GPUS = Annotated[
    str | None,
    option("--gpus", "CLUSTER", "nccl-tests: cluster, if the log does not name it.", "cluster"),
]
LOG_NODE = Annotated[str | None, option("--node", "NAME", "nccl-tests: node preset.", "node")]
LOG_NETWORK = Annotated[
    str | None, option("--network", "LINK", "nccl-tests: network, 8xib-ndr.", "network")
]
LOG_COLLECTIVE = Annotated[
    str | None,
    option("--collective", "NAME", "nccl-tests: collective, if the log does not name it."),
]


# -- the options of a job ------------------------------------------------------------------------


def job_words() -> tuple[str, ...]:
    """Names of the command line's options of a job, except its model and its GPUs."""
    return tuple(OPTIONS.typed())


def repeated_words() -> tuple[str, ...]:
    """Names of the options of a job whose flag is repeated for further values."""
    return tuple(o.name for o in OPTIONS.typed().values() if o.repeated)


@lru_cache(maxsize=8)
def _parameters(_version: int, several: bool, run: bool) -> tuple[inspect.Parameter, ...]:
    """The table's options as parameters of a command; ``several``: each takes several values.

    ``run``: with the options of a whole run too.
    """
    chosen = {**(OPTIONS.of_run() if run else {}), **OPTIONS.typed()}
    return tuple(_parameter(option, several) for option in chosen.values())


def _parameter(wanted: Option, several: bool) -> inspect.Parameter:
    metavar = wanted.several if several else wanted.kind.metavar
    names = wanted.name if getattr(wanted.kind, "names", ()) else ""
    info = option(wanted.typed, metavar, wanted.help_text, names)
    kind: Any = list[str] | None if wanted.repeated else str | None
    return inspect.Parameter(
        wanted.name, inspect.Parameter.KEYWORD_ONLY, default=None,
        annotation=Annotated[kind, info],
    )  # fmt: skip


def takes_job(
    only: Collection[str] | None = None, *, axes: bool = False, run: bool = False
) -> Callable[[Command], Command]:
    """A decorator that adds the options of a job to a command that ends in ``**job``.

    ``only``: names of the options to add (default: all); options that the command declares itself
    are not added. ``axes``: whether each option takes a list of values, as in a sweep. ``run``:
    whether the options of a whole run are added too: its length, deadline and prices.
    """

    def decorate(command: Command) -> Command:
        own = get_type_hints(command, include_extras=True)
        first = [
            p.replace(annotation=own[p.name])
            for p in inspect.signature(command).parameters.values()
            if p.kind is not inspect.Parameter.VAR_KEYWORD
        ]

        def sign() -> None:
            parameters = [
                *first,
                *(
                    p
                    for p in _parameters(OPTIONS.version, axes, run)
                    if p.name not in own and (only is None or p.name in only)
                ),
            ]
            command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
            command.__annotations__ = {p.name: p.annotation for p in parameters}

        OPTIONS.when_changed(sign)
        return command

    return decorate


def typed_options(words: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """The options for ``simcore.api``, which reads them, from the arguments of a command."""
    return _given(words, problems, lambda stage: [stage])


def job_options(words: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """``typed_options``, read, for commands that do more than ask ``simcore.api`` for the job.

    For a wrong value the option is None and an error message is added to ``problems``.
    """
    options = typed_options(words, problems)
    read, wrong = read_options(options)
    problems += wrong
    return {name: read.get(name) for name in options}


def run_options(words: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a whole run for ``simcore.api``, those that were given."""
    return {k: v for k in OPTIONS.of_run() if (v := words.get(k)) not in (None, [], ())}


def grid_options(words: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """The axes for ``simcore.api``, from the arguments of a command; ``api`` parses the grids."""
    from simcore.planning.grid import whole_values

    return _given(words, problems, lambda stages: map(str, whole_values("--zero", stages)))


def _given(
    words: Mapping[str, Any], problems: Problems, stages: Callable[[str], Iterable[str]]
) -> dict[str, Any]:
    """The options of a job among a command's arguments; an empty repeated option becomes None.

    ``--zero N`` becomes the strategies that it names; ``stages`` takes its text apart. ``--qlora``
    becomes the options it stands for.
    """
    typed = OPTIONS.typed()
    options = {k: v for k, v in words.items() if k in typed}
    options |= {k: tuple(options[k] or ()) or None for k in repeated_words() if k in options}
    options = problems.attempt(written_out, options) or {**options, "qlora": None}
    zero, strategy = options.pop("zero", None), options.get("strategy")
    if zero is not None and strategy is not None:
        problems.append("give --strategy or --zero, not both")
    elif zero is not None:
        found = [stage.strip() for stage in problems.attempt(stages, zero) or ()]
        wrong = [stage for stage in found if stage not in ("1", "2", "3")]
        problems += [f"--zero must be 1, 2 or 3, not {stage!r}" for stage in wrong]
        strategy = ",".join(f"zero{stage}" for stage in found if stage not in wrong) or None
    return {**options, "strategy": strategy}


def fixed_words(texts: Iterable[str], problems: Problems) -> dict[str, Any]:
    """The options of all points, from texts of ``--with`` such as ``overlap=none``.

    Error messages are added to ``problems``.
    """
    known = [
        o.word for o in OPTIONS.typed().values() if not o.repeated and o.name not in _NOT_WITH
    ]  # fmt: skip
    found: dict[str, Any] = {}
    for text in texts:
        word, equals, value = (part.strip() for part in text.partition("="))
        word = word.replace("_", "-")
        if not equals or not value:
            problems.append(f"--with {text!r} is not WORD=VALUE, such as overlap=none")
        elif word not in known:
            problems.append(str(UnknownName("word", word, known)))
        else:
            found[word.replace("-", "_")] = _SAME.get(value.lower(), value)
    return found


# -- numbers and times ---------------------------------------------------------------------------


def whole(flag: str, text: str | None, problems: Problems, *, least: int = 1) -> int | None:
    """The whole number in ``text``, or None with an error message added to ``problems``."""
    if text is None:
        return None
    kind = getattr(OPTIONS.get(flag.replace("-", "_")), "kind", None)
    binary = isinstance(kind, Whole) and kind.binary
    found: Any = problems.attempt(Whole(least=least, binary=binary).read, f"--{flag}", text)
    return None if found is None else int(found)


def number(flag: str, text: str | None, problems: Problems) -> float | None:
    """The finite number in ``text``, or None with an error message added to ``problems``."""
    return None if text is None else problems.attempt(Number().read, f"--{flag}", text)


def duration(flag: str, text: str | None, problems: Problems) -> float | None:
    """The seconds in a text such as ``20min``, or None with an error message in ``problems``."""
    from simcore.planning.moments import duration_seconds

    return None if text is None else problems.attempt(duration_seconds, f"--{flag}", text)


def seconds(flag: str, text: str | None, problems: Problems) -> float | None:
    """The seconds in a text such as ``0.85``, ``850ms`` or ``1.2 s``, or None with an error."""
    if text is None:
        return None
    plain = text.strip()
    found = problems.attempt(
        parse_quantity, plain if plain[-1:].isalpha() else f"{plain} s", "seconds"
    )
    if found is not None and not 0 < found < float("inf"):
        problems.append(f"--{flag} must be above zero, not {plain}")
    return found


def count(flag: str, text: str | None, problems: Problems) -> float | None:
    """The number in ``text``, which may end in a suffix: 15T, 300B, 2.5M; else as ``number``."""
    return None if text is None else problems.attempt(Number(counts=True).read, f"--{flag}", text)


_WIDTH = 78


def command_of(model: str, gpus: str, options: Mapping[str, Any]) -> str:
    """The command ``simcore predict ...`` in lines of 80 columns; empty if an option has no flag.

    ``options``: keywords of ``simcore.predict``; degrees of 1 and values of None are left out.
    """
    stated = {k: v for k, v in options.items() if v is not None and (k not in DEGREES or v != 1)}
    if any(name not in job_words() for name in stated):
        return ""
    parts = command_words({"model": model, "gpus": gpus, **stated})
    flags = zip(parts[::2], parts[1::2], strict=True)
    words = ["simcore predict", *(f"{flag} {shlex.quote(value)}" for flag, value in flags)]
    # NUL replaces the space between a flag and its value, so that they stay on one line.
    text = " ".join(word.replace(" ", "\0") for word in words)
    lines = textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_long_words=False,
                          break_on_hyphens=False)  # fmt: skip
    return " \\\n".join(lines).replace("\0", " ")
