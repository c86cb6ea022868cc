"""Expert parallelism: experts divided over ranks, which send tokens there and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.base.units import FP32_BYTES, GIGA, INT64_BYTES
from simcore.physics.collectives import Collective, Group
from simcore.physics.collectives.pairwise import exchange_s, once_each_frac
from simcore.step.parallel.layer_ranks import DividedJob, LayerRanks, Pair

#: SMs of DeepEP's kernels (Megatron-Core, moe_deepep_num_sms), and the bytes that each receives or
#: sends a second within a node of Blackwell GPUs: 8 B200 and 8 GB200, 16 and 24 SMs, 20.6 to
#: 22.6 GB/s in dispatch and 17.5 to 19.4 in combine (DeepEP, docs/README_Hybrid-EP.md). On other
#: GPUs NVLink is slower than these SMs; HybridEP copies asynchronously and needs fewer SMs.
DEEPEP_SMS, DEEPEP_BYTES_PER_SM_S = 20.0, 19.8 * GIGA
_BLACKWELL = 3  # Library.generation
#: Exchanges of an expert layer in each pass: dispatch and combine.
_EACH_PASS = 2.0


@dataclass(frozen=True, kw_only=True)
class ExpertRanks(LayerRanks):
    """Ranks that hold different experts; bytes are those of a plain all-to-all on the fullest rank.

    All ranks wait for the one that receives most, and in combine sends most (links are duplex).
    The host waits in every layer for token counts (Megatron-Core, token_dispatcher.py,
    cuda_sync_point). ``copies``: experts that each token goes to; ``groups``: (groups of experts,
    groups among which a token chooses). ``weights_frac``: bytes of routing weights over those of
    the row that they accompany to its expert; their gradients accompany the row back.
    ``sms_bound``: DeepEP's SMs may limit the rate within a node.
    """

    name = "expert parallel"
    host_waits = True
    beside_others = True

    copies: float
    groups: tuple[int, int]
    weights_frac: float
    sends_once: bool
    sms_bound: bool

    @classmethod
    def of(cls, job: DividedJob) -> Self:
        """The expert ranks of a job."""
        layout, strategy, config = job.layout, job.strategy, job.config
        layers = job.layers
        routed = sum(n for b, n in layers if any(op.part == "experts" for op in b.ops))
        recomputed = strategy.recompute == "full" or "moe" in strategy.recompute_modules
        copies = _copies(config)
        rows = strategy.routing.rows(layout.ep, layout.dispatcher).sent
        backward = _EACH_PASS * (2 if recomputed else 1)
        return cls(
            ranks=layout.ep,
            stride=float(layout.expert_tp),
            sample_bytes=job.output_bytes * _dispatched_frac(config) * copies * rows / layout.tp,
            forward=_EACH_PASS,
            backward=backward,
            layers_frac=routed / sum(n for _, n in layers) if layers else 0.0,
            pairs=(Pair(1.0),) if strategy.overlap.experts else (),
            nic_ranks=layout.ep * layout.expert_tp,
            hidden_backward_frac=backward / (_EACH_PASS + backward),
            copies=copies,
            groups=expert_groups(config),
            weights_frac=_weights_frac(job),
            sends_once=layout.sends_once,
            sms_bound=layout.dispatcher == "deepep",
        )

    @property
    def collectives(self) -> Mapping[Collective, float]:
        """An all-to-all."""
        return {"all_to_all": 1.0}

    def once_s(self, n_bytes: Array, group: Group) -> dict[str, Array]:
        """Seconds of an exchange by its operation, with the routing weights in half of them."""
        if self.sends_once:
            across = once_each_frac(group.n_nodes, self.copies, *self.groups)
            # tokens from other nodes also pass the links within the node on their way to the rank
            inside = once_each_frac(group.n_ranks, self.copies, *self.groups) * group.n_nodes
            # routing weights go with the rows: out, and their gradients back
            rows = n_bytes * (1.0 + 0.5 * self.weights_frac)
            if self.sms_bound and group.library.generation == _BLACKWELL:
                group = _by_sms(group)
            return {"all_to_all": exchange_s(rows[None, :], group, across, inside)[0]}
        seconds = exchange_s(n_bytes[None, :], group)[0]
        if self.weights_frac:  # the weights have an exchange of their own
            seconds = seconds + 0.5 * exchange_s((n_bytes * self.weights_frac)[None, :], group)[0]
        return {"all_to_all": seconds}


def _by_sms(group: Group) -> Group:
    """A group whose rate within a node is limited by DeepEP's SMs, which copy all rows.

    The rate was measured with 4,096 tokens and already includes what NCCL's formula adds between
    the latency and the bandwidth regime (``ramp``).
    """
    here = group.a_node
    most = DEEPEP_SMS * DEEPEP_BYTES_PER_SM_S * (here - 1.0) / here
    rate = np.where(here > 1, np.minimum(group.intra_bw_bytes_per_s, most), np.inf)
    return replace(group, intra_bw_bytes_per_s=rate, ramp=0.0)


def _dispatched_frac(config: Mapping[str, Any]) -> float:
    """Width of a row sent to an expert over the model's width: experts may work in a latent space.

    Megatron-Core, moe_layer.py: fc1_latent_proj runs before dispatch, fc2_latent_proj after
    combine.
    """
    latent = int(config.get("expert_latent") or 0)
    return latent / int(config["hidden"]) if latent else 1.0


def _weights_frac(job: DividedJob) -> float:
    """Bytes of fp32 routing weights over those of the row that they accompany.

    Weights go where the tokens go, and their gradients come back with the tokens'. HybridEP sends
    the weights of all experts of an NVLink domain, most of them zero (DeepEP, docs/
    Hybrid-EP_Implementation.md). DeepEP sends those of the token's choices, and on the way there
    their int64 indices (Megatron-Core, fused_a2a.py). A plain exchange sends the row's own weight
    where rows are weighted early (token_dispatcher.py, all_to_all of permuted_probs).
    """
    config, layout = job.config, job.layout
    experts, hidden = (int(config.get(word) or 0) for word in ("experts", "hidden"))
    if layout.ep == 1 or not experts or not hidden:
        return 0.0
    row = hidden * _dispatched_frac(config) * job.strategy.precision.low_bytes
    if layout.dispatcher == "hybridep":
        here = min(1.0, job.gpus_per_node / (layout.ep * layout.expert_tp))
        return FP32_BYTES * experts * here / row
    if layout.dispatcher == "deepep":
        chosen = int(config.get("top_k") or 0)
        return (FP32_BYTES + 0.5 * INT64_BYTES) * chosen / row  # 0.5: indices go one way only
    return FP32_BYTES / row if config.get("weighed_early") else 0.0


def _copies(config: Mapping[str, Any]) -> float:
    """Experts that a token is sent to; those that return their input compute nothing."""
    experts, zero = (int(config.get(word) or 0) for word in ("experts", "zero_experts"))
    return float(config.get("top_k") or 0) * (experts / (experts + zero) if zero else 1.0)


def expert_groups(config: Mapping[str, Any]) -> tuple[int, int]:
    """(groups of a model's experts, groups among which a token chooses its experts)."""
    return int(config.get("expert_groups", 1)), int(config.get("top_groups", 1))
