"""Rules of a layout: what divides what, all violations at once."""

import pytest

from simcore.strategy.layout import Layout


def test_nothing_cut_is_trivial_and_says_nothing() -> None:
    assert Layout().trivial
    assert str(Layout()) == ""
    assert str(Layout(tp=4, pp=2, vpp=3)) == "tp4 pp2 vpp3"


def test_what_is_left_is_data_parallel() -> None:
    assert Layout(tp=4, pp=2, cp=2).data_ranks(64) == 4


@pytest.mark.parametrize(
    ("layout", "n_gpus", "n_layers", "said"),
    [
        (Layout(tp=3), 8, 12, ["does not divide 8 GPUs"]),
        (Layout(pp=16), 16, 12, ["pp=16 is more than the 12 layers"]),
        (Layout(pp=4, vpp=4), 8, 12, ["pp x vpp = 16"]),
        (Layout(vpp=2), 8, 12, ["vpp=2 needs pp above 1"]),
        (Layout(pp=3), 8, 12, ["pp = 3 does not divide 8 GPUs"]),
        (Layout(pp=2, cp=3), 8, 12, ["pp x cp = 6 does not divide 8 GPUs"]),
        (Layout(ep=3), 8, 12, ["ep=3 does not divide the 8 ranks of a stage: allowed are"]),
        # no ep helps an expert-tp that does not divide the ranks itself
        (Layout(tp=1, expert_tp=3), 8, 12, ["divide the 8 ranks of a stage", "must be 1 or tp=1"]),
        (Layout(tp=0, pp=-1), 8, 12, ["tp must be at least 1", "pp must be at least 1"]),
        (Layout(tp=3, pp=16), 16, 12, ["does not divide 16", "more than the 12"]),
        (Layout(tp=2, pp=2, cp=2), 8, 12, []),
    ],
)
def test_violations(layout: Layout, n_gpus: int, n_layers: int, said: list[str]) -> None:
    found = layout.violations(n_gpus, n_layers)
    assert len(found) == len(said)
    for text, part in zip(found, said, strict=True):
        assert part in text
    assert layout.expert_tp != 3 or "allowed" not in found[0]
