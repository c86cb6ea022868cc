"""Which GPU, node and link a calibration's knobs are of: names looked up, misspelt ones told.

Models are not known here: ``engine.knob_models`` says of which there are none.
"""

from __future__ import annotations

from simcore.base.errors import InvalidConfig, UsageError
from simcore.hardware.calibrations import Calibration, Knob
from simcore.hardware.cluster import parse_network
from simcore.hardware.spec import GPUS, NODES

#: What a knob may be of: a word of another kind is looked at by nobody.
_OF = {
    "compute": "gpu", "memory": "gpu", "host": "gpu", "intra": "node", "inter": "link",
    "loader": "workload", "overlap": "",
}  # fmt: skip


def placed_knobs(record: Calibration) -> tuple[Knob, ...]:
    """The knobs of a calibration, by the names that clusters know their places by.

    A knob of a place that there is not would change nothing, in silence. Raises InvalidConfig with
    every such name. A measured machine's own GPU and node need not be in the database.
    """
    problems: list[str] = []
    own = record.measured.gpu if record.measured else ""
    own_node = record.measured.link.node if record.measured and record.measured.link else ""

    def settled(at: int, knob: Knob) -> Knob:
        found: dict[str, str] = {}
        own_word = _OF[knob.knob]
        for word in ("gpu", "node", "link", "workload"):
            if getattr(knob, word) and word != own_word:
                told = f"is of a {own_word}" if own_word else "is of everything"
                problems.append(f"{_name(record, at, knob)}: has {word!r}, but {told}")
        try:
            if knob.gpu and knob.gpu != own:
                found["gpu"] = GPUS[knob.gpu].name
            if knob.node and knob.node != own_node:
                preset, colon, how = knob.node.partition(":")
                found["node"] = NODES[preset].name + colon + how
            if knob.link:
                found["link"] = parse_network(knob.link)[0].link
        except InvalidConfig as err:
            problems.extend(f"{_name(record, at, knob)}: {text}" for text in err.violations)
        except UsageError as err:
            problems.append(f"{_name(record, at, knob)}: {err}")
        return knob.model_copy(update=found) if found else knob

    knobs = tuple(settled(at, knob) for at, knob in enumerate(record.knobs))
    if problems:
        raise InvalidConfig(problems)
    return knobs


def _name(record: Calibration, at: int, knob: Knob) -> str:
    return f"calibration {record.name!r}, knob {at + 1} ({knob.knob})"
