"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from simcore.cli import names


def option(flag: str, metavar: str, text: str, complete: names.Completer | None = None) -> Any:
    """An option with a name for its value and completion."""
    return typer.Option(
        flag, metavar=metavar, help=text, autocompletion=complete, show_default=False
    )


#: What is trained, and where the answer goes.
MODEL = Annotated[
    str | None, option("--model", "NAME", "What to train (needed).", names.models)
]  # fmt: skip
AS_JSON = Annotated[bool, typer.Option("--json", help="The answer as JSON.")]

#: Prices of GPU-hours.
PRICE = Annotated[
    list[str] | None, option("--price", "GPU=DOLLARS", "Price of a GPU and hour: H100=2.5.")
]
PRICES = Annotated[
    str | None,
    option("--prices", "LIST", "One price list only: runpod, lambda, akash.", names.price_lists),
]

#: What fails, and what a checkpoint costs: read by ``cli.goodput.reliability``.
FAILURES = Annotated[
    str | None,
    option("--failures", "RATE", "Failures a GPU and hour; 0: none. Default: Llama 3's 2e-5."),
]
CHECKPOINT_BW = Annotated[
    str | None, option("--checkpoint-bw", "RATE", 'All ranks together: "50 GB/s".')
]
CHECKPOINT_EVERY = Annotated[
    str | None, option("--checkpoint-every", "TIME", "20min; default: the best interval.")
]
RESTART = Annotated[str | None, option("--restart", "TIME", "After a failure: 10min (default).")]
STRAGGLERS = Annotated[
    str | None,
    option("--stragglers", "P:SLOWER", "Share of slow nodes, and by how much: 0.01:0.2."),
]

#: Of the commands over grids: words of ``simcore.api`` that have no option of their own.
WITH = Annotated[
    list[str] | None,
    option("--with", "WORD=VALUE", "A word of Python's `predict` for all points: overlap=none, "
           "prefetch-blocks=2."),
]  # fmt: skip

#: What a log of nccl-tests leaves out: words of ``calibrate.nccl_groups.Said``.
LOG_GPUS = Annotated[
    str | None, option("--gpus", "CLUSTER", "Of nccl-tests, where its log does not tell.",
                       names.cluster),
]  # fmt: skip
LOG_NODE = Annotated[
    str | None, option("--node", "NAME", "Of nccl-tests: the node preset.", names.nodes)
]
LOG_NETWORK = Annotated[
    str | None, option("--network", "LINK", "Of nccl-tests: 8xib-ndr.", names.networks)
]
LOG_COLLECTIVE = Annotated[
    str | None, option("--collective", "NAME", "Of nccl-tests, where its log does not tell.")
]


_SWITCHES: dict[str, Any] = {
    "yes": True, "true": True, "on": True, "no": False, "false": False, "off": False,
}  # fmt: skip


def fixed_words(texts: Iterable[str], problems: list[str]) -> dict[str, Any]:
    """``--with overlap=none`` texts as words of all points; what is wrong joins ``problems``."""
    from simcore.base.errors import UnknownName
    from simcore.planning.space import FIXED

    known = [w for w in FIXED if w not in ("calibration", "inputs", "settings")]
    found: dict[str, Any] = {}
    for text in texts:
        word, equals, value = text.partition("=")
        key, value = word.strip().replace("-", "_"), value.strip()
        if not equals or not value:
            problems.append(f"--with {text!r} is not WORD=VALUE, such as overlap=none")
        elif key not in known:
            problems.append(str(UnknownName("word", word, [w.replace("_", "-") for w in known])))
        else:
            found[key] = int(value) if value.isdigit() else _SWITCHES.get(value.lower(), value)
    return found
