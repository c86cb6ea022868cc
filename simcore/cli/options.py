"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from simcore.cli import names
from simcore.strategy.options import OPTIONS

#: Options that ``--with`` does not accept: files, and the node, which has a flag.
_NOT_WITH = ("calibration", "launch", "node")
#: Other words for the two values of a switch.
_SAME = {"yes": "on", "true": "on", "no": "off", "false": "off"}


def option(flag: str, metavar: str, text: str, complete: names.Completer | None = None) -> Any:
    """An option of a command: flag, placeholder of its value, help text and completion."""
    return typer.Option(
        flag, metavar=metavar, help=text, autocompletion=complete, show_default=False
    )


#: The model, and the format of the answer.
MODEL = Annotated[
    str | None, option("--model", "NAME", "Model to train (needed).", names.models)
]  # fmt: skip
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
    option("--prices", "LIST", "Use one price list only: runpod, lambda, akash.",
           names.price_lists),
]  # fmt: skip

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

#: What a log of nccl-tests may not contain: arguments of ``calibrate.nccl_groups.Said``.
LOG_GPUS = Annotated[
    str | None,
    option("--gpus", "CLUSTER", "nccl-tests: cluster, if the log does not name it.",
           names.cluster),
]  # fmt: skip
LOG_NODE = Annotated[str | None, option("--node", "NAME", "nccl-tests: node preset.", names.nodes)]
LOG_NETWORK = Annotated[
    str | None, option("--network", "LINK", "nccl-tests: network, 8xib-ndr.", names.networks)
]
LOG_COLLECTIVE = Annotated[
    str | None,
    option("--collective", "NAME", "nccl-tests: collective, if the log does not name it."),
]


def fixed_words(texts: Iterable[str], problems: list[str]) -> dict[str, Any]:
    """The options of all points, from texts of ``--with`` such as ``overlap=none``.

    Error messages are added to ``problems``.
    """
    from simcore.base.errors import UnknownName

    known = [
        o.word for o in OPTIONS.typed().values()
        if o.axis is None and not o.repeated and o.name not in _NOT_WITH
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
