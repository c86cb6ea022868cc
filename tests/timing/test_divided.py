"""Layouts in the engine: closed forms of bubbles, conservation, and monotony."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from simcore import api
from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig
from simcore.memory.job import memory_over
from simcore.timing.exchanges import (
    TRANSFER,
    beside_host,
    data_points,
    exchanges_of,
    exchanges_s,
    group_of,
    shared_nic_s,
    tied_s,
)
from simcore.timing.points import Points
from simcore.timing.steps import steps_of, values_of
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import resolve_model

BASE: dict[str, Any] = {"precision": "bf16", "strategy": "zero1", "micro_batch": 1,
                        "software": "plain", "settings": "padded_vocab=true"}  # fmt: skip


def ask(gpus: str = "1x8xA100", **options: Any) -> Any:
    return api.predict("gpt2-medium", gpus, **{**BASE, **options})


def test_degrees_of_one_change_nothing() -> None:
    plain, ones = ask(), ask(tp=1, pp=1, cp=1, ep=1, vpp=1)
    assert plain.step_time_s.value == ones.step_time_s.value
    assert plain.memory.device_bytes == ones.memory.device_bytes


def test_global_batch_counts_replicas() -> None:
    """8 GPUs at tp 2, pp 2 are 2 replicas: 64 samples are 32 micro-steps of one."""
    found = ask(tp=2, pp=2, global_batch=64)
    assert (found.grad_accum, found.global_batch) == (32, 64)
    with pytest.raises(InvalidConfig, match="not a multiple of micro-batch 1 x 2 replicas"):
        ask(tp=2, pp=2, global_batch=63)
    with pytest.raises(InvalidConfig, match="not both"):
        ask(global_batch=64, grad_accum=2)


@pytest.mark.parametrize(("m", "vpp"), [(8, 1), (32, 1), (8, 3), (32, 6)])
def test_bubble_is_the_closed_form(m: int, vpp: int) -> None:
    """1F1B and interleaved: (pp - 1)/vpp micro-steps of the average stage (Narayanan 2021)."""
    found = ask("1x4xA100", pp=4, vpp=vpp, grad_accum=m)
    assert found.time_s["pipeline_bubble"] > 0
    micro = found.time_s["pipeline_bubble"] * vpp / 3
    # the bubble is 3/vpp average micro-steps; the compute of m of them is m times one
    compute = found.time_s["compute"] / m
    assert 0.6 * compute < micro < 1.01 * compute, "the last stage has the head: it is slower"


def test_more_micro_steps_hide_the_bubble() -> None:
    """t_bubble / t_ideal = (pp - 1)/m of equal stages: a share of 3/67 for 64 micro-steps."""
    known = resolve_model("gpt2-medium")
    assert isinstance(known, ModelRecord)
    equal = known.model_copy(update={"config": {**known.config, "vocab": 64}})
    found = [
        predict(
            make_request(equal, "1x4xA100", **{**BASE, "pp": 4, "grad_accum": m, "issuer": "graph"})
        )
        for m in (4, 16, 64)
    ]
    shares = [p.time_s["pipeline_bubble"] / p.step_time_s.value for p in found]
    assert shares[0] > shares[1] > shares[2]
    assert shares[2] == pytest.approx(3 / 67, rel=0.1)


def test_stages_wait_for_each_others_hosts() -> None:
    """Where the host binds, a pipeline is filled and emptied at the host's pace."""

    def step_s(accum: int, pp: int) -> float:
        request = make_request(
            "gpt2", f"1x{pp}xH100", pp=pp, issuer="megatron", seq_len=128, micro_batch=1,
            grad_accum=accum,
        )  # fmt: skip
        return predict(request).step_time_s.value

    pace = (step_s(64, 4) - step_s(32, 4)) / 32  # of the slowest stage's host
    assert step_s(64, 4) - 64 * pace > 2.4 * pace


