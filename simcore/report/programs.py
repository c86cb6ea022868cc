"""A training program or optimizer as text and data: what is known, and where that is from."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from simcore.strategy.optimizers import implementation_of, optimizer_named
from simcore.strategy.programs import PROGRAMS, StatedFact, facts_of, program_named
from simcore.strategy.programs.mechanisms import PLAIN

_WIDTH = 100
#: What is shown of an optimizer, where it is not 0.
_FIGURES = ("state_bytes", "traffic_elems", "temporary_elems", "kernels", "kernels_per_tensor",
            "syncs_each_tensor", "own_state_width", "by_shape", "for_the_rest")  # fmt: skip


def program_dict(name: str) -> dict[str, Any]:
    """A program's names, releases and facts in effect, each with its source. Raises UnknownName."""
    program = program_named(name)
    shown: dict[str, Any] = {"name": program.name, "meaning": program.meaning}
    if program is not PLAIN:
        record = PROGRAMS[program.name.partition("@")[0]]
        shown |= {
            "aliases": list(record.aliases),
            "releases": {r: v.meaning for r, v in record.releases.items()},
        }
    return {**shown, "facts": in_effect(name)}


def in_effect(name: str) -> list[dict[str, Any]]:
    """Facts that hold of a program, without those that a later one replaces. Raises UnknownName."""
    held: dict[tuple[str, ...], tuple[StatedFact, Any]] = {}
    for stated in facts_of(name):
        jobs = f" of jobs with {_condition(stated.when)}" if stated.when else ""
        for subject, key, value in stated.values():
            if not key:  # of a subject nothing holds any more
                held = {k: v for k, v in held.items() if k[0] != subject}
            elif isinstance(value, Mapping) and subject == "runs":
                held |= {(subject, key, str(k) + jobs): (stated, v) for k, v in value.items()}
            else:
                held[subject, key] = stated, value
    return [
        {"fact": ".".join(k), "value": value, "source": stated.source, "of": stated.of,
         "note": str(stated.fact.get("note", ""))}
        for k, (stated, value) in held.items() if value is not None
    ]  # fmt: skip


def render_program(name: str) -> str:
    """The same as text: facts of one source stand together."""
    data = program_dict(name)
    lines = [f"{data['name']}: {data['meaning']}"]
    if data.get("aliases"):
        lines += textwrap.wrap("also called " + ", ".join(data["aliases"]), _WIDTH)
    lines += [f"  @{r}  {meaning}" for r, meaning in data.get("releases", {}).items()]
    by_source: dict[tuple[str, str, str], list[str]] = {}
    for fact in data["facts"]:
        key = fact["source"], fact["of"], fact["note"]
        by_source.setdefault(key, []).append(f"{fact['fact']} = {_shown(fact['value'])}")
    for (source, of, note), facts in by_source.items():
        lines += ["", *(f"  {f}" for f in facts)]
        lines += [f"      {x}" for x in textwrap.wrap(f"{source} ({of})", _WIDTH - 6)]
        lines += [f"      {x}" for x in textwrap.wrap(note, _WIDTH - 6)] if note else []
    return "\n".join(lines) + "\n"


def optimizer_dict(name: str) -> dict[str, Any]:
    """An optimizer's figures a parameter, with their source. Raises UnknownName."""
    optimizer = optimizer_named(name)
    record, word = implementation_of(optimizer)
    described = record.implementations[word] if word else record
    return {
        **asdict(optimizer), "source": described.source, "aliases": list(described.aliases),
        "implementations": {k: v.meaning for k, v in record.implementations.items()},
    }  # fmt: skip


def render_optimizer(name: str) -> str:
    """The same as text."""
    data = optimizer_dict(name)
    lines = textwrap.wrap(f"{data['name']}: {data['meaning']}", _WIDTH)
    lines += [f"  --optimizer-impl {k}: {v}" for k, v in data["implementations"].items()]
    lines += ["", *(f"  {k} = {_shown(v)}" for k, v in data.items() if k in _FIGURES and v)]
    lines += [f"      {x}" for x in textwrap.wrap(data["source"], _WIDTH - 6)]
    return "\n".join(lines) + "\n"


def _condition(when: Mapping[str, Any]) -> str:
    """The condition of a fact in words: ``arch bert or gnmt, torch <2.0``."""
    texts = []
    for name, wanted in when.items():
        if isinstance(wanted, Mapping):
            texts.append(f"{name} {_condition(wanted)}")
        else:
            several = wanted if isinstance(wanted, list | tuple) else [wanted]
            texts.append(f"{name} {' or '.join(map(str, several))}")
    return ", ".join(texts)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_shown(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
