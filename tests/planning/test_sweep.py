"""A sweep says of each point what ``predict`` says, loses none, and goes on where it stopped."""

from __future__ import annotations

import csv
import json
import resource
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from simcore import api
from simcore.base.errors import InvalidConfig, UsageError
from simcore.base.units import KIB
from simcore.planning import evaluator, store
from simcore.planning.points import reason_of
from simcore.planning.ranking import front
from simcore.planning.space import make_space
from simcore.planning.sweep import SweepResult, run_sweep

EXACT = 1e-9


def main_grads_of(result: SweepResult, index: int) -> str | None:
    """A word that points have but columns do not."""
    for batch in result.batches:
        if index < len(batch):
            return dict(batch.form.options).get("main_grads")  # type: ignore[union-attr]
        index -= len(batch)
    return None


def agrees_with_predict(result: SweepResult, rows: int, seed: int, **told: str) -> None:
    columns = result.columns()
    assert result.space is not None
    told |= {k: v for k, v in result.space.fixed if k == "software"}
    assert len(columns["step_time_s"]) == result.n_evaluated > 0
    for i in Random(seed).sample(range(result.n_evaluated), min(rows, result.n_evaluated)):
        row = {k: v[i] for k, v in columns.items()}
        said = api.predict(
            str(row["model"]), str(row["cluster"]),
            strategy=str(row["strategy"]), precision=str(row["precision"]),
            recompute=str(row["recompute"]), micro_batch=int(row["micro_batch"]),
            grad_accum=int(row["grad_accum"]), optimizer=str(row["optimizer"]),
            main_grads=main_grads_of(result, i),
            seq_len=int(row["seq_len"]) if row["seq_len"] else None,
            **{d: int(row[d]) for d in ("tp", "pp", "vpp", "cp", "ep")},
            **told,
        )  # fmt: skip
        assert row["step_time_s"] == pytest.approx(said.step_time_s.value, rel=EXACT)
        assert row["memory_bytes"] == pytest.approx(said.memory.device_bytes, rel=EXACT)
        assert row["samples_per_s"] == pytest.approx(said.samples_per_s, rel=EXACT)
        assert row["global_batch"] == said.global_batch
        assert bool(row["fits"]) == said.fits


def test_data_parallel_points_equal_predictions() -> None:
    words = {"strategy": "all", "micro_batch": "1,3", "recompute": "none,full"}
    result = api.sweep("latte-l", "A6000ada:1,2,5x4,8", **words)
    agrees_with_predict(result, 25, 1)
    assert result.n_done == result.n_points == 7 * 6 * 2 * 2
    assert result.n_done == result.n_fit + sum(result.invalid.values())


def test_layouts_equal_predictions() -> None:
    result = api.sweep(
        "llama3-8b", ["H100:1,2,4x8", "1x8xA100"], strategy="ddp,zero1,zero3", precision="bf16",
        tp="1,2,8", pp="1,2,4", vpp="1,2", cp="1,2", micro_batch="1,2", global_batch=64,
    )  # fmt: skip
    agrees_with_predict(result, 40, 2)
    assert any("does not divide" in reason for reason in result.invalid)


@pytest.mark.parametrize("schedule", ["gpipe", "zb-1p", "dualpipe"])
def test_schedules_equal_predictions(schedule: str) -> None:
    """GPipe holds every micro-batch of a step, however many."""
    result = api.sweep(
        "llama3-8b", "H100:2x8", strategy="zero1", precision="bf16", tp="2", pp="4",
        schedule=schedule, grad_accum="1..6,40", micro_batch="1",
    )  # fmt: skip
    agrees_with_predict(result, 40, 3, schedule=schedule)


def test_a_programs_own_schedule_equals_predictions() -> None:
    """Nobody names DualPipe; DeepSeek-V3's program has it, and takes even micro-batches alone."""
    result = api.sweep(
        "deepseek-v3", "H100:16x8", strategy="zero1", precision="bf16", software="deepseek-v3",
        pp="4,8", ep="16", grad_accum="15,16", micro_batch="1",
    )  # fmt: skip
    agrees_with_predict(result, 4, 4, software="deepseek-v3")
    assert result.n_evaluated == 2
    assert result.invalid["schedule dualpipe needs an even grad-accum"] == 2