def test_tensor_ranks_exchange_while_the_host_issues() -> None:
    """Between two kernels that the host has yet to issue there is room for what is under way."""
    request = make_request(
        "gpt2",
        "1x4xA100",
        tp=4,
        issuer="megatron_2022",
        seq_len=128,
        micro_batch=1,
        strategy="zero1",
        software="megatron",
    )

    def steps(accum: int) -> Any:
        return steps_of(request, Points.of(values_of(request) | {"grad_accum": float(accum)}, 1))

    assert request.placed is not None
    exchanges = exchanges_of(Points.of(values_of(request), 1), request.placed)
    pace = float(steps(64).step_s[0] - steps(32).step_s[0]) / 32
    host = float(steps(64).host_micro_s[0])
    assert exchanges.of_stage(12)["tensor parallel"][0] > 0.03 * host
    assert pace == pytest.approx(host, rel=1e-6)


def test_what_the_host_leaves_room_for_by_hand() -> None:
    """Of 3 s among ranks a host that issues for 2 s longer than the device runs hides 2."""
    sent = {"tensor parallel": np.full(3, 3.0), TRANSFER: np.ones(3)}
    busy, host = np.full(3, 10.0), np.array([9.0, 12.0, 15.0])

    def seen(model: str) -> list[float]:
        placed = make_request(model, "1x4xA100", tp=2, pp=2, strategy="zero1").placed
        assert placed is not None
        found = beside_host(sent, placed, busy, host)
        assert found[TRANSFER].tolist() == [1.0, 1.0, 1.0]  # the next stage waits for it
        return found["tensor parallel"].tolist()

    assert seen("gpt2") == pytest.approx([3.0, 1.0, 0.0])
    # each layer has the host wait for the tokens of its experts
    assert seen("mixtral-8x7b") == [3.0, 3.0, 3.0]


def test_terms_add_up_to_the_step() -> None:
    for options in ({"tp": 4}, {"tp": 2, "pp": 2, "grad_accum": 8}, {"cp": 2}, {"pp": 8}):
        found = ask(**options)
        parts = {k: v for k, v in found.time_s.items()
                 if k not in ("compute", "communication_hidden")}  # fmt: skip
        assert sum(parts.values()) == pytest.approx(found.step_time_s.value, rel=1e-6), options


@pytest.mark.parametrize("overlap", ["grads", "grads,dgrad", "grads,tensor"])
def test_what_overlap_hides_of_tensor_exchanges_is_told(overlap: str) -> None:
    """Without a pipeline: what overlap takes off the step is communication that is hidden."""
    job: dict[str, Any] = {"tp": 8, "strategy": "zero1", "grad_accum": 4, "software": "plain"}
    bare = ask("1x8xA100", overlap="none", **job).time_s
    found = ask("1x8xA100", overlap=overlap, **job).time_s
    shown, hidden = "communication_exposed", "communication_hidden"
    assert bare[hidden] == pytest.approx(0.0, abs=1e-9)
    assert found[shown] + found[hidden] == pytest.approx(bare[shown], rel=1e-9)
    assert (found[hidden] > 0.1 * bare[shown]) == (overlap != "grads")


def test_memory_falls_with_every_degree() -> None:
    """Model state divides; nothing else grows but buffers."""
    whole = ask("1x1xA100").memory
    for options in ({"tp": 2}, {"tp": 8}, {"pp": 2}, {"cp": 2}):
        gpus = f"1x{int(np.prod(list(options.values())))}xA100"
        cut = ask(gpus, **options).memory
        outside = cut.terms.get("nccl_buffers", 0.0)
        assert cut.device_bytes - outside < whole.device_bytes, options


def test_a_slower_network_never_helps() -> None:
    for options in ({"tp": 8}, {"tp": 2, "pp": 4, "grad_accum": 4}, {"tp": 2, "cp": 4}):
        times = [
            ask("2x8xA100", network=rate, **options).step_time_s.value
            for rate in ("400 Gbit/s", "50 Gbit/s", "5 Gbit/s")
        ]
        assert times == sorted(times), options


