"""Parallel aggregated trees: all-gather and reduce-scatter in log2(n) steps."""

from __future__ import annotations

import numpy as np

from simcore.physics.collectives import (
    ALGORITHMS,
    Algorithm,
    Collective,
    Group,
    Option,
    nccl,
    option,
)

#: Latency of one of several pipelined steps over that of a single hop; seconds added per rank.
STEP_SHARE = 1.0 / 3.5
A_RANK_S = 2.8 * nccl.US


class Pat(Algorithm):
    """Jeaugey 2025 (arXiv:2506.20252), costs from NCCL's tuning; only with one rank per node.

    8 us + log2(n)·hop/3.5 + 2.8 us·n + S/(0.75 bw)
    """

    def options(self, op: Collective, group: Group) -> list[Option]:
        n = group.n_ranks
        if op not in ("all_gather", "reduce_scatter") or group.library.generation < 0:
            return []
        ok = (n <= group.n_nodes) & (n > 1)
        if not ok.any():
            return []
        hop = nccl.net_s(group, float(nccl.TREE_NET_S[nccl.SIMPLE, 0]))
        fixed = nccl.PAT_BASE_S + nccl.depth(n) * hop * STEP_SHARE + n * A_RANK_S
        per_byte = np.ones_like(n) / (nccl.PAT_SHARE * group.bus_bw_bytes_per_s)
        return [option(group, "PAT", "Simple", fixed, per_byte, ramp=group.chunk_ramp, ok=ok)]


ALGORITHMS.register("PAT")(Pat())
