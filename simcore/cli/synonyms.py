"""Options by the names that other programs give them."""

from __future__ import annotations

from collections.abc import Collection

from simcore.base.errors import nearest
from simcore.strategy.options.synonyms import called

#: As ``called()``, of options that some commands have.
_OF_SOME = {
    "objective": "by rank-by minimise minimize",
    "by": "objective rank-by sort sort-by",
    "deadline": "time until",
    "budget": "max-cost dollars",
    "failures": "mtbf failure-rate mttf",
}


#: Commands likewise: what is written instead.
_COMMANDS = {
    "predict": "estimate run simulate time memory fits",
    "predict --explain TERM": "explain why",
    "compare": "versus vs diff",
    "sweep": "scan grid scale scaling search",
    "plan": "cost optimise optimize budget recommend",
    "calibrate": "fit benchmark bench measure",
    "validate": "check evaluate errors",
    "report": "html",
    "show": "info describe",
    "list gpus": "gpus gpu devices",
    "list models": "models model",
    "serve": "web ui server",
}


def command_meant(typed: str, known: Collection[str]) -> str:
    """What an unknown command may be: by another name for it, or the nearest; or nothing."""
    name = typed.lower()
    for ours, theirs in _COMMANDS.items():
        if name in theirs.split():
            return ours
    return next(iter(nearest(name, list(known), 1)), "")


def option_meant(typed: str, known: Collection[str]) -> str:
    """``--micro-batch`` for ``--batch-size``: what of the known options is meant; or nothing.

    Another program's name comes first, then the nearest in letters, dashes apart.
    """
    name = typed.lstrip("-").replace("_", "-").lower()
    for ours, theirs in (*called().items(), *_OF_SOME.items()):
        if name in theirs.split() and (not ours or f"--{ours.split()[0]}" in known):
            return ours and f"--{ours}"
    long = [k.lstrip("-") for k in known if k.startswith("--")]
    return next((f"--{near}" for near in nearest(name, long, 1) if len(near) > 2), "")