def test_experts_over_as_many_tensor_ranks_as_each_cluster_allows_equal_predictions() -> None:
    """Stages of 8 ranks hold eight experts once; those of 16 divide each over two tensor ranks."""
    result = api.sweep(
        "mixtral-8x7b", "H100:2,4x8", strategy="zero1", precision="bf16", software="megatron-lm",
        tp="2", pp="2", ep="8", grad_accum="4", micro_batch="1",
    )  # fmt: skip
    agrees_with_predict(result, 2, 5, software="megatron-lm")
    small, large = result.columns()["memory_bytes"]
    assert small > 1.4 * large


def test_uneven_shares_equal_predictions() -> None:
    """Each point deals out its batch as a prediction of it does, and needs what that needs."""
    result = api.sweep(
        "latte-xl", ["1x8xA100+1x8xT4", "1x4xH100+1x8xA6000ada", "1x8xH100"], strategy="ddp,zero1",
        shares="even,auto,3:1", micro_batch="1,2,8", grad_accum="1,2",
    )  # fmt: skip
    columns = result.columns()
    told = set()
    for i in range(result.n_evaluated):
        row = {k: v[i] for k, v in columns.items()}
        shares = str(row["more"]).removeprefix("shares ") or "equal"
        said = api.predict(
            "latte-xl", str(row["cluster"]), strategy=str(row["strategy"]), shares=shares,
            micro_batch=int(row["micro_batch"]), grad_accum=int(row["grad_accum"]),
        )  # fmt: skip
        told.add(shares)
        assert row["step_time_s"] == pytest.approx(said.step_time_s.value, rel=EXACT)
        assert row["memory_bytes"] == pytest.approx(said.memory.device_bytes, rel=EXACT)
        assert row["capacity_bytes"] == pytest.approx(said.memory.capacity_bytes, rel=EXACT)
        assert row["fits"] == said.memory.fits
    assert told == {"equal", "auto", "3:1"}
    reasons = " ".join(result.invalid)
    assert "need GPUs of several kinds" in reasons and "no whole samples" in reasons
    assert sum(result.invalid.values()) + result.n_fit == result.n_points


