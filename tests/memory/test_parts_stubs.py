"""Which programs hand autograd a stub, and moments of several parts in one table."""

from __future__ import annotations

from strategies import strategy

from simcore.memory.moments import Moments, Walked, moments_of
from simcore.memory.parts import hands_stubs, joined_moments
from simcore.workload.models import MODELS
from tests.memory.test_terms_stubs import _how

P = strategy("ddp", "amp-bf16").precision


def test_who_hands_stubs() -> None:
    """Programs with such a kernel, main gradients, and parameters that are whole."""
    assert [hands_stubs(_how(n)) for n in ("ddp", "zero1", "zero2", "zero3")] == [True] * 3 + [
        False
    ]
    assert not hands_stubs(_how("ddp", main="weights"))
    assert not hands_stubs(_how("ddp", stub=False))


def test_joined_moments_repeat_the_first() -> None:
    models = MODELS["gpt2"].build(), MODELS["resnet-18"].build()
    one, other = moments_of([Walked(m, False, 1) for m in models], P, False, 0, 0.0)
    both = joined_moments([one, other])
    longest = max(len(one.held), len(other.held))
    for at, each in enumerate((one, other)):
        n = len(each.held)
        for name in Moments.__dataclass_fields__:
            column = getattr(both, name)[:, at]
            assert column.shape == (longest,)
            assert column[:n].tolist() == getattr(each, name).tolist()
            assert set(column[n:].tolist()) <= {getattr(each, name)[0]}
