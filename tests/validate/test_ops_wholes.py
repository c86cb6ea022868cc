"""Collectives inside a node and passes of whole models, as ``validate ops`` judges them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simcore import api
from simcore.base.database import read_yaml, shipped_root
from simcore.base.errors import UsageError
from simcore.base.units import MICRO
from simcore.calibrate.ops.collective_rows import CollectiveCurve
from simcore.validate.collectives import CollectiveProfile
from simcore.validate.end_to_end import _workload

COMM = "source,gpu_type,gpus,nodes,intra_link,collective,algo,size_bytes,time_us,notes\n"
PASS = "gpu,n_gpus,model,batch,seq,mode,option,dtype,time_ms\n"


def test_a_measured_group_is_its_own_curve_and_another_its_familys(tmp_path: Path) -> None:
    curves = read_yaml(shipped_root() / "hardware_db/calibrations/collectives.yaml")["curves"]
    curve = next(c for c in curves if (c["gpu"], c["collective"], c["ranks"], c["source"]) ==
                 ("H100-SXM-80GB", "all_reduce", 8, "aic"))  # fmt: skip
    size, time = curve["bytes"][10], curve["us"][10]
    last, slowest = curve["bytes"][-1], curve["us"][-1]
    rows = (
        f"aiconfigurator x,H100-SXM,8,1,NVLink4,all_reduce,NCCL,{size},{time},half\n"
        f"aiconfigurator x,H100-SXM,8,1,NVLink4,all_reduce,NCCL,{2 * last},{2 * slowest},half\n"
        f"aiconfigurator x,H200-SXM,8,1,NVLink4,all_reduce,NCCL,{size},{time},half\n"
        f"aiconfigurator x,H100-SXM,8,1,NVLink4,all_reduce,TRTLLM,{size},{time},half\n"
        f"aiconfigurator x,H100-SXM,16,2,NVLink4,all_reduce,NCCL,{size},{time},half\n"
        f"aiconfigurator x,H100-SXM,8,1,NVLink4,all_reduce,NCCL,{time},{size}e3,half\n"
    )
    path = tmp_path / "c.csv"
    path.write_text(COMM + rows, encoding="utf-8")
    out = api.validate_ops([path])
    own = out["groups"]["H100-SXM-80GB all_reduce x8 float"]
    # Beyond the largest size its rate stays; the last row is a bad one, slow but possible.
    assert own["profile"] == "own" and own["n"] == 3
    assert own["median_bias_frac"] == pytest.approx(0.0, abs=1e-3)
    near = out["groups"]["H200-SXM all_reduce x8 float"]
    assert near["profile"] == "family" and near["mape_frac"] < 0.5
    reasons = " ".join(out["skipped"])
    assert "inference server" in reasons and "between nodes" in reasons


def test_between_two_sizes_a_curve_is_latency_and_rate() -> None:
    measured = {"path": "nvswitch", "gpu": "H100-SXM-80GB", "collective": "all_reduce", "ranks": 8,
                "source": "aic", "bytes": [1 << 20, 1 << 24], "us": [30.0, 180.0]}  # fmt: skip
    empty = {"pooled": {}, "by_family": {}}
    profile = CollectiveProfile({"collectives": empty, "curves": [measured]})
    # 150 us for 15 MiB more: 10 us a MiB after 20 us of latency. Below the ends: constant; above:
    # the last rate.
    asked = CollectiveCurve("nvswitch", "H100-SXM-80GB", "all_reduce", 8, "aic", 450e9,
                            np.array([1 << 19, 1 << 22, 1 << 25], float), np.ones(3))  # fmt: skip
    time_s, level = profile.time_s(asked)
    assert level == "own"
    assert time_s == pytest.approx(np.array([30.0, 60.0, 360.0]) * MICRO)


def test_passes_of_models_go_through_the_builders(tmp_path: Path) -> None:
    rows = (
        "A100-PCIE-40GB,1,bert_large,8,512,inf,,fp32,205.5\n"
        "A100-PCIE-40GB,1,gpt2_large,4,1024,inf,,fp32,535.8\n"
        "A100-PCIE-40GB,1,gpt2_large,4,1024,train,,fp32,1607.4\n"
        "A100-PCIE-40GB,1,gpt2_large,4,1024,inf,fusion,fp32,477\n"
        "A100-PCIE-40GB,4,gpt2_large,4,1024,train,tp4,fp32,477\n"
        "A100-PCIE-40GB,1,switchxl4,1,512,inf,,fp32,223\n"
        "A100-PCIE-40GB,1,unheard_of,1,512,inf,,fp32,223\n"
        "A100-PCIE-40GB,1,bert_large,8,512,inf,,fp32,-1\n"
    )
    path = tmp_path / "e.csv"
    path.write_text(PASS + rows, encoding="utf-8")
    out = api.validate_ops([path])
    assert (out["rows"], out["simulated"]) == (8, 4)
    groups = out["groups"]
    assert groups["A100-PCIE-40GB bert_large inference fp32"]["mape_frac"] < 0.15
    # Three times the pass forward is what a training pass costs, to a tenth or two.
    assert groups["A100-PCIE-40GB gpt2_large train fp32"]["mape_frac"] < 0.2
    assert out["bad_rows"] == ["e.csv:9: time_ms: '-1' must be finite and above 0"]
    assert len(out["skipped"]) == 4


def test_passes_are_those_that_were_timed() -> None:
    classifies = _workload("bert_large", 512, train=False)
    predicts_words = _workload("bert_large", 512, train=True)
    vocab = 30522 * 1024  # BertForPreTraining's table is tied: only its product tells
    products = [
        sum(k.flop for op in w.blocks[-1].ops for k in op.fwd)
        for w in (classifies, predicts_words)
    ]  # fmt: skip
    assert products[0] < 2 * vocab  # pooler and classifier of one token
    assert products[1] > 512 * 2 * vocab
    for model in ("bert_large", "gpt2_large"):
        whole = _workload(model, 512, train=True)
        loss = next(op for op in whole.blocks[-1].ops if op.name == "loss")
        assert loss.fwd == () and loss.bwd  # computed between the two passes
        # Each parameter's gradient: the new one and the old one read, the sum written.
        added = [k for b in whole.blocks for op in b.ops if op.name == "accumulate" for k in op.bwd]
        numel = sum(b.numel for b in whole.blocks)
        assert sum(k.weight for k in added) == 3 * numel
        assert sum(k.launches for k in added) == sum(len(b.params) for b in whole.blocks)


def test_switch_layers_serve_the_tokens_that_experts_have_room_for() -> None:
    """One token repeated: one expert gets them all in inference, and takes 64 of a sequence."""
    one = _workload("switchxl4", 512, train=False)
    numel = sum(one.blocks[i].numel for i in one.order)
    assert numel == 5_267_615_744  # SwitchTransformersForConditionalGeneration of that config
    sparse = next(b for b in one.blocks if b.name == "encoder switch layer")
    served = [op for op in sparse.ops if op.name.startswith("expert")]
    assert sum(k.flop for op in served for k in op.fwd) == 2 * 2.0 * 64 * 1024 * 16384
    assert [one.order.count(one.blocks.index(b)) for b in one.blocks if "layer" in b.name] == [
        12
    ] * 4
    every = _workload("switchxl4", 512, train=True)
    busy = next(b for b in every.blocks if b.name == "encoder switch layer")
    assert sum(op.name.endswith(".wi") for op in busy.ops) == 2


def test_a_refit_to_passes_alone_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "passes.csv"
    path.write_text(PASS + "V100,1,bert_large,16,512,inference,,fp32,400\n", encoding="utf-8")
    with pytest.raises(UsageError, match="no operators: add tables of products"):
        api.validate_ops([path], refit="family")
    assert api.validate_ops([path])["rows"] == 1
