"""Cost formulas of collectives, one file per algorithm; the fastest is chosen, as NCCL does.

Message sizes are bytes per rank: the whole vector of an all-reduce, the gathered output of an
all-gather, the input of a reduce-scatter.
"""

from simcore.physics.collectives.base import (
    ALGORITHMS,
    Algorithm,
    Allowed,
    Collective,
    Group,
    Library,
    Option,
    collective_time_s,
    names_in_nccl_algo,
    obeys,
    priced_as,
    ways,
)
from simcore.physics.collectives.nccl import PROTOCOLS

__all__ = [
    "ALGORITHMS", "PROTOCOLS", "Algorithm", "Allowed", "Collective", "Group", "Library", "Option",
    "collective_time_s", "names_in_nccl_algo", "obeys", "priced_as", "ways",
]  # fmt: skip
