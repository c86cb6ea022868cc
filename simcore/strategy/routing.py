"""How unevenly tokens are routed to experts, and the effect of a capacity.

All ranks that share a set of experts wait in each layer for the one with most tokens, and that rank
runs out of memory first, so a job is predicted for its rows. All factors are over the mean: the
rows of balanced routing that drops nothing, tokens x top_k / experts for each expert.
"""

from __future__ import annotations

from simcore.base.record import dataclass


@dataclass(frozen=True)
class ExpertRows:
    """Rows on the fullest rank, over the mean.

    computed   rows that its experts compute, and save for backward
    sent       rows that limit its all-to-all: the fullest rank receives (and sends back) more than
               the others send
    permuted   rows that it sorts by expert, and weighs and sums in combine
    """

    computed: float = 1.0
    sent: float = 1.0
    permuted: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Routing:
    """The routing of tokens to experts; ``imbalance``: tokens of the fullest rank over the mean.

    ``capacity``: slots of an expert over the mean; tokens beyond are dropped. None drops no tokens
    (GShard, Lepikhin et al. 2020, 3.2; Switch Transformer, Fedus et al. 2021, 2.2).
    ``padding``: empty slots are computed and sent too, as in these papers (Megatron-Core:
    moe_pad_expert_input_to_capacity); otherwise experts compute only the tokens that they have.
    """

    imbalance: float = 1.0
    capacity: float | None = None
    padding: bool = True

    def fullest(self, ep: int) -> float:
        """Imbalance limited to what ``ep`` ranks can have: no rank gets more than all tokens."""
        return float(min(self.imbalance, ep))

    def rows(self, ep: int, dispatcher: str = "alltoall") -> ExpertRows:
        """The fullest rank's rows.

        A plain all-to-all sorts rows before it sends them, on the tokens' rank, and with padding it
        sends empty slots too (token_dispatcher.py, drop_and_pad). DeepEP sends tokens and no empty
        slots, and sorts what has arrived (_DeepepManager, get_permuted_hidden_states_by_experts).
        """
        fullest = self.fullest(ep)
        kept = fullest if self.capacity is None else min(fullest, self.capacity)
        padded = self.capacity if self.capacity is not None and self.padding else None
        computed = kept if padded is None else padded
        if dispatcher != "alltoall":
            return ExpertRows(computed=computed, sent=kept, permuted=computed)
        return ExpertRows(
            computed=computed, sent=computed, permuted=1.0 if padded is None else padded
        )


EVEN = Routing()