def test_tensor_ranks_across_nodes_are_slower_than_within() -> None:
    within = ask("1x8xA100", tp=8).time_s["communication_exposed"]
    across = ask("2x8xA100", tp=16, network="100 Gbit/s").time_s["communication_exposed"]
    assert across > 2 * within


def test_groups_share_the_nodes_network() -> None:
    """8 GPUs a node in tensor groups of 8: each data group has one rank there, 1/8 of the NIC."""
    points = Points.of(
        {"n_ranks": 32.0, "n_nodes": 4.0, "intra_bw_bytes_per_s": 2e11,
         "inter_bw_bytes_per_s": 8e10}, 1,
    )  # fmt: skip
    group = group_of(points, np.array([4.0]), 8.0, 8)
    assert group.n_nodes[0] == 4
    assert group.inter_bw_bytes_per_s[0] == pytest.approx(1e10)
    side_by_side = group_of(points, np.array([8.0]), 1.0, 8)
    assert side_by_side.n_nodes[0] == 1


def test_a_pipelines_ends_keep_their_table_equal() -> None:
    """50257 x 1024 gradients in 16 bit; the eight GPUs of a node share its NICs."""

    def seconds(gpus: str, nodes: float, **options: Any) -> float:
        request = make_request("gpt2-medium", gpus, **{**BASE, **options})
        assert request.placed is not None
        points = Points.of(
            {"micro_batch": 1.0, "n_ranks": 8 * nodes, "n_nodes": nodes,
             "intra_bw_bytes_per_s": 1e11, "inter_bw_bytes_per_s": 8e10, "intra_hop_s": 0.0,
             "inter_hop_s": 0.0}, 1,
        )  # fmt: skip
        return float(tied_s(points, request.placed)[0])

    table = 50257 * 1024 * 2
    assert seconds("1x8xA100", 1.0, pp=4) == pytest.approx(table / 1e11 + 8.4e-6, rel=1e-3)
    assert seconds("2x8xA100", 2.0, pp=4) == pytest.approx(table / 1e10 + 8.4e-6, rel=1e-3)
    half = seconds("2x8xA100", 2.0, pp=4, tp=2)  # of an even vocabulary
    assert half == pytest.approx(table / 2 / 1e10, rel=0.01)
    assert seconds("1x8xA100", 1.0, tp=2) == 0.0


def test_ring_exchange_by_hand() -> None:
    """tp 2: four times a layer b s h in 16 bit, scattered and gathered: half of it each way."""
    request = make_request("gpt2-medium", "1x2xA100", tp=2, **BASE)
    placed = request.placed
    assert placed is not None
    points = Points.of(
        {"micro_batch": 1.0, "n_ranks": 2.0, "n_nodes": 1.0, "intra_bw_bytes_per_s": 1e11,
         "inter_bw_bytes_per_s": 1e10, "intra_hop_s": 0.0, "inter_hop_s": 0.0}, 1,
    )  # fmt: skip
    found = exchanges_s(points, placed, n_layers=24)["tensor parallel"][0]
    bytes_each = 1024 * 1024 * 2
    # four sums a layer in two halves each, and two halves more for the gradients of weights
    assert found == pytest.approx(24 * 5 * 2 * (bytes_each / 2 / 1e11 + 8.4e-6), rel=1e-9)
    assert data_points(points, placed).n_ranks[0] == 1


def test_violations_are_told_together() -> None:
    with pytest.raises(InvalidConfig) as caught:
        api.predict("gpt2-medium", "1x8xA100", tp=3, pp=48)
    assert len(caught.value.violations) == 3
    with pytest.raises(InvalidConfig, match="GPUs of one type"):
        api.predict("gpt2-medium", "1x2xA100+1x2xT4", tp=2, precision="fp16")
    with pytest.raises(InvalidConfig, match="cannot be combined"):
        api.predict("gpt2-medium", "1x8xA100", tp=2, strategy="manual")


