"""Finds the option or command that is meant by a word of another program."""

from __future__ import annotations

from collections.abc import Collection

from simcore.base.errors import nearest
from simcore.strategy.options import called

#: Least similarity of a word and an option, or its other name, that is proposed for it.
_ALIKE_FRAC = 0.7
#: Other names of options that only some commands have, in the format of ``called()``.
_OF_SOME = {
    "objective": "by rank-by minimise minimize",
    "by": "objective rank-by sort sort-by",
    "deadline": "time until",
    "budget": "max-cost dollars",
    "failures": "mtbf failure-rate mttf",
}


#: Other names of commands.
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
    """The command that ``typed`` probably means: by another name, or the nearest; or empty."""
    name = typed.lower()
    for ours, theirs in _COMMANDS.items():
        if name in theirs.split():
            return ours
    return next(iter(nearest(name, list(known), 1)), "")


def option_meant(typed: str, known: Collection[str]) -> str:
    """The known option that ``typed`` probably means (``--micro-batch`` for ``--batch-size``).

    A name that another program uses comes first, then the one option that begins with what is typed
    (``--seq-len`` for ``--seq``), then the nearest spelling. Empty where there is none.
    """
    name = typed.lstrip("-").replace("_", "-").lower()
    for ours, theirs in (*called().items(), *_OF_SOME.items()):
        if name in theirs.split() and (not ours or f"--{ours.split()[0]}" in known):
            return ours and f"--{ours}"
    long = [k.lstrip("-") for k in known if k.startswith("--")]
    for start in (f"{name}-", name):
        begun = [option for option in long if option.startswith(start)]
        if len(begun) == 1:
            return f"--{begun[0]}"
    means = {
        o: ours.split()[0] for ours, theirs in called().items() if ours for o in theirs.split()
    }
    means = {o: ours for o, ours in means.items() if ours in long} | {o: o for o in long}
    near = nearest(name, list(means), 1, _ALIKE_FRAC)
    return f"--{means[near[0]]}" if near and len(near[0]) > 2 else ""