def test_uneven_shares_survive_a_file(tmp_path: Path) -> None:
    words = {"strategy": "zero1", "shares": "equal,auto", "micro_batch": "2,4"}
    clusters = ["1x4xH100+1x8xA6000ada"]
    kept = api.sweep("latte-xl", clusters, **words)
    api.sweep("latte-xl", clusters, output=tmp_path / "points.csv", **words)
    with (tmp_path / "points.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = kept.columns()
    for name in ("step_time_s", "memory_bytes", "capacity_bytes"):
        assert [float(r[name]) for r in rows] == columns[name].tolist()
    assert len({r["capacity_bytes"] for r in rows}) > 1, "of the kind that is fullest"


def test_unequal_stages_equal_predictions() -> None:
    """Each point has the cut that a prediction of it finds, whatever its cluster and batch."""
    result = api.sweep(
        "llama3-8b", "H100:1,4x8", strategy="zero1", precision="bf16", tp="2", pp="2,4",
        stages="even;auto;9,rest,7", micro_batch="1,4", global_batch="64,512",
        recompute="selective",
    )  # fmt: skip
    columns = result.columns()
    seen = set()
    for i in range(result.n_evaluated):  # of auto the row says auto, and so finds the same cut
        row = {k: v[i] for k, v in columns.items()}
        cut = str(row["more"]).removeprefix("software auto, stages ")
        words = {
            "strategy": "zero1", "precision": "bf16", "recompute": "selective", "tp": 2,
            "pp": int(row["pp"]), "micro_batch": int(row["micro_batch"]),
            "grad_accum": int(row["grad_accum"]),
        }  # fmt: skip
        said = api.predict("llama3-8b", str(row["cluster"]), stages=cut, software="auto", **words)
        assert row["step_time_s"] == pytest.approx(said.step_time_s.value, rel=EXACT)
        assert row["memory_bytes"] == pytest.approx(said.memory.device_bytes, rel=EXACT)
        if cut == "auto":
            seen.add(said.layout.partition("stages ")[2])
    assert len(seen) > 2, "the cuts differ between points"
    assert result.n_evaluated == 2 * 2 * 2 * (3 + 2)


def test_experts_equal_predictions() -> None:
    result = api.sweep(
        "mixtral-8x7b", "H100:2,4x8", strategy="zero1", precision="bf16", tp="1,4", ep="1,4,8",
        micro_batch=1, recompute="all",
    )  # fmt: skip
    agrees_with_predict(result, 12, 3)


def test_mixed_clusters_and_sequence_lengths() -> None:
    result = api.sweep(
        "llama3.2-1b", "A100:1..2x4+1x2xT4", strategy="ddp,zero2", precision="fp16",
        seq_len="512,1024", micro_batch="1..2",
    )  # fmt: skip
    agrees_with_predict(result, 16, 4)
    assert set(result.columns()["seq_len"]) == {512, 1024}


def test_points_fall_out_for_one_reason_whatever_their_layout() -> None:
    """One line, without the degrees, the schedule or the cut of the points."""
    result = api.sweep(
        "llama3.2-1b", "1x8xH100", strategy="dp", tp="1,2", pp="2,4", stages="auto;even",
        global_batch=8,
    )  # fmt: skip
    assert dict(result.invalid) == {"strategy dp cannot be combined with tp, pp, cp or ep": 8}


def test_axes_without_a_column_of_their_own_are_told_apart_and_exact() -> None:
    """Hybrid shards change the graph with the cluster; networks and widths stay apart."""
    result = api.sweep(
        "llama3.2-1b", "H100:1,2,4x8", strategy="zero1,zero3", precision="bf16", shard_ranks="4,8",
        main_grads="weights,fp32", network="ib-ndr,eth-25", recompute="none,selective",
    )  # fmt: skip
    columns = result.columns()
    assert len(columns["more"]) == result.n_evaluated == 96
    for i in Random(5).sample(range(96), 24):
        row = {k: v[i] for k, v in columns.items()}
        more = dict(part.split(" ") for part in str(row["more"]).split(", "))
        said = api.predict(
            "llama3.2-1b", str(row["cluster"]), strategy=str(row["strategy"]), precision="bf16",
            recompute=str(row["recompute"]), shard_ranks=int(more["shard-ranks"]),
            main_grads=more["main-grads"], network=str(row["network"]) or None,
        )  # fmt: skip
        assert row["step_time_s"] == pytest.approx(said.step_time_s.value, rel=EXACT)
        assert row["memory_bytes"] == pytest.approx(said.memory.device_bytes, rel=EXACT)
    told = set(zip(*(columns[k] for k in ("cluster", "network", "strategy", "recompute", "more")),
                   strict=True))  # fmt: skip
    assert len(told) == 80, "all but the networks of one node, which no network joins"


def test_the_front_is_what_nothing_beats() -> None:
    rng = np.random.default_rng(11)
    for _ in range(20):
        resource = rng.integers(1, 5, 30).astype(float)
        gain = rng.integers(0, 6, 30).astype(float)
        found = front(resource, gain, rng.random(30))
        for i in range(30):
            if found[i]:
                assert gain[i] > 0
                assert not (gain[resource < resource[i]] >= gain[i]).any()
                assert gain[i] == gain[resource == resource[i]].max()
        for r in np.unique(resource):
            assert found[resource == r].sum() <= 1
            best = gain[resource <= r].max()
            assert best == gain[found & (resource <= r)].max(initial=0.0)


def test_the_ranking_is_that_of_all_points_that_fit() -> None:
    result = api.sweep(
        "latte-xl", "A6000ada:1..6x8", strategy="all", micro_batch="1..6", top=7, by="per-gpu"
    )
    columns = result.columns()
    score = np.where(columns["fits"], columns["samples_per_s_per_gpu"], -np.inf)
    best = np.sort(score)[::-1][:7]
    assert [p.samples_per_s_per_gpu for p in result.best] == pytest.approx(best.tolist())
    assert all(p.fits for p in result.best)


def test_a_wrong_axis_tells_everything() -> None:
    with pytest.raises(InvalidConfig) as err:
        api.sweep("nope", "A6000ad:1x8", tp="0", strategy="zer", global_batch=4, grad_accum=2)
    text = str(err.value)
    for part in ("'nope'", "A6000ad", "--tp", "'zer'", "not both"):
        assert part in text
    with pytest.raises(InvalidConfig) as err:
        api.sweep("latte-s", "1x8xH100", micro_batch="max", offload="none,optimiser")
    assert "1..64*2" in str(err.value)
    assert "did you mean 'optimizer'" in str(err.value)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


WORDS = {"strategy": "all", "micro_batch": "1..4"}


def test_outputs_hold_the_same_points(tmp_path: Path) -> None:
    kept = api.sweep("latte-s", "A6000ada:1..3x8", **WORDS)
    for name in ("a.csv", "a.json", "a.parquet"):
        done = api.sweep("latte-s", "A6000ada:1..3x8", output=tmp_path / name, **WORDS)
        assert done.finished
        assert done.n_evaluated == kept.n_evaluated
    assert not list(tmp_path.glob("*.parts"))
    rows = read_csv(tmp_path / "a.csv")
    told = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert told["invalid"] == kept.invalid
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert len(rows) == len(told["points"]) == len(table) == kept.n_evaluated
    steps = kept.columns()["step_time_s"].tolist()
    assert [float(r["step_time_s"]) for r in rows] == steps
    assert [p["step_time_s"] for p in told["points"]] == steps
    assert [p["step_time_s"] for p in table] == steps
    assert table[5] == told["points"][5]


@pytest.mark.parametrize("stop_after", [2, 5, 10])
def test_an_interrupted_sweep_goes_on_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    monkeypatch.setattr(evaluator, "MAX_CALL", 5)  # several pieces a unit
    monkeypatch.setattr(store, "PART_POINTS", 7)
    space = make_space("latte-s", "A6000ada:1..3x8", **WORDS)
    whole = tmp_path / "whole.csv"
    full = run_sweep(space, output=whole)
    assert full.finished

    calls = 0

    def interrupt(done: int, total: int, best: object) -> None:
        nonlocal calls
        calls += 1
        if calls == stop_after:
            raise KeyboardInterrupt

    path = tmp_path / "part.csv"
    stopped = run_sweep(space, output=path, progress=interrupt)
    assert not stopped.finished
    assert 0 < stopped.n_done < full.n_done
    assert not path.exists()
    with pytest.raises(UsageError, match="--resume"):
        run_sweep(space, output=path)
    other = make_space("latte-s", "A6000ada:1..4x8", **WORDS)
    with pytest.raises(UsageError, match="another sweep"):
        run_sweep(other, output=path, resume=True)

    seen: list[int] = []
    ended = run_sweep(space, output=path, resume=True, progress=lambda d, t, b: seen.append(d))
    assert seen[0] == stopped.n_done < seen[1]  # what was done is not done again
    assert ended.finished
    assert ended.n_done == full.n_done
    assert ended.invalid == full.invalid
    assert [p.to_dict() for p in ended.best] == [p.to_dict() for p in full.best]
    assert path.read_bytes() == whole.read_bytes()


def test_a_front_keeps_what_nothing_beats() -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        costs = rng.integers(0, 6, size=(40, 2)).astype(float)
        kept = front(costs[:, 0], -costs[:, 1], np.arange(40), least=-np.inf)
        unbeaten = {
            tuple(row)
            for row in costs
            if not any((other <= row).all() and (other < row).any() for other in costs)
        }  # every pair
        assert sorted(map(tuple, costs[kept])) == sorted(unbeaten)  # one of equal rows


def test_many_micro_step_counts_equal_predictions() -> None:
    """Most of these are not evaluated but known from others (timing.convex)."""
    result = api.sweep(
        "llama3-8b", "H100:1,3x8,2x8xA100", strategy="ddp,zero1,zero3", precision="bf16,fp16",
        tp="1,2", pp="1,2", recompute="none,full", micro_batch="1,2", grad_accum="1..40",
        main_grads="weights,fp32",
    )  # fmt: skip
    agrees_with_predict(result, 40, 5)
    mixed = api.sweep(
        "latte-s", "A100:1x2,4+1x2xT4", strategy="all", micro_batch="1,5", grad_accum="1..30"
    )
    agrees_with_predict(mixed, 30, 6)
    batches = api.sweep(
        "llama3-8b", "H100:1..8x8", strategy="zero1", precision="bf16", tp="1,2",
        global_batch="64..2048:64", micro_batch="1,2,3",
    )  # fmt: skip
    agrees_with_predict(batches, 30, 7)
    assert "global-batch is not a multiple of micro-batch x replicas" in batches.invalid


def test_the_benchmark_holds_what_it_times_against_predictions() -> None:
    from benchmarks.sweep import SPACES, run

    assert {"small", "dense", "moe"} <= SPACES.keys()
    before = KIB * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # of all tests so far
    found = run("small", checks=5)
    assert found["points"] == 10 * 3 * 2 * 4 * 2 * 4 * 64
    assert found["worst_error_frac"] <= EXACT  # type: ignore[operator]
    assert found["peak_bytes"] < max(2e9, 1.1 * before)  # type: ignore[operator]


@pytest.mark.parametrize("exponent", range(4, 9))
def test_the_spaces_of_the_scaling_benchmark_have_their_size(exponent: int) -> None:
    from benchmarks.sweep_scaling import MODEL, words_of

    words = words_of(10**exponent)
    assert len(make_space(MODEL, words.pop("gpus"), **words)) == pytest.approx(
        10**exponent, rel=0.2
    )


def test_schedules_are_an_axis_and_dualpipe_takes_even_counts() -> None:
    space = make_space("llama3.2-1b", "1x8xH100", pp=4, schedule="1f1b,dualpipe", grad_accum="1..4",
                       micro_batch=1, strategy="zero1")  # fmt: skip
    found = run_sweep(space)
    assert found.invalid == {"schedule dualpipe needs an even grad-accum": 2}
    assert found.n_points == 8


def test_words_of_a_point_are_those_of_the_command_line() -> None:
    options: dict[str, Any] = {"settings": {"layers": 6, "tied": False}, "grad_clip": True}
    found = run_sweep(make_space("gpt2", "8xH100", **options))
    assert found.best[0].form.more == "grad-clip on, set layers=6 tied=false"


def test_a_reason_keeps_the_numbers_of_quoted_words() -> None:
    assert reason_of("unknown release 'v1': 3 known") == "unknown release 'v1': N known"


def test_sequences_of_different_lengths_are_ranked_by_tokens() -> None:
    """Samples a second would rank the shortest sequences first, however few tokens they train."""
    found = api.sweep("gpt2", "1xH100", seq_len="128,1024", micro_batch="4", top=2)
    columns = found.columns()
    assert columns["tokens_per_s"].tolist() == pytest.approx(
        (columns["samples_per_s"] * columns["seq_len"].astype(float)).tolist(), rel=EXACT
    )
    short, long = (p for s in (128, 1024) for p in found.best if p.form.seq_len == s)
    assert short.samples_per_s > long.samples_per_s
    assert long.tokens_per_s > short.tokens_per_s  # type: ignore[operator]
    assert found.best[0] is long
    by_samples = api.sweep("gpt2", "1xH100", seq_len="128,1024", micro_batch="4", by="samples")
    assert by_samples.best[0].form.seq_len == 128


def test_a_model_without_text_is_not_ranked_by_tokens() -> None:
    with pytest.raises(UsageError, match="has no tokens: rank by throughput or samples"):
        api.sweep("resnet-50", "1xH100", by="tokens")
    point = api.sweep("resnet-50", "1xH100").best[0]
    assert point.tokens_per_s is None and point.to_dict()["tokens_per_s"] is None
