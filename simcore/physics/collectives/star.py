"""Star: one device exchanges with each other device in turn over its own port (DataParallel)."""

from __future__ import annotations

from simcore.physics.collectives import (
    ALGORITHMS,
    Algorithm,
    Collective,
    Group,
    Option,
    option,
)


class Star(Algorithm):
    """(n-1)·(base + hop + S/bw), linear in the devices; only one-to-all and all-to-one."""

    in_nccl_algo = False

    def options(self, op: Collective, group: Group) -> list[Option]:
        if op not in ("one_to_all", "all_to_one"):
            return []
        others = group.n_ranks - 1.0
        fixed = others * (group.base_s + group.intra_hop_s)
        return [option(group, "star", "", fixed, others / group.bus_bw_bytes_per_s)]


ALGORITHMS.register("star")(Star())
