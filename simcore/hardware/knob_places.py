"""Checks the GPU, node and link names in a calibration, and spells them as the database does.

This layer does not know model names: ``request.assumptions`` checks those.
"""

from __future__ import annotations

from simcore.base.errors import InvalidConfig, UsageError
from simcore.hardware.calibrations import Calibration, Knob
from simcore.hardware.cluster import parse_network
from simcore.hardware.spec import GPUS, NODES

#: The one key that may restrict each knob ("": none may); pricing ignores every other key.
_RESTRICTED_BY = {
    "compute": "gpu", "memory": "gpu", "host": "gpu", "intra": "node", "inter": "link",
    "loader": "workload", "overlap": "",
}  # fmt: skip


def placed_knobs(record: Calibration) -> tuple[Knob, ...]:
    """The knobs of a calibration, with GPU, node and link by their canonical database names.

    Without this check a knob with a misspelt name would silently change nothing. Raises
    InvalidConfig with every unknown name. The GPU and node that the calibration itself measured
    need not be in the database.
    """
    problems: list[str] = []
    own_gpu = record.measured.gpu if record.measured else ""
    own_node = record.measured.link.node if record.measured and record.measured.link else ""

    def with_canonical_names(index: int, knob: Knob) -> Knob:
        canonical: dict[str, str] = {}
        allowed = _RESTRICTED_BY[knob.knob]
        for key in ("gpu", "node", "link", "workload"):
            if getattr(knob, key) and key != allowed:
                rule = f"may only name a {allowed}" if allowed else "applies everywhere"
                problems.append(f"{_name(record, index, knob)}: has {key!r}, but {rule}")
        try:
            if knob.gpu and knob.gpu != own_gpu:
                canonical["gpu"] = GPUS[knob.gpu].name
            if knob.node and knob.node != own_node:
                preset, colon, how = knob.node.partition(":")
                canonical["node"] = NODES[preset].name + colon + how
            if knob.link:
                canonical["link"] = parse_network(knob.link)[0].link
        except InvalidConfig as err:
            problems.extend(f"{_name(record, index, knob)}: {text}" for text in err.violations)
        except UsageError as err:
            problems.append(f"{_name(record, index, knob)}: {err}")
        return knob.model_copy(update=canonical) if canonical else knob

    knobs = tuple(with_canonical_names(index, knob) for index, knob in enumerate(record.knobs))
    if problems:
        raise InvalidConfig(problems)
    return knobs


def _name(record: Calibration, index: int, knob: Knob) -> str:
    return f"calibration {record.name!r}, knob {index + 1} ({knob.knob})"
