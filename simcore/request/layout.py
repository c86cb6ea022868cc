"""What the options of a job say of dividing its model: the layout, and the routing to experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from simcore.base.errors import InvalidConfig, UnknownName
from simcore.step.schedules import SCHEDULES
from simcore.strategy.layout import (
    BALANCED,
    DEGREES,
    DISPATCHERS_CALLED,
    CpComm,
    Dispatcher,
    Layout,
    Routing,
)
from simcore.strategy.options.values import on_or_off, read_options
from simcore.workload.models import ModelRecord, Scalar
from simcore.workload.resolve import ModelSource


def layout_of(options: Mapping[str, Any], problems: list[str] | None = None) -> Layout:
    """The layout that the options describe; degrees that are not given are 1.

    Where the size of every stage is given, their number sets pp. Unknown names are appended to
    ``problems`` if that is given, so that the rest of the layout can still be checked. Raises
    InvalidConfig, and UnknownName if ``problems`` is None.
    """
    degrees = {k: int(options[k]) for k in DEGREES if options.get(k) is not None}
    stages = ""
    if options.get("stages"):
        from simcore.strategy.cuts import normalised, stages_told

        stages = normalised(str(options["stages"]))
        if "pp" not in degrees and (stated := stages_told(stages)) is not None:
            degrees["pp"] = stated
    sequence: bool | str | None = options.get("sequence_parallel")
    try:
        cut = sequence is None or on_or_off("sequence-parallel", sequence)
    except InvalidConfig as wrong:
        if problems is None:
            raise
        problems += wrong.violations
        cut = True

    def one_of(kind: str, names: Sequence[str], also: Mapping[str, str] | None = None) -> Any:
        """The named value of an option, by default its first; ``also``: other spellings."""
        if not (stated := options.get(kind)):
            return names[0]
        name = str(stated).strip().lower()
        name = (also or {}).get(name, name)
        if name in names:
            return name
        error = UnknownName(kind.replace("_", "-"), name, names)
        if problems is None:
            raise error
        problems.append(str(error))
        return names[0]

    return Layout(
        **degrees,
        sequence_parallel=cut,
        schedule=one_of("schedule", tuple(SCHEDULES)),
        expert_tp=int(options.get("expert_tp") or 1),
        dispatcher=one_of("dispatcher", get_args(Dispatcher), DISPATCHERS_CALLED),
        cp_comm=one_of("cp_comm", get_args(CpComm)),
        stages=stages,
        vpp_group=int(options.get("vpp_group") or 1),
        deferred_heads=int(options.get("deferred_heads") or 0),
    )


#: Strategies that gather or reduce a layer's parameters or gradients in every micro-batch.
_EVERY_MICRO_BATCH = ("zero2", "zero3")
#: Default strategy of the data ranks where a layout divides the model: shards the optimizer only.
BESIDE_CUTS = "zero1"


def usual_strategy(own: str, layout: Layout, shards_beside_tp: bool = False) -> str:
    """The strategy where none is given: the model's own, unless tp or pp divides the model.

    With tp or pp it is Megatron's distributed optimizer (Narayanan et al. 2021;
    megatron/core/distributed). ``shards_beside_tp``: the program shards weights of tensor ranks
    too. DeepSpeed's pipeline refuses ZeRO-2 and -3 (runtime/pipe/engine.py), and torchtitan does
    not shard weights again after a pipeline's forward (parallelize: reshard_after_forward).
    """
    if own not in _EVERY_MICRO_BATCH or (shards_beside_tp and layout.pp == 1):
        return own
    return BESIDE_CUTS if max(layout.tp, layout.pp) > 1 else own


def strategy_note(named: str | None, own: str, usual: str) -> tuple[str, ...]:
    """A sentence where the default strategy is another than the model's own."""
    if named or own == usual:
        return ()
    return (f"strategy: {usual}, as Megatron uses with tp or pp; without these the model's {own}",)


def context_note(layout: Layout, named: object) -> tuple[str, ...]:
    """A sentence where the request names a context exchange but has no context ranks."""
    if named is None or layout.cp > 1:
        return ()
    return (f"cp-comm {layout.cp_comm} changes nothing: cp is 1",)


_WORDS = ("expert_imbalance", "expert_capacity", "expert_padding")


def experts_of(record: ModelSource) -> tuple[int, int]:
    """(routed experts of a layer, experts that each token goes to)."""
    config = record.settings({}) if isinstance(record, ModelRecord) else {}
    experts = int(config.get("experts", 0) or 0)
    return experts, int(config.get("top_k", 0) or 0) or min(2, experts)


def routing_of(record: ModelSource | None, options: Mapping[str, Any]) -> Routing:
    """The routing that the options describe. Raises InvalidConfig with every violation."""
    given = {w: v for w in _WORDS if (v := options.get(w)) is not None}
    if not given:
        return BALANCED
    found, problems = read_options(given)
    if "expert_padding" in given and "expert_capacity" not in given:
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
        padding=found.get("expert_padding", True),
    )


def _room_of(record: ModelSource) -> int:
    """Tokens of a sequence for which each expert has slots where the model fixes that; else 0."""
    config = record.settings({}) if isinstance(record, ModelRecord) else {}
    return int(config.get("expert_capacity", 0) or 0)


def routing_settings(
    record: ModelSource | None, routing: Routing, layout: Layout
) -> dict[str, Scalar]:
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
    if routing == BALANCED and (slots := _room_of(record)):
        return (f"routing of experts: balanced, at most {slots} tokens of a sequence per expert",)
    if routing == BALANCED:
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