def test_logits_do_not_wait_for_weight_gradients() -> None:
    """Of 1024 x 50257 logits, 4 bytes in the loss, a micro-batch that waits has 2."""
    known = resolve_model("gpt2-medium")
    assert isinstance(known, ModelRecord)
    few = known.model_copy(
        update={"config": {**known.config, "layers": 4, "tied": False, "loss": "vocab_parallel"}}
    )

    def kept(schedule: str, accum: float) -> float:
        request = make_request(few, "1x4xA100", **{**BASE, "pp": 4, "schedule": schedule})
        assert request.placed is not None
        one = np.ones(1)
        stages = memory_over(request, one, accum * one, 4 * one, one)
        return float(stages[-1].terms["activations"][0])

    waits = (kept("zb-2p", 64) - kept("zb-1p", 64)) / 4  # of 8 and of 4 in flight
    whole = (kept("gpipe", 64) - kept("gpipe", 32)) / 32
    assert whole - waits == pytest.approx(2 * 1024 * 50257, rel=1e-6)


def test_names_that_nobody_knows_hide_no_other_rule() -> None:
    with pytest.raises(InvalidConfig) as told:
        make_request("llama3-8b", "2x8xH100", tp=3, pp=2, schedule="1f2b", dispatcher="deeep")
    assert len(told.value.violations) == 4
    assert "did you mean '1f1b'" in str(told.value) and "does not divide 16 GPUs" in str(told.value)


def _transfer(**options: Any) -> dict[str, float]:
    """Seconds of a micro-step's transfer between stages, by operation."""
    words = {**BASE, "tp": 8, "pp": 2, **options}
    request = make_request("gpt2-medium", "2x8xV100-SXM-16GB", network="ib-edr", **words)
    assert request.placed is not None
    once = exchanges_of(Points.of(values_of(request), 1), request.placed).once_s
    return {op: float(s[0]) for (name, op), s in once.items() if name == "pipeline transfer"}


def test_whole_norms_are_asked_for_as_a_switch() -> None:
    """The command line's word, and Python's; 4 of 34 s·h a layer are not cut (Korthikanti 2022)."""
    words = {**BASE, "tp": 4, "micro_batch": 4, "recompute": "none"}

    def of(sequence: Any) -> Any:
        return predict(make_request("gpt2-medium", "1x4xA100", sequence_parallel=sequence, **words))

    assert of("off") == of(False)
    assert of("on") == of(None)
    kept = {told: of(told).memory.terms["activations"] for told in ("on", "off")}
    assert kept["off"] > 1.2 * kept["on"]
    with pytest.raises(InvalidConfig, match=r"sequence-parallel 'of'.*off"):
        of("of")


@pytest.mark.parametrize("words", [{}, {"sequence_parallel": False}])
def test_interleaving_by_v_sends_v_times(words: dict[str, Any]) -> None:
    once, twice = (_transfer(vpp=v, **words) for v in (1, 2))
    assert twice == pytest.approx({op: 2 * seconds for op, seconds in once.items()})


def test_messages_of_chunks_hide_unless_told_not_to() -> None:
    """Of two ways to run the same pipeline only what is seen of its messages differs."""
    words = {**BASE, "tp": 8, "pp": 2, "grad_accum": 8, "network": "ib-edr"}

    def told(overlap: str | None, vpp: int) -> tuple[Any, ...]:
        request = make_request(
            "gpt2-medium", "2x8xV100-SXM-16GB", overlap=overlap, vpp=vpp, **words
        )
        steps = steps_of(request, Points.of(values_of(request), 1))
        found = steps.step_s, steps.terms_s["pipeline transfer"]
        return str(request.strategy.overlap), *(float(x[0]) for x in found)

    usual, hidden_s, seen_s = told(None, 2)
    bare_s, all_s = told("grads", 2)[1:]
    assert usual == "grads,pipeline"
    assert 0 < seen_s < all_s
    assert bare_s - hidden_s == pytest.approx(all_s - seen_s)
    assert told(None, 1)[0] == "grads"
    assert told("grads,pipeline", 1)[1:] == told("grads", 1)[1:]  # plain 1F1B cannot


