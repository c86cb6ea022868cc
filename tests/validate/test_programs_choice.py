"""Which rows a calibration asks for, of steps whose response is a straight line."""

from __future__ import annotations

import numpy as np

from simcore.calibrate.steps.model import FitRow, Parameter
from simcore.calibrate.steps.residual import Traits
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.paths import unstated_network
from simcore.hardware.profile import load_profile
from simcore.validate.programs import Programs, telling_rows

COMPUTE = Parameter("compute", "compute", 0.15)
INTER = Parameter("inter", "inter", 0.35)


def step(key: str, waits: float, names: tuple[str, ...]) -> FitRow:
    """A step that waits for the network for a share of its time, and computes else."""

    def log_s(x: np.ndarray) -> np.ndarray:
        return -(1.0 - waits) * x[0] - waits * x[1]

    traits = Traits("us", key, key, key, (float(ord(key[0]) + 10 * int(key[-1])),))
    uses = {name: (0,) if name == "compute" else (1,) for name in names}
    return FitRow(key, key, 1.0, uses, 2, log_s, shares=(0, 1), traits=traits)


def chosen(*parameters: Parameter) -> set[str]:
    names = tuple(p.name for p in parameters)
    rows = [step(f"computes-{i}", 0.02, names) for i in range(4)]
    rows += [step(f"waits-{i}", 0.3, names) for i in range(2)]
    return telling_rows(Programs((), tuple(rows), parameters, {}), 1, set())


def test_the_first_row_asks_for_the_network_where_nobody_stated_it() -> None:
    """Four rows that compute outweigh two that wait, unless those two are the less known ones."""
    unstated = unstated_network(parse_cluster("4x8xA100-SXM-80GB"), load_profile())
    assert unstated is not None
    network = Parameter("network", "inter", unstated.sd_log, prior_mean_log=unstated.mean_log)
    (known,), (unknown,) = chosen(COMPUTE, INTER), chosen(COMPUTE, INTER, network)
    assert known.startswith("computes") and unknown.startswith("waits")
