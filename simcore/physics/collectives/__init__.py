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
    obeys,
    priced_as,
    ways,
)
from simcore.physics.collectives.in_switch import CollNet, Nvls, NvlsTree
from simcore.physics.collectives.pairwise import Pairwise, exchange_s, once_each_frac
from simcore.physics.collectives.pat import Pat
from simcore.physics.collectives.ring import Ring
from simcore.physics.collectives.star import Star
from simcore.physics.collectives.tree import Tree

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Allowed",
    "CollNet",
    "Collective",
    "Group",
    "Library",
    "Nvls",
    "NvlsTree",
    "Option",
    "Pairwise",
    "Pat",
    "Ring",
    "Star",
    "Tree",
    "collective_time_s",
    "exchange_s",
    "obeys",
    "once_each_frac",
    "priced_as",
    "ways",
]
