"""How unevenly tokens go to experts, and what a capacity makes of it.

The fullest of the ranks that share a set of experts holds up the others in each layer, and is the
one whose memory overflows, so a job is judged by its rows. All factors are over the mean, the rows
of balanced routing that drops nothing: tokens x top_k / experts an expert.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simcore.base.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class ExpertRows:
    """Rows over the mean on the fullest rank.

    computed   what its experts compute, and keep for backward
    sent       what its all-to-all is bound by: the fullest receives (and sends back) more than the
               others send
    permuted   what it sorts by expert, and what combination weighs and sums
    """

    computed: float = 1.0
    sent: float = 1.0
    permuted: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """``imbalance``: tokens of the fullest expert-parallel rank over the mean.

    ``capacity``: slots of an expert over the mean, tokens beyond which are dropped; None drops
    none (GShard, Lepikhin et al. 2020, 3.2; Switch Transformer, Fedus et al. 2021, 2.2).
    ``padding``: slots that no token takes are computed and sent all the same, as there
    (Megatron-Core: moe_pad_expert_input_to_capacity); without, experts compute what they have.
    """

    imbalance: float = 1.0
    capacity: float | None = None
    padding: bool = True

    def fullest(self, ep: int) -> float:
        """Imbalance as ``ep`` ranks can have it: no rank gets more than all tokens."""
        return min(self.imbalance, float(ep))

    def rows(self, ep: int, dispatcher: str = "alltoall") -> ExpertRows:
        """The fullest rank's rows.

        A plain all-to-all sorts before it sends, on the side of the tokens, and a padded one sends
        empty slots too (token_dispatcher.py, drop_and_pad). DeepEP sends tokens and never slots,
        and sorts what has arrived (_DeepepManager, get_permuted_hidden_states_by_experts).
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


def factor(flag: str, value: object) -> float:
    """A factor of at least 1, also as text. Raises InvalidConfig."""
    try:
        if isinstance(value, bool):
            raise ValueError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InvalidConfig([f"{flag} {value!r} is not a number"]) from None
    if not math.isfinite(number) or number < 1.0:
        raise InvalidConfig([f"{flag} must be a number of at least 1, not {value}"])
    return number
