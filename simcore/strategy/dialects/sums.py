"""What follows from several arguments of a program together and no formula of a record can say.

Each function is called for the records of ``programs_db/dialects/lines`` that name it; their
``other.NAME`` facts hold the arguments.
"""

from __future__ import annotations

import math
import re
from pathlib import PurePath
from typing import Any

from simcore.base.errors import SimcoreError
from simcore.strategy.dialects.line_record import fold_key
from simcore.strategy.dialects.lines import ODD
from simcore.strategy.dialects.reading import Reading, Table, flat
from simcore.strategy.dialects.source import beside, toml_table

#: Products of a layer by the parts that switches name.
_PARTS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "projection": "o_proj",
          "mlp": "gate_proj,up_proj,down_proj"}  # fmt: skip
#: A file of weights or of a network, named after its model: NAME.pt, NAME.yaml.
_WEIGHTS = re.compile(r"^([\w.-]+?)\.(?:pt|yaml|py)$")


def _number(reading: Reading, name: str) -> int | None:
    value = reading.context.get(name)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@ODD.register("weights and devices")
def of_weights_and_devices(reading: Reading, _table: Table) -> None:
    """A model is named after its file of weights or of a network; devices are a list of numbers."""
    name = str(reading.said("model") or "")
    if match := _WEIGHTS.match(PurePath(name).name):
        reading.say("model", match[1], reading.key_of("model"))
    devices = str(reading.context.get("other.devices", ""))
    if listed := [d for d in devices.strip("[]").split(",") if d.strip().isdigit()]:
        reading.say("nproc_per_node", len(listed), reading.key_of("other.devices"))


@ODD.register("file of data sets")
def of_data_sets(reading: Reading, table: Table) -> None:
    """The file that describes the data has batch and resolution.

    Values of its first [[datasets]] replace those of [general]. Sides are width, height. Of
    ``resolutions`` and ``frame_buckets`` the largest count.
    """
    sides = reading.context.get("other.sides")
    name = reading.context.get("other.dataset")
    key = reading.key_of("other.sides")
    if name is not None:
        try:
            data = toml_table(beside(reading.source, str(name)))
        except SimcoreError:
            reading.approximate(f"{name}", "is not at hand: what it says of batch and resolution "
                                "is not known, give --micro-batch and --resolution")  # fmt: skip
            data = {}
        listed = data.get("datasets")
        first = listed[0] if isinstance(listed, list | tuple) and listed else {}
        found = {**_mapping(data.get("general")), **_mapping(first)}
        if isinstance(listed, list | tuple) and len(listed) > 1:
            reading.approximate(f"{name}", "has several data sets: the first one counts")
        if (batch := found.get("batch_size")) is not None:
            reading.say("micro_batch", reading.whole(f"batch_size of {name}", batch), str(name))
        found |= {k: data[k] for k in ("resolutions", "frame_buckets") if k in data}
        frames = found.get("target_frames", found.get("frame_buckets"))
        if (most := _largest(frames)) is not None and most > 1:
            reading.say("frames", most, str(name))
        stated = found.get("resolution", _largest(found.get("resolutions")))
        if stated is not None:
            sides, key = stated, f"resolution of {name}"
    if sides is not None:
        numbers = sides if isinstance(sides, list | tuple) else str(sides).strip("()").split(",")
        turned = [str(n).strip() for n in reversed(list(numbers))]
        same = len(set(turned)) == 1
        reading.say("resolution", turned[0] if same else "x".join(turned[:2]), key)


@ODD.register("axes of a mesh")
def of_axes(reading: Reading, _table: Table) -> None:
    """A device's batch, and the axes of a mesh, of which -1 takes the devices that are left.

    The batch of a device times all devices is that of a micro-step. ``ici`` axes are within a
    slice, ``dcn`` axes over slices.
    """
    per_device = reading.context.get("other.per_device")
    ranks = math.prod(_number(reading, degree) or 1 for degree in ("tp", "cp", "pp"))
    if isinstance(per_device, int | float):
        batch, key = per_device * ranks, reading.key_of("other.per_device")
        if batch == int(batch) and batch >= 1:
            reading.say("micro_batch", int(batch), key)
        else:
            reading.refuse(f"{key} = {per_device:g}", "is no whole number of samples of a replica",
                           "micro_batch")  # fmt: skip
    within, over = _number(reading, "other.ici_fsdp"), _number(reading, "other.dcn_fsdp")
    # A second axis cuts the other dimension of the same weights.
    other = _number(reading, "other.ici_fsdp_transpose") or 1
    within = -1 if -1 in (within, other) else (within or 1) * other
    replicas = [_number(reading, f"other.{place}_data") for place in ("ici", "dcn")]
    key = reading.key_of("other.ici_fsdp")
    reading.say("strategy", "ddp" if within == over == 1 else "zero3", key)
    if (within or 0) > 1 and (over or 0) >= 1 and any(n not in (1, None, -1) for n in replicas):
        reading.say("shard_ranks", (within or 1) * (over or 1), key)


@ODD.register("keys below trainer")
def of_trainer(_reading: Reading, table: Table) -> None:
    """Keys below ``trainer`` are read as if they stood at the top level."""
    for key in [k for k in table.given if k.startswith("trainer.")]:
        table.put(key.removeprefix("trainer."), table.take(key))
        del table.given[key]


@ODD.register("number or list of devices")
def of_devices(reading: Reading, _table: Table) -> None:
    """Devices are a number, or a list of device numbers."""
    devices = str(reading.context.get("other.devices", "")).strip("[]")
    if not devices:
        return
    listed = [d for d in devices.split(",") if d.strip()]
    several = len(listed) > 1
    reading.say("nproc_per_node", len(listed) if several else reading.whole("devices", devices),
                reading.key_of("other.devices"))  # fmt: skip


@ODD.register("adapters by part")
def of_named_parts(reading: Reading, _table: Table) -> None:
    """Products have adapters by a switch for each part of a layer."""
    said = reading.context
    on = [names for part, names in _PARTS.items() if said.get(f"other.on_{part}") is True]
    reading.say("lora_targets", ",".join(on), reading.key_of("other.on_query"))


@ODD.register("first process")
def of_first_process(reading: Reading, table: Table) -> None:
    """Keys of the first process of a job are read as if they stood at the top level.

    Of its data sets the first counts, and of several resolutions the largest.
    """
    processes = table.take("config.process")
    first = _mapping(processes[0]) if isinstance(processes, list) and processes else {}
    sets = first.get("datasets")
    data = dict(_mapping(sets[0])) if isinstance(sets, list) and sets else {}
    if (side := _largest(data.get("resolution"))) is not None:
        data["resolution"] = side
    for key, value in flat({**first, "datasets": data}):
        table.put(fold_key(key), value, key)
    if isinstance(processes, list) and len(processes) > 1:
        reading.approximate("config.process", "has several processes: the first one counts")


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _largest(value: Any) -> int | None:
    numbers = value if isinstance(value, list | tuple) else [value]
    return max((n for n in numbers if isinstance(n, int)), default=None)
