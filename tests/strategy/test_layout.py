"""Rules of a layout: what divides what, all violations at once."""

import pytest
from strategies import on_by_default

from simcore.strategy.layout import ExpertRows, Layout, Routing


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
        # a model without repeated layers counts as one layer; embedding and head may be chunks too
        (Layout(vpp=3), 8, 0, ["vpp=3 needs pp above 1"]),
        (Layout(vpp=4), 8, 0, ["pp x vpp = 4", "vpp=4 needs pp above 1"]),
        (Layout(pp=3), 8, 12, ["pp = 3 does not divide 8 GPUs"]),
        (Layout(pp=2, cp=3), 8, 12, ["pp x cp = 6 does not divide 8 GPUs"]),
        (Layout(ep=3), 8, 12, ["ep=3 does not divide the 8 ranks of a stage: allowed are"]),
        # no ep helps an expert-tp that does not divide the ranks itself
        (Layout(tp=2, expert_tp=3), 8, 12, ["divide the 8 ranks of a stage", "nor is a multiple"]),
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


def test_nothing_is_divided_where_nothing_is_said() -> None:
    bare = Layout()
    assert (bare.tp, bare.pp, bare.vpp, bare.cp, bare.ep, bare.expert_tp) == (1,) * 6
    assert bare.sequence_parallel and not bare.sends_once
    assert (bare.schedule, bare.cp_comm, bare.stages) == ("1f1b", "ring", "")


@pytest.mark.parametrize("degree", ["tp", "pp", "cp", "ep"])
def test_any_degree_is_no_longer_trivial(degree: str) -> None:
    assert not Layout(**{degree: 2}).trivial
    assert Layout(vpp=2).trivial  # chunks alone divide nothing


def test_ranks_of_a_replica_and_of_a_set_of_experts() -> None:
    """A set of experts takes ep x expert_tp ranks, the tensor ranks first (Liu et al. 2025)."""
    assert Layout(tp=2, pp=3, cp=5, ep=4).model_ranks == 30
    assert Layout(ep=8).data_ranks_of_expert == 8.0
    assert Layout(tp=4, ep=8).data_ranks_of_expert == 2.0
    assert Layout(tp=4, ep=8, expert_tp=4).data_ranks_of_expert == 8.0
    assert Layout(tp=4, ep=2).data_ranks_of_expert == 0.5
    assert Layout(tp=4).data_ranks_of_expert == 1.0


def test_experts_are_divided_over_as_many_tensor_ranks_as_a_stage_has_room_for() -> None:
    """Of four ranks of a stage, four expert ranks leave one for each expert, two leave two."""
    assert Layout(tp=2, pp=2, ep=4).widest_expert_tp(8) == 1
    assert Layout(tp=2, pp=2, ep=2).widest_expert_tp(8) == 2
    assert Layout(tp=4, ep=4).widest_expert_tp(8) == 2
    assert Layout(tp=4).widest_expert_tp(8) == 1
    assert Layout(tp=2, ep=4).widest_expert_tp(6) == 1, "six ranks are no whole sets of four"


def test_text_of_a_layout() -> None:
    assert str(Layout(cp=4, cp_comm="ulysses")) == "cp4 ulysses"
    assert str(Layout(tp=2, cp_comm="ulysses")) == "tp2"
    assert str(Layout(pp=2, schedule="gpipe", stages="3,5")) == "pp2 gpipe stages 3,5"
    assert Layout(dispatcher="deepep").sends_once and Layout(dispatcher="hybridep").sends_once


@pytest.mark.parametrize(
    ("layout", "n_gpus", "n_layers", "n_problems"),
    [
        (Layout(pp=12), 12, 12, 0),  # a layer a stage
        (Layout(pp=1), 8, 0, 0),  # without repeated layers the model is one stage
        (Layout(pp=2), 8, 0, 1),
        (Layout(pp=2, vpp=7), 8, 12, 0),  # embedding and head count as a layer each
        (Layout(pp=2, vpp=8), 8, 12, 1),
        (Layout(ep=4), 8, 12, 0),
        (Layout(tp=2, ep=4, expert_tp=2), 8, 12, 0),
        (Layout(tp=2, ep=8, expert_tp=2), 8, 12, 1),
        (Layout(tp=4, expert_tp=2), 8, 12, 0),
        (Layout(tp=4, ep=2, expert_tp=2), 8, 12, 0),
        (Layout(tp=4, expert_tp=3), 12, 12, 1),
        (Layout(tp=2, expert_tp=4), 8, 12, 0),
        (Layout(pp=2, ep=4), 8, 12, 0),
        (Layout(pp=2, ep=8), 8, 12, 1),  # a stage has four ranks
        (Layout(stages="6,6"), 8, 12, 1),  # needs pp
        (Layout(pp=2, stages="6,6"), 8, 12, 0),
    ],
)
def test_rules_at_their_border(layout: Layout, n_gpus: int, n_layers: int, n_problems: int) -> None:
    assert len(layout.violations(n_gpus, n_layers)) == n_problems


def test_sizes_of_stages_need_a_pipeline() -> None:
    assert Layout(stages="6,6").violations(8, 12) == ["stages 6,6 need pp above 1"]
    assert Layout(vpp=2).violations(8, 12) == ["vpp=2 needs pp above 1"]


def test_a_degree_of_any_length_is_judged_at_once() -> None:
    """Divisors are sought among the ranks, of which there are few, not below the degree."""
    assert Layout(tp=10**60, ep=2).widest_expert_tp(16) == 8
    assert Layout(tp=6, ep=2).widest_expert_tp(16) == 2
    assert Layout(tp=4, ep=1).widest_expert_tp(16) == Layout(tp=4, ep=0).widest_expert_tp(16) == 1
    assert Layout(tp=4, pp=2, ep=2).widest_expert_tp(8) == 2
    assert Layout(tp=4, pp=0, ep=2).widest_expert_tp(8) == 4
    assert Layout(tp=4, pp=16, ep=2).widest_expert_tp(8) == 1
    wrong = Layout(tp=10**60, ep=2, expert_tp=3).violations(n_gpus=16, n_layers=4)
    assert any("expert-tp=3 neither divides" in said for said in wrong)


def test_divisors_that_a_message_proposes_end_at_128() -> None:
    """258 = 2 x 3 x 43: its divisor 129 is one too large."""
    said = Layout(tp=258, expert_tp=5).violations(258, 12)[-1]
    assert "allowed here: [1, 2, 3, 6, 43, 86] and multiples of 258" in said


def test_expert_ranks_divide_those_of_a_stage() -> None:
    said = "does not divide the 4 ranks of a stage: allowed are divisors of"
    assert Layout(pp=2, ep=8).violations(8, 12) == [f"ep=8 {said} 4"]
    wide = Layout(pp=2, tp=2, ep=4, expert_tp=2)
    assert wide.violations(8, 12) == [f"ep=4 x expert-tp=2 {said} 2"]


def test_degrees_are_one_and_rows_are_whole_by_default() -> None:
    """Degrees of 1 and no deferred heads; sequence parallelism acts with tensor ranks alone."""
    degrees = dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "expert_tp", "vpp_group"), 1)
    assert on_by_default(Layout) == {**degrees, "sequence_parallel": True}
    assert on_by_default(Routing) == {"imbalance": 1.0, "padding": True}
    assert on_by_default(ExpertRows) == {"computed": 1.0, "sent": 1.0, "permuted": 1.0}
