"""The seed documents' own tables: what a row of each becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcore.validate.table import Table, read_table


def read(tmp_path: Path, *lines: str) -> Table:
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_table(path)


def test_latte_s_rates_and_memory_in_si(tmp_path: Path) -> None:
    table = read(
        tmp_path,
        "model,gpu,nodes,gpus_per_node,local_batch,num_workers,iter_per_s,samples_per_s,mem_gb,note",
        "latte-l,RTX4090,2,8,,,1.6,25.6,18.9,", "latte-l,RTX4090,1,1,4,16,0,,,an anomaly",
    )  # fmt: skip
    first, second = table.cases
    assert table.format == first.table == "latte"
    assert (first.model, first.gpus) == ("latte-l", "2x8xRTX4090")
    assert first.options == {"micro_batch": 1, "strategy": "ddp"}
    assert first.measured == {
        "step_time_s": 0.625, "samples_per_s": 25.6, "peak_memory_bytes": 18.9e9,
    }  # fmt: skip
    assert second.options == {"micro_batch": 4, "strategy": "ddp", "num_workers": 16}
    assert second.measured == {}
    assert (first.flag, second.flag) == ("", "an anomaly")


def test_bert_and_mnist_are_whole_runs_on_cards_that_are_assumed(tmp_path: Path) -> None:
    table = read(
        tmp_path, "task,cluster,total_s", "bert,1x2xA100+1x3xT4,500", "mnist,1x1xV100,70",
        "gpt,1x1xV100,70",
    )  # fmt: skip
    bert, mnist = table.cases
    assert (bert.table, bert.model, bert.gpus) == (
        "bert", "bert-base", "1x2xA100-PCIE-80GB+1x3xT4",
    )  # fmt: skip
    assert bert.options == {"strategy": "ddp", "network": "eth-10"}
    assert bert.measured == {"run_time_s": 500.0} and not bert.work_known
    assert "network" not in mnist.options and mnist.work_known
    assert (mnist.train_samples, mnist.eval_samples) == (14 * 60_000, 14 * 10_000)
    assert table.skipped[0].reason == "unknown task 'gpt'"


def test_opensora_s_columns_are_bytes_and_seconds(tmp_path: Path) -> None:
    (row,) = read(
        tmp_path, "gpus,local_batch,images_per_s,step_ms,optimizer_gb,final_gpu_gb",
        "4,1,1.7,2330,14,15",
    ).cases  # fmt: skip
    assert (row.model, row.gpus) == ("stdit-xl-2", "1x4xMTT-S4000")
    assert row.options == {"micro_batch": 1, "strategy": "zero2", "software": "colossalai"}
    assert row.measured == {
        "step_time_s": pytest.approx(2.33), "samples_per_s": 1.7,
        "memory_resident_bytes": 15 * 2**30,
        "memory_resident_but_half_weights_bytes": 14 * 2**30,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cluster", "gbps", "network"),
    [
        ("1x2xRTX3090", "", None),  # within one node
        ("1x2xRTX3090", "10", None),
        ("2x1xA2000", "", "eth-2.5"),
        ("2x1xA2000", "10", "eth-10"),
        ("1x1xA2000+1x1xA16", "10", "eth-10"),
    ],
)
def test_networks_of_resnet_s_machines(
    tmp_path: Path, cluster: str, gbps: str, network: str | None
) -> None:
    (row,) = read(
        tmp_path, "cluster,strategy,network_gbps", f"{cluster},manual_allreduce,{gbps}"
    ).cases
    assert row.options.get("network") == network
    assert row.options["strategy"] == "manual" and row.model == "resnet-152-cifar"
