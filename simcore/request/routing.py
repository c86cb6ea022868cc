"""The routing of experts in a job: rules checked, model settings, and assumptions stated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simcore.base.errors import InvalidConfig
from simcore.strategy.layout import Layout
from simcore.strategy.options.values import on_or_off
from simcore.strategy.routing import EVEN, Routing, factor
from simcore.workload.models import ModelRecord, Scalar
from simcore.workload.resolve import ModelSource

_WORDS = ("expert_imbalance", "expert_capacity", "expert_padding")


def experts_of(record: ModelSource) -> tuple[int, int]:
    """(routed experts of a layer, experts that each token goes to)."""
    config = record.settings({}) if isinstance(record, ModelRecord) else {}
    experts = int(config.get("experts", 0) or 0)
    return experts, int(config.get("top_k", 0) or 0) or min(2, experts)


def expert_groups(config: Mapping[str, Any]) -> tuple[int, int]:
    """(groups of a model's experts, groups among which a token chooses its experts)."""
    return int(config.get("expert_groups", 1)), int(config.get("top_groups", 1))


def routing_of(record: ModelSource | None, options: Mapping[str, Any]) -> Routing:
    """The routing that the options describe. Raises InvalidConfig with every violation."""
    given = {w: v for w in _WORDS if (v := options.get(w)) is not None}
    if not given:
        return EVEN
    problems: list[str] = []
    found: dict[str, float] = {}
    for word in ("expert_imbalance", "expert_capacity"):
        if word in given:
            try:
                found[word] = factor(word.replace("_", "-"), given[word])
            except InvalidConfig as err:
                problems += err.violations
    padding = True
    if "expert_padding" in given:
        try:
            padding = on_or_off("expert-padding", given["expert_padding"])
        except InvalidConfig as err:
            problems += err.violations
        if "expert_capacity" not in given:
            problems.append("expert-padding needs expert-capacity: it fills the slots up to it")
    if record is not None:
        experts, top_k = experts_of(record)
        if experts and _room_of(record):
            problems.append(
                f"{record.name} fixes the capacity of its experts, {_room_of(record)} tokens of a "
                "sequence each, and routes evenly: it takes no routing options"
            )
        elif not experts:
            named = " and ".join(w.replace("_", "-") for w in given)
            problems.append(f"{record.name} has no experts for {named}")
        elif (capacity := found.get("expert_capacity", 1.0)) > (most := experts / top_k):
            problems.append(
                f"expert-capacity {capacity:g} is more than experts / top-k = {most:g}; with "
                f"{most:g} every expert already has a slot for every token"
            )
    if problems:
        raise InvalidConfig(problems)
    return Routing(
        imbalance=found.get("expert_imbalance", 1.0),
        capacity=found.get("expert_capacity"),
        padding=padding,
    )


def _room_of(record: ModelSource) -> int:
    """Tokens of a sequence for which each expert has slots where the model fixes that; else 0."""
    config = record.settings({}) if isinstance(record, ModelRecord) else {}
    return int(config.get("expert_capacity", 0) or 0)


def settings_of(record: ModelSource | None, routing: Routing, layout: Layout) -> dict[str, Scalar]:
    """Model settings that describe the routing and how rows arrive at experts."""
    rows = routing.rows(layout.ep, layout.dispatcher)
    rows_frac = {"expert_rows": rows.computed, "permuted_rows": rows.permuted}
    found: dict[str, Scalar] = {k: v for k, v in rows_frac.items() if v != 1.0}
    routes = record is not None and experts_of(record)[0] > 0
    if layout.ep > 1 and layout.dispatcher == "alltoall" and routes:
        found["regrouped_rows"] = True
    return found


def routing_notes(record: ModelSource, routing: Routing, layout: Layout) -> tuple[str, ...]:
    """Assumptions about the rows of experts, for a model that has experts."""
    if not experts_of(record)[0]:
        return ()
    if routing == EVEN and (slots := _room_of(record)):
        return (f"routing of experts: balanced, at most {slots} tokens of a sequence per expert",)
    if routing == EVEN:
        return ("routing of experts: balanced (--expert-imbalance), no tokens dropped",)
    found: list[str] = []
    rows = routing.rows(layout.ep, layout.dispatcher)
    fullest = routing.fullest(layout.ep)
    if layout.ep == 1 and routing.imbalance > 1.0:
        found.append(
            f"expert-imbalance {routing.imbalance:g} changes nothing: each rank has all experts"
        )
    elif fullest < routing.imbalance:
        found.append(f"expert-imbalance {fullest:g}: one rank of {layout.ep} has all the tokens")
    if routing.capacity is None:
        if fullest > 1.0:
            found.append(
                f"fullest expert rank {rows.computed:g} x the mean rows in every layer: all ranks "
                "wait for it, and the memory shown is its own"
            )
        return tuple(found)
    if routing.padding:
        found.append(
            f"experts compute {routing.capacity:g} x the mean rows, padding included; tokens "
            "beyond are dropped (MFU counts routed tokens, not padding)"
        )
    else:
        found.append(
            f"tokens beyond {routing.capacity:g} x the mean rows of an expert are dropped: fullest "
            f"expert rank {rows.computed:g} x the mean rows"
        )
    return tuple(found)