def test_neighbours_of_a_cube_mesh_have_the_links_between_them() -> None:
    """DGX-1: rings over the first 2 GPUs use one NVLink of six, over 4 four, over 8 all."""

    def once(tp: int) -> float:
        words: dict[str, Any] = {**BASE, "micro_batch": 64, "tp": tp, "sequence_parallel": False}
        request = make_request("gpt2-medium", "1x8xV100-SXM-16GB", node="dgx-1", **words)
        assert request.placed is not None
        found = exchanges_of(Points.of(values_of(request), 1), request.placed).once_s
        return float(found["tensor parallel", "all_reduce"][0])

    n_bytes = 64 * 1024 * 1024 * 2
    bus = {tp: 2 * (tp - 1) / tp * n_bytes / once(tp) / 25e9 for tp in (2, 4, 8)}
    assert 0.6 < bus[2] < 1
    assert 4 * 0.6 < bus[4] < 4
    assert 6 * 0.5 < bus[8] < 6


def test_what_stages_send_by_hand() -> None:
    """1024 tokens x 1024 wide x 2 bytes; eight ranks share an EDR port, and each sends a share."""
    whole = _transfer(sequence_parallel=False, software="megatron-whole-sends", micro_batch=16)
    shares = _transfer(sequence_parallel=False, micro_batch=16)
    cut = _transfer(software="megatron-whole-sends", micro_batch=16)
    assert set(whole) == set(cut) == {"send_recv"}  # a cut sequence has a share, and stays cut
    assert set(shares) == {"send_recv", "all_gather"}
    assert shares["send_recv"] == pytest.approx(cut["send_recv"])
    port = 100e9 / 8
    wire = 2 * 8 * 16 * 1024 * 1024 * 2 / port
    assert 1.0 < whole["send_recv"] / wire < 1.15
    assert whole["send_recv"] / shares["send_recv"] == pytest.approx(8, rel=0.01)
    # there and back over six links of NVLink, 150 GB/s at most
    nvlink = 2 * 7 / 8 * 16 * 2**21 / 150e9
    assert nvlink < shares["all_gather"] < 2 * nvlink


def test_what_hides_on_the_same_nics_shares_them() -> None:
    """Backward of 10 s covers 6 s of gradients and 4 s of experts, and no more of either."""
    request = make_request(
        "mixtral-8x7b", "2x8xA100", tp=2, ep=8, expert_tp=2, overlap="grads,experts",
        strategy="zero1", micro_batch=1, seq_len=512, recompute="none",
    )  # fmt: skip
    placed = request.placed
    assert placed is not None
    local = Points.of({"n_ranks": 8.0, "n_nodes": 2.0}, 1)

    def shared(gradients: float, experts: float) -> float:
        steps = SimpleNamespace(
            comm_beside_s=np.array([gradients]), terms_s={"backward": np.array([10.0])}
        )
        whole = {"expert parallel": np.array([2 * experts])}  # half of it in forward
        seen = {"expert parallel": np.array([0.0])}
        found = shared_nic_s(steps, whole, seen, placed, local, np.zeros(1))  # type: ignore[arg-type]
        return float(found[0])

    assert shared(6.0, 4.0) == 0.0
    assert shared(9.0, 4.0) == pytest.approx(3.0)
    assert shared(12.0, 4.0) == pytest.approx(4.0)
    assert shared(0.0, 40.0) == 0.0
