"""What of exchanges is exposed, worked out by hand on two kinds of ranks and ideal links."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from strategies import points

from simcore.answer.request import make_request
from simcore.base.record import dataclass
from simcore.physics.collectives import Collective
from simcore.request.placed import Placed
from simcore.step.parallel.layer_ranks import LayerRanks, Pair
from simcore.step.schedules import SCHEDULES
from simcore.strategy.layout import Layout
from simcore.timing.exchanges import (
    TRANSFER,
    Exchanges,
    alone_frac,
    beside_host,
    data_points,
    exchanges_of,
    exposed,
    shared_nic_s,
    tied_s,
)
from simcore.timing.points import COLLECTIVE_BASE_S, Points
from simcore.timing.steps import values_of


@dataclass(frozen=True, kw_only=True)
class Near(LayerRanks):
    name = "near parallel"
    operations: ClassVar[dict[Collective, float]] = {"all_gather": 1.0, "reduce_scatter": 1.0}

    @property
    def collectives(self) -> dict[Collective, float]:
        return self.operations


class Far(Near):
    name = "far parallel"
    beside_others = True
    operations: ClassVar[dict[Collective, float]] = {"all_to_all": 1.0}


class Waited(Far):
    host_waits = True


def ranks(kind: type[Near] = Near, **words: Any) -> Near:
    plain = {"ranks": 4, "stride": 1.0, "sample_bytes": 1.0, "forward": 1.0, "backward": 2.0}
    return kind(**{**plain, **words})


def placed(*dimensions: Near, **words: Any) -> Placed:
    plain = {"dimensions": dimensions, "gpus_per_node": 8}
    return cast("Placed", SimpleNamespace(**{**plain, **words}))


def seconds(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values)


def test_a_stage_spends_each_exchange_as_often_as_its_layers_run_it() -> None:
    """Three of each operation a layer, ten layers, half of the layers far; half of near is seen."""
    near, far = ranks(seen_frac=0.5), ranks(Far, layers_frac=0.5)
    once = {
        ("near parallel", "all_gather"): seconds(2.0),
        ("near parallel", "reduce_scatter"): seconds(3.0),
        ("far parallel", "all_to_all"): seconds(4.0),
        (TRANSFER, "send_recv"): seconds(7.0),  # of a micro-step, whatever the layers
    }
    made = Exchanges(placed(near, far), once)
    assert {k: v[0] for k, v in made.collectives_s(10).items()} == {
        ("near parallel", "all_gather"): 60.0, ("near parallel", "reduce_scatter"): 90.0,
        ("far parallel", "all_to_all"): 60.0, (TRANSFER, "send_recv"): 7.0,
    }  # fmt: skip
    assert {k: v[0] for k, v in made.of_stage(10).items()} == {
        "near parallel": 75.0, "far parallel": 60.0, TRANSFER: 7.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("near", "far", "alone", "left"),
    [
        # of 10 s all may hide beside 30 s of compute; those of far beside what then is left
        ([Pair(1.0)], [Pair(1.0)], 0.0, (0.0, 0.0)),
        ([Pair(0.4)], [Pair(0.5)], 0.0, (6.0, 10.0)),
        ([], [Pair(1.0)], 0.0, (10.0, 0.0)),
        ([Pair(1.0, 0.2)], [], 0.0, (4.0, 20.0)),  # 6 s can cover it
        # 5 s beside 3 s, 4 s beside all of 12 s of products, 1 s beside nothing
        ([Pair(0.5, 0.1), Pair(0.4, 1.0, True)], [], 0.0, (3.0, 20.0)),
        ([Pair(1.0, 0.5, True)], [], 0.0, (4.0, 20.0)),  # 6 s of the products' 12
        # 12 s in half of the compute: 12 - 15 < 0; near takes 10 of 30 s, far hides 20 in 20
        ([Pair(1.0)], [Pair(1.0, 0.5)], 0.0, (0.0, 5.0)),
        # a quarter of the micro-batches has no other one beside it, which near does not need
        ([Pair(1.0)], [Pair(1.0)], 0.25, (0.0, 5.0)),
    ],
)  # fmt: skip
def test_compute_hides_each_exchange_once(
    near: list[Pair], far: list[Pair], alone: float, left: tuple[float, float]
) -> None:
    how = placed(ranks(pairs=tuple(near)), ranks(Far, pairs=tuple(far)))
    exchange = {"near parallel": seconds(10.0), "far parallel": seconds(20.0), TRANSFER: seconds(1)}
    found = exposed(exchange, how, seconds(30.0), seconds(0.0), alone, seconds(12.0))
    assert (found["near parallel"][0], found["far parallel"][0]) == pytest.approx(left)
    assert found[TRANSFER][0] == 1.0 and exchange["near parallel"][0] == 10.0


def test_what_hid_one_exchange_hides_no_other_and_slows_for_it() -> None:
    """12 s of compute: 10 of near hide, 2 of far; each hidden second costs a quarter."""
    how = placed(ranks(pairs=(Pair(1.0),)), ranks(Far, pairs=(Pair(1.0),)))
    exchange = {"near parallel": seconds(10.0), "far parallel": seconds(20.0)}
    found = exposed(exchange, how, seconds(12.0), seconds(0.25))
    assert found["near parallel"][0] == pytest.approx(10 - 10 * 0.75)
    assert found["far parallel"][0] == pytest.approx(20 - 2 * 0.75)


@pytest.mark.parametrize(
    ("host", "left"), [(30.0, 1.0), (20.0, 1.0), (36.0, 0.8), (45.0, 0.5), (60.0, 0.0), (99.0, 0.0)]
)
def test_a_slow_host_leaves_time_for_exchanges(host: float, left: float) -> None:
    """30 s of compute and as many of exchanges: what the host takes longer hides them all alike."""
    exchange = {"near parallel": seconds(10.0), "far parallel": seconds(20.0), TRANSFER: seconds(5)}
    how = placed(ranks(), ranks(Far))
    found = beside_host(exchange, how, seconds(30.0), seconds(host))
    assert [found[name][0] for name in exchange] == pytest.approx([10 * left, 20 * left, 5.0])


def test_where_the_host_waits_itself_all_stay_exposed() -> None:
    exchange = {"near parallel": seconds(10.0)}
    for kind, share, left in ((Waited, 0.5, 10.0), (Waited, 0.0, 0.0), (Far, 0.5, 0.0)):
        how = placed(ranks(), ranks(kind, layers_frac=share))
        assert beside_host(exchange, how, seconds(1.0), seconds(50.0))["near parallel"][0] == left
    nothing = beside_host({TRANSFER: seconds(3.0)}, placed(), seconds(1.0), seconds(50.0))
    assert nothing[TRANSFER][0] == 3.0


@pytest.mark.parametrize(
    ("sent", "window", "nodes", "extra"),
    [
        (10.0, 100.0, 2.0, 0.0),  # both hide
        (90.0, 100.0, 2.0, 6.0),  # 90 + 16 of 100
        (120.0, 100.0, 2.0, 16.0),  # nothing of it hides any more
        (90.0, 100.0, 1.0, 0.0), (0.0, 10.0, 2.0, 0.0),
    ],
)  # fmt: skip
def test_gradients_and_hidden_exchanges_share_the_nics(
    sent: float, window: float, nodes: float, extra: float
) -> None:
    """Of 20 s of exchanges 4 are seen: 8 are saved by hiding 16 at half speed, half in backward."""
    far = ranks(Far, nic_ranks=16, hidden_backward_frac=0.5)
    steps = SimpleNamespace(
        comm_beside_s=seconds(sent), terms_s={"backward": seconds(window)}
    )  # fmt: skip
    whole, seen = {"far parallel": seconds(20.0)}, {"far parallel": seconds(4.0)}
    at, slower = points(n_nodes=nodes), seconds(0.5)
    found = shared_nic_s(cast("Any", steps), whole, seen, placed(far), at, slower)
    assert found[0] == pytest.approx(extra)
    for inside in (8, 0):  # no more ranks than a node has: over NVLink
        own = placed(ranks(Far, nic_ranks=inside, hidden_backward_frac=0.5))
        assert shared_nic_s(cast("Any", steps), whole, seen, own, at, slower)[0] == 0.0


@pytest.mark.parametrize(("schedule", "passes"), [("1f1b", 6.0), ("dualpipe", 3.0)])
def test_a_stage_is_a_data_parallel_job_of_its_own(schedule: str, passes: float) -> None:
    """32 GPUs in nodes of 4, with tp 2, pp 2 and cp 2: eight ranks, every second one, two a node
    with half of its NICs. Of two GPUs and of one there is a single rank of it, on one node."""
    at = points(
        3, n_ranks=np.array([32.0, 2.0, 1.0]), n_nodes=np.array([8.0, 1.0, 1.0]), inter=0.5,
        gpus_per_node=4.0, inter_bw_bytes_per_s=16.0, micro_batch=8.0, grad_accum=6.0,
    )  # fmt: skip
    how = placed(layout=Layout(tp=2, pp=2, cp=2), schedule=SCHEDULES[schedule], gpus_per_node=4)
    found = data_points(at, how)
    assert found.n_ranks.tolist() == [8.0, 1.0, 1.0]
    assert found.n_nodes.tolist() == [4.0, 1.0, 1.0]
    assert found.inter_bw_bytes_per_s[0] == 16.0 * 2 / 4 and found.inter.tolist() == [0.5] * 3
    assert found.micro_batch.tolist() == [4.0] * 3 and found.grad_accum.tolist() == [passes] * 3
    assert found.library.node_stride == 1.0
    wide = placed(layout=Layout(tp=8), schedule=SCHEDULES["1f1b"], gpus_per_node=4)
    assert data_points(at, wide).library.node_stride == 2.0
    assert data_points(at, wide).n_nodes.tolist() == [4.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("schedule", "pp", "micro_batches", "share"),
    [("1f1b", 4, 8.0, 1 / 8), ("1f1b", 1, 1.0, 1.0), ("gpipe", 4, 8.0, 1.0),
     ("dualpipe", 8, 32.0, 2 * 4.5 / 32)],
)  # fmt: skip
def test_passes_that_run_beside_no_other(
    schedule: str, pp: int, micro_batches: float, share: float
) -> None:
    """As many as the last stage has in flight: 1F1B one, GPipe all, DualPipe (pp + 1)/2 an end."""
    how = placed(schedule=SCHEDULES[schedule], layout=Layout(pp=pp, schedule=schedule))
    assert alone_frac(how, seconds(micro_batches))[0] == pytest.approx(share)


def test_a_tied_table_is_summed_between_the_two_ends() -> None:
    """100 bytes between two ranks: 2 * 1/2 * 100 over 4 bytes/s in a node; over NICs of 16 bytes/s
    that eight GPUs share, 2 bytes/s."""
    at = points(
        2, n_nodes=np.array([1.0, 2.0]), intra_bw_bytes_per_s=4.0, inter_bw_bytes_per_s=16.0
    )
    found = tied_s(at, placed(tied_bytes=100.0))
    assert found == pytest.approx([25.0 + COLLECTIVE_BASE_S, 50.0 + COLLECTIVE_BASE_S])
    assert tied_s(at, placed(tied_bytes=0.0)).tolist() == [0.0, 0.0]
    off = points(n_nodes=2.0, use_comm=0.0)
    assert tied_s(off, placed(tied_bytes=100.0))[0] == 0.0


@pytest.mark.parametrize(
    ("gpus", "degrees", "nodes", "crosses"),
    [
        ("1x8xA100", {"tp": 2, "cp": 2}, 1.0, False),  # four ranks of a stage, two stages a node
        ("2x8xA100", {"tp": 4, "cp": 2}, 2.0, True), ("2x8xA100", {"tp": 2, "cp": 2}, 2.0, True),
        ("2x8xA100", {"tp": 4, "cp": 2}, 1.0, True),  # a stage has all ranks of a node
        ("2x8xA100", {"tp": 8}, 1.0, True), ("2x8xA100", {"tp": 4}, 1.0, False),
    ],
)  # fmt: skip
def test_stages_send_within_a_node_or_between_nodes(
    gpus: str, degrees: dict[str, int], nodes: float, crosses: bool
) -> None:
    """A rank's part of 1,024 tokens of 4,096 in bf16, forward and back: by its NIC or NVLink."""
    request = make_request(
        "llama3-8b", gpus, pp=2, strategy="zero1", micro_batch=1, seq_len=1024, precision="bf16",
        **degrees,
    )  # fmt: skip
    assert request.placed is not None
    at = Points.of({**values_of(request), "n_nodes": nodes}, 1)
    found = exchanges_of(at, request.placed).once_s[TRANSFER, "send_recv"][0]
    sent = 1024 / degrees.get("cp", 1) * 4096 * 2 / degrees["tp"]
    rate = at.inter_bw_bytes_per_s[0] / 8 if crosses else at.intra_bw_bytes_per_s[0]
    hop = at.inter_hop_s[0] if crosses else at.intra_hop_s[0]
    assert found == pytest.approx(2 * (sent / rate + hop))
