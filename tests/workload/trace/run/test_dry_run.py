"""Dry runs of small training scripts against counts by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from setups import BATCH, LENGTH, SETUPS, VOCABULARY, WIDTH, train  # noqa: E402

import simcore  # noqa: E402
from simcore.base.errors import UsageError  # noqa: E402

#: Parameters of a layer (norm, up, down), of embedding and head together, and of all.
LAYER = 2 * WIDTH + 4 * WIDTH * (WIDTH + 1) + WIDTH * (4 * WIDTH + 1)
OUTER = 2 * VOCABULARY * WIDTH
ALL = 3 * LAYER + OUTER


@cache
def captured(name: str, world_size: int = 2, rank: int = 0, **options: Any) -> Any:
    with simcore.dry_run("1x8xH100", world_size=world_size, rank=rank, source="small.py") as job:
        step = SETUPS[name](**options)
        for _ in range(3):
            step()
    return job


def kinds(job: Any) -> dict[tuple[str, str, int, int], int]:
    """Number of collectives by phase, kind, ranks and bytes."""
    counts: dict[tuple[str, str, int, int], int] = {}
    for c in job.collectives:
        key = (c.phase, c.kind, c.group_size, c.n_bytes)
        counts[key] = counts.get(key, 0) + 1
    return counts


def test_ddp_with_accumulation_and_recompute() -> None:
    job = captured("accumulated")
    assert job.bytes["parameters"] == job.bytes["gradients"] == 4 * ALL
    assert job.bytes["optimizer_state"] == 8 * ALL
    assert kinds(job) == {("backward", "all-reduce", 2, 4 * ALL): 2}
    assert {k: job.options[k] for k in ("strategy", "grad_accum", "recompute", "optimizer")} == {
        "strategy": "ddp", "grad_accum": 2, "recompute": "full", "optimizer": "adamw",
    }  # fmt: skip


def test_fsdp2_shards_everything_and_gathers_each_layer_twice() -> None:
    job = captured("fsdp2")
    assert job.bytes["parameters"] == job.bytes["gradients"] == 4 * ALL // 2
    assert job.bytes["optimizer_state"] == 8 * ALL // 2
    tensors = 3 * 6 + 2  # of which each rank's norm is gathered to clip
    assert kinds(job) == {
        ("forward", "all-gather", 2, 4 * OUTER): 1,
        ("forward", "all-gather", 2, 4 * LAYER): 3,
        ("backward", "all-gather", 2, 4 * LAYER): 3,
        ("backward", "reduce-scatter", 2, 4 * LAYER): 3,
        ("backward", "reduce-scatter", 2, 4 * OUTER): 1,
        ("between", "all-reduce", 2, 4 * tensors): 1,
    }
    assert job.options["strategy"] == "zero3"
    assert job.options["grad_clip"] is True


def test_hsdp_reduces_shards_between_groups() -> None:
    job = captured("hsdp", world_size=8)
    assert job.bytes["parameters"] == 4 * ALL // 4
    assert (job.options["strategy"], job.options["shard_ranks"]) == ("hsdp", 4)
    assert kinds(job)["backward", "all-reduce", 2, LAYER] == 3
    assert kinds(job)["backward", "reduce-scatter", 4, 4 * LAYER] == 3


def test_tensor_ranks_sum_each_layer_once_a_pass() -> None:
    job = captured("tensor")
    whole = 2 * WIDTH + WIDTH  # norm and the bias of ``down`` are on every rank
    assert job.bytes["parameters"] == 4 * (3 * ((LAYER - whole) // 2 + whole) + OUTER)
    activation = 4 * BATCH * LENGTH * WIDTH
    assert kinds(job) == {
        ("forward", "all-reduce", 2, activation): 3, ("backward", "all-reduce", 2, activation): 3,
    }  # fmt: skip
    assert job.options["tp"] == 2


def test_a_saved_job_is_predicted_without_torch_as_the_dry_run_is(tmp_path: Path) -> None:
    job = captured("fsdp2", world_size=8)
    file = tmp_path / "job.yaml"
    job.save(file)
    code = (
        "import sys, simcore; p = simcore.predict(sys.argv[1], '1x8xH100');"
        "assert 'torch' not in sys.modules; print(repr(p.step_time_s.value))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True
    )
    assert float(shown.stdout) == job.predict().step_time_s.value
    assert "dry run of small.py, torch" in file.read_text()
    words = ["simcore", "predict", "--model", str(file), "--json"]  # on the cluster of the run
    answer = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
    assert json.loads(answer.stdout)["step_time_s"]["value"] == job.predict().step_time_s.value


def test_values_of_the_device_are_refused_with_file_and_line() -> None:
    with pytest.raises(UsageError, match=r"test_dry_run.py:\d+.*reads a torch.int64"):  # noqa: SIM117
        with simcore.dry_run("1xH100"):
            x = torch.randint(0, 9, (4,), device="cuda")
            if x.sum().item() > 3:
                pass


def test_a_run_without_a_step_says_so() -> None:
    with pytest.raises(UsageError, match="saw no training step"), simcore.dry_run("1xH100"):
        torch.zeros(3)


@pytest.mark.parametrize(("gpus", "sms"), [("2xH100", 132), ("2xA100-80G", 108)])
def test_a_script_is_told_the_multiprocessors_of_its_gpu(gpus: str, sms: int) -> None:
    with simcore.dry_run(gpus, source="small.py"):
        assert torch.cuda.get_device_properties(0).multi_processor_count == sms
        step = SETUPS["accumulated"]()
        for _ in range(3):
            step()


def test_torch_is_as_before_afterwards() -> None:
    before = torch.cuda.is_available, torch.nn.Module.__call__, torch.nn.Module._apply
    captured("single", world_size=1)
    assert before == (torch.cuda.is_available, torch.nn.Module.__call__, torch.nn.Module._apply)
    assert torch.zeros(2).sum().item() == 0.0
    assert not torch.distributed.is_initialized()


def test_stages_of_a_pipeline_are_joined() -> None:
    first, last = (captured("pipeline", rank=rank) for rank in (0, 1))
    with pytest.raises(UsageError, match="stage 0 of 2"):
        first.predict()
    whole = last.joined(first)
    assert whole.record.params.value == 4 * LAYER + OUTER
    assert {k: whole.options[k] for k in ("pp", "schedule", "grad_accum", "stages")} == {
        "pp": 2, "schedule": "1f1b", "grad_accum": 4, "stages": "2,2",
    }  # fmt: skip
    workload = whole.record.build()
    products = 2 * LENGTH * (4 * 8 * WIDTH**2 + VOCABULARY * WIDTH)  # 2 FLOP a multiply-add
    assert workload.forward_flop == pytest.approx(products, rel=0.05)
    assert whole.predict("1x2xH100").fits


def test_stages_of_one_layer_with_copies_that_average_nothing() -> None:
    first, last = (captured("pipeline", 8, rank, per_stage=1) for rank in (0, 4))
    whole = first.joined(last)
    assert {k: whole.options[k] for k in ("pp", "strategy", "stages")} == {
        "pp": 2, "strategy": "ddp", "stages": "1,1",
    }  # fmt: skip
    assert any("averages no gradients over its 4 replicas" in n for n in whole.record.notes)
    assert whole.predict().fits


def test_experts_on_other_ranks_are_priced_with_their_exchanges() -> None:
    job = captured("experts", 8)
    tokens = 4 * BATCH * LENGTH * WIDTH
    found = kinds(job)
    assert found["forward", "all-to-all", 4, tokens] == 2 * 3
    assert found["backward", "all-to-all", 4, tokens] == 2 * 3
    assert job.options["strategy"] == "manual"  # gradients are averaged by hand
    (exchange,) = job.record.captured.exchanges
    assert (exchange.op, exchange.ranks, exchange.stride) == ("all_to_all", 4, 1)
    assert (exchange.n_bytes * BATCH, exchange.times, exchange.per_sample) == (tokens, 12, True)
    seen = replace(job.record, captured=replace(job.record.captured, exchanges=()))
    with_, without = job.predict("8x8xH100"), simcore.predict(seen, "8x8xH100")
    assert with_.time_s["communication_exposed"] > without.time_s["communication_exposed"]


def test_features_that_a_script_gathers_of_all_ranks_belong_to_the_loss() -> None:
    import torch.distributed as dist
    from torch.distributed.nn.functional import all_gather

    with simcore.dry_run("1x8xH100") as job:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH))
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(2):
            every = torch.cat(all_gather(model(torch.randn(BATCH, WIDTH)), dist.group.WORLD))
            (every @ every.T).logsumexp(-1).sum().backward()
            optimizer.step()
    ranks = 8
    (exchange, *others) = job.record.captured.exchanges
    assert (exchange.op, exchange.n_bytes) == ("all_gather", 4 * WIDTH * ranks)
    assert [e.ranks for e in (exchange, *others)] == [0] * (1 + len(others))
    products = 2 * WIDTH * (WIDTH + ranks**2 * BATCH)  # a sample's: the layer's, those of all pairs
    assert job.record.build().forward_flop >= products


def test_context_ranks_gather_keys_and_values() -> None:
    from llama import CONFIG, Llama
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel

    length, ranks = 64, 4
    with simcore.dry_run("1x8xH100") as job:
        mesh = init_device_mesh("cuda", (2, ranks), mesh_dim_names=("data", "context"))
        model = torch.nn.parallel.DistributedDataParallel(Llama().cuda())
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(2):
            x = torch.randint(0, 9, (1, length), device="cuda")
            with context_parallel(mesh["context"], buffers=[x], buffer_seq_dims=[1]):
                model(x).logsumexp(-1).sum().backward()
            optimizer.step()
    both = 4 * 2 * length * CONFIG.hidden_size  # keys and values of all tokens
    assert kinds(job)["forward", "all-gather", ranks, both] == CONFIG.num_hidden_layers
    assert {k: job.options[k] for k in ("cp", "cp_comm", "strategy")} == {
        "cp": ranks, "cp_comm": "all-gather", "strategy": "ddp",
    }  # fmt: skip
    assert job.record.build().tokens_per_sample == length
    assert job.predict().fits


def test_a_traced_model_is_divided_as_the_script_divides_it() -> None:
    job = captured("tensor")
    one, both = job.record.build(), job.record.build(tensor_ranks=2)
    layers = [b for b in both.blocks if b.recomputable]
    whole = [b for b in one.blocks if b.recomputable]
    assert [b.numel for b in whole] == [LAYER]
    assert [b.numel for b in layers] == [(LAYER - 3 * WIDTH) // 2 + 3 * WIDTH]
    assert job.predict("1x2xH100").fits
    with pytest.raises(UsageError, match="tp can be 2 or 1"):
        job.predict(tp=4)


def test_scaled_fp16_training_from_a_shuffled_loader() -> None:
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.zeros(12, LENGTH, dtype=torch.long))
    with simcore.dry_run("1xH100") as job:
        model, scaler = SETUPS["single"]().model.cuda(), torch.amp.GradScaler("cuda")
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        for (x,) in DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=2):
            with torch.amp.autocast("cuda", dtype=torch.float16):
                loss = model(x.cuda()).float().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert {k: job.options[k] for k in ("precision", "optimizer", "num_workers")} == {
        "precision": "amp-fp16", "optimizer": "sgd", "num_workers": 2,
    }  # fmt: skip
    assert job.bytes["optimizer_state"] == job.bytes["gradients"] == 4 * ALL


def test_ddp_that_looks_for_unused_parameters_and_starts_its_group_itself() -> None:
    import torch.distributed as dist

    with simcore.dry_run("1x2xH100") as job:
        dist.init_process_group("nccl")
        model = torch.nn.parallel.DistributedDataParallel(
            SETUPS["single"]().model, device_ids=[0], find_unused_parameters=True
        )
        step = train(model)
        step()
        step()
        dist.destroy_process_group()
    tensors = 3 * 6 + 2  # a whole number each says whether it was used
    assert kinds(job) == {
        ("backward", "all-reduce", 2, 4 * ALL): 1, ("backward", "all-reduce", 2, 4 * tensors): 1,
    }  # fmt: skip


def test_a_loss_in_chunks_is_refused() -> None:
    """The last backward would stand for the head alone."""
    with pytest.raises(UsageError, match="a loss in chunks, or models trained in turn"):  # noqa: SIM117
        with simcore.dry_run("1xH100"):
            body, head = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
            optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()])
            for _ in range(2):
                hidden = body(torch.randn(BATCH, WIDTH, device="cuda"))
                cut = hidden.detach().requires_grad_()
                for part in cut.chunk(2):
                    head(part).sum().backward()
                hidden.backward(cut.grad)
                optimizer.step()
