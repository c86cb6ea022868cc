"""The data-parallel table: which rows become cases, and as what."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from simcore import api
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.spec import NODES as NODE_RECORDS
from simcore.request.model_settings import layout_of
from simcore.request.training_library import library_of
from simcore.validate.case import Case
from simcore.validate.formats.row_rules import corpora_folder, rules_of
from simcore.validate.judge import judge
from simcore.validate.table import Table, read_table
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import model_of, resolve_model
from simcore.workload.trace.zoos import ZOOS

COLUMNS = (
    "id,source,source_ref,model,task,params_m,fwd_gflops_per_sample,input_shape,local_batch,"
    "grad_accum,gpus,nodes,gpu_type,intra_link,inter_link,precision,framework,strategy,throughput,"
    "throughput_unit,step_time_s,speedup_vs_1gpu,peak_mem_gib,notes,family,tier,complete"
)
ROW = {
    "id": "r-1", "source": "lambdal/deeplearning-benchmark", "model": "ResNet50-v1.5",
    "input_shape": "3x224x224", "local_batch": "64.0", "grad_accum": "1.0", "gpus": "8",
    "nodes": "1", "gpu_type": "V100-SXM2-16GB", "intra_link": "NVLink", "precision": "fp32",
    "framework": "PyTorch", "strategy": "ddp", "throughput": "2500", "throughput_unit": "images/s",
    "step_time_s": "0.2", "speedup_vs_1gpu": "7.5", "peak_mem_gib": "15.5", "family": "CNN",
    "tier": "A", "complete": "1", "notes": "tier=A; layout=nchw",
}  # fmt: skip
EXAMPLES = {"source": "NVIDIA/DeepLearningExamples"}
SHARED = os.environ.get("SIMCORE_TABLES")


def table(tmp_path: Path, *changes: dict[str, str]) -> Table:
    path = tmp_path / "ddp.csv"
    rows = [{**ROW, "id": f"r-{i}", **change} for i, change in enumerate(changes)]
    names = COLUMNS.split(",")
    lines = [COLUMNS, *(",".join(row.get(n, "") for n in names) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_table(path)


def case(tmp_path: Path, **change: str) -> Case:
    (found,) = table(tmp_path, change).cases
    return found


def is_named(found: Case, name: str) -> bool:
    """Whether a row's model, as its program runs it, is what a former name of models_db stands for.

    Options that are settings too (the layout of images) are left out.
    """
    record = model_of(found.model, settings=found.options.get("settings"))
    library = library_of(found.options, record, layout_of(found.options, []))
    made, other = library.on(record, found.options), resolve_model(name)
    assert isinstance(made, ModelRecord) and isinstance(other, ModelRecord)
    apart = ("seq_len", "layout", "attention", "depthwise_kernels", "pointwise_tf32")  # libraries'
    return {k: v for k, v in made.settings({}).items() if k not in apart} == {
        k: v for k, v in other.settings({}).items() if k not in apart
    }


def in_effect(found: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a row's job with its program's, and the settings of its model that differ."""
    record = model_of(found.model, settings=found.options.get("settings"))
    library = library_of(found.options, record, layout_of(found.options, []))
    model, options = library.on(record, found.options), library.words(found.options, record)
    plain = model_of(found.model)
    assert isinstance(model, ModelRecord) and isinstance(plain, ModelRecord)
    changed = {k: v for k, v in model.settings({}).items() if v != plain.settings({}).get(k)}
    return options, changed | {k: v for k in ("layout", "attention") if (v := options.get(k))}


def config(found: Case) -> dict[str, Any]:
    """All that a row's words and its program set of its model's own settings."""
    return in_effect(found)[1]


def test_a_row_as_a_case(tmp_path: Path) -> None:
    found = case(tmp_path)
    assert (found.model, found.gpus) == ("resnet-50", "1x8xV100-SXM2-16GB")
    assert found.options == {
        "strategy": "ddp", "micro_batch": 64, "grad_accum": 1, "precision": "fp32",
        "layout": "nchw", "software": "lambda-benchmark",
    }  # fmt: skip
    assert found.measured == {
        "step_time_s": 0.2, "speedup": 7.5, "peak_shown_bytes": 15.5 * 2**30,
    }  # fmt: skip
    assert found.columns["family"] == "CNN"
    assert found.columns["memory_definition"] == "shown"


def test_the_format_is_told_by_its_columns(tmp_path: Path) -> None:
    assert table(tmp_path, {}).format == "ddp"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tier": "C"}, "tier C"),
        ({"complete": "0"}, "incomplete"),
        ({"strategy": "ps(cpu)"}, "parameter server"),
        ({"strategy": "none(no sync)"}, "independent replicas"),
        ({"strategy": "gossip"}, "strategy 'gossip' is not known"),
        ({"precision": "int4"}, "precision 'int4' is not known"),
        ({"model": "PerceiverIO"}, "model 'PerceiverIO' is not in models_db"),
        ({"nodes": "3"}, "8 GPUs do not divide over 3 nodes"),
        ({"local_batch": "2.5"}, "local batch '2.5'"),
    ],
)
def test_what_is_left_out_says_why(tmp_path: Path, change: dict[str, str], reason: str) -> None:
    (skipped,) = table(tmp_path, change).skipped
    assert reason in skipped.reason


@pytest.mark.parametrize(
    ("name", "params_m", "gflop", "model"),
    [
        ("timm:resnet34", "21.8", "7.33", "resnet-34"),  # as published: 21.8 M, 3.66 GMAC
        ("resnet34", "21.8", "7.33", "resnet-34"),
        ("resnet34", "30.0", "7.33", None),  # another network of that name
        ("resnet34", "21.8", "3.66", None),
        ("resnet34", "", "7.33", None),  # its size is not known
    ],
)
def test_a_model_of_an_entry_s_name_and_size_is_that_entry(
    tmp_path: Path, name: str, params_m: str, gflop: str, model: str | None
) -> None:
    row = {"model": name, "params_m": params_m, "fwd_gflops_per_sample": gflop}
    found = table(tmp_path, row)
    assert [c.model for c in found.cases] == ([] if model is None else [model])


def test_a_library_s_model_is_traced_as_its_row_ran(tmp_path: Path) -> None:
    pytest.importorskip(
        "timm", reason="timm or its torchvision is not installed: pip install '.[vision]'"
    )
    row = {
        "model": "timm:xcit_small_12_p16_224", "input_shape": "3x224x224",
        "notes": "tier=A; layout=nhwc; PT1.12 cu113; SGD", "precision": "amp-fp16",
        "strategy": "single", "gpus": "1", "gpu_type": "RTX-3090", "intra_link": "",
    }  # fmt: skip
    found = case(tmp_path, **row)
    assert found.model == "timm:xcit_small_12_p16_224"
    assert found.options["inputs"] == "float32[B,3,224,224] channels_last"
    assert found.options["attention"] == "math"
    assert found.options["optimizer"] == "sgd"
    newer = case(tmp_path, **{**row, "notes": "tier=A; layout=nchw; PT2.1"}).options
    assert newer["inputs"] == "float32[B,3,224,224]" and "attention" not in newer
    # what models_db has stays with it
    assert case(tmp_path, **{**row, "model": "timm:vit_small_patch16_224"}).model == "vit-s-16"


def test_a_traced_row_is_predicted(tmp_path: Path) -> None:
    """timm's own run of mobilevit_s (benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv)."""
    pytest.importorskip(
        "timm", reason="timm or its torchvision is not installed: pip install '.[vision]'"
    )
    row = {
        "model": "timm:mobilevit_s", "input_shape": "3x256x256", "local_batch": "192.0",
        "notes": "tier=A; layout=nhwc; PT1.12 cu113; SGD", "precision": "amp-fp16",
        "strategy": "single", "gpus": "1", "gpu_type": "RTX-3090", "intra_link": "",
        "step_time_s": "0.261", "peak_mem_gib": "", "speedup_vs_1gpu": "1.0",
    }  # fmt: skip
    (judged,) = judge([table(tmp_path, row)]).judged
    assert judged.time.value == pytest.approx(0.261, rel=0.15)


def test_a_library_that_is_not_installed_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(ZOOS["timm"]), "packages", ("simcore-absent",))
    (skipped,) = table(tmp_path, {"model": "timm:xcit_small_12_p16_224"}).skipped
    assert "need simcore-absent, which is not installed" in skipped.reason


def test_what_mxnet_fuses(tmp_path: Path) -> None:
    mxnet = {"framework": "MXNet", "notes": "", "source": "NVIDIA/DeepLearningExamples"}
    assert "fused_norm" not in config(case(tmp_path, **mxnet))
    mixed = case(tmp_path, **mxnet, precision="amp-fp16")
    assert mixed.model == "resnet-50" and config(mixed) == {"layout": "nhwc", "fused_norm": True}


@pytest.mark.parametrize(
    ("change", "layout"),
    [
        ({"precision": "amp-fp16"}, "nchw"),  # the row's note: layout=nchw
        ({"precision": "amp-fp16", "notes": ""}, "nchw"),
        ({"precision": "amp-fp16", "notes": "layout=nhwc"}, "nhwc"),
        ({"precision": "amp-fp16", "notes": "", **EXAMPLES}, "nhwc"),
        ({"precision": "tf32", "notes": "", **EXAMPLES}, ""),
        ({"precision": "tf32", "notes": "", **EXAMPLES, "framework": "TensorFlow2"}, ""),
        ({"precision": "amp-fp16", "notes": "", **EXAMPLES, "framework": "TensorFlow2"}, "nhwc"),
        ({"precision": "amp-fp16", "notes": "", "source": "a lab"}, ""),  # PyTorch's default
    ],
)
def test_a_program_that_has_channels_last_is_described_so(
    tmp_path: Path, change: dict[str, str], layout: str
) -> None:
    assert in_effect(case(tmp_path, **change))[0].get("layout", "") == layout


def test_sequence_length_and_apex(tmp_path: Path) -> None:
    found = case(tmp_path, model="BERT-Large", input_shape="seq384", precision="amp-fp16")
    assert found.model == "bert-large" and config(found)["gelu"] == "scripted"
    assert found.options["seq_len"] == 384
    assert in_effect(found)[0]["precision"] == "fp16"  # fp16 weights and gradients


def test_several_nodes(tmp_path: Path) -> None:
    found = case(
        tmp_path, gpus="64", nodes="4", gpu_type="V100-SXM3-32GB", intra_link="NVSwitch",
        inter_link="8x100Gb EDR IB (DGX-2H default)",
    )  # fmt: skip
    assert found.gpus == "4x16xV100-SXM3-32GB"
    assert (found.options["node"], found.options["network"]) == ("dgx-2", "8xib-edr")


@pytest.mark.parametrize(
    "note",
    [
        "speed-up vs 1 GPU at local_batch 8 (strong scaling / batch differs)",
        "1-GPU base is from another host (p3)",
        "1-GPU base has grad_accum 2048",
    ],
)
def test_a_speedup_against_another_kind_of_run_is_left_out(tmp_path: Path, note: str) -> None:
    assert "speedup" not in case(tmp_path, notes=note).measured


def test_one_gpu_has_no_speedup(tmp_path: Path) -> None:
    assert "speedup" not in case(tmp_path, gpus="1", speedup_vs_1gpu="1.0").measured


def test_memory_is_what_the_source_means(tmp_path: Path) -> None:
    live = case(tmp_path, source="open-mmlab/mmdetection", model="RetinaNet-R50-FPN")
    assert "peak_allocated_bytes" in live.measured
    told = case(tmp_path, notes="mem=nvidia-smi used max; torch max_memory_allocated=7.1GiB")
    assert told.measured["peak_allocated_bytes"] == pytest.approx(7.1 * 2**30)
    assert "peak_memory_bytes" not in told.measured


def test_a_doubt_of_the_table_is_a_flag(tmp_path: Path) -> None:
    note = "host whose multi-GPU runs scale as if NVLink/P2P were not used (VM?)"
    assert "NVLink" in case(tmp_path, notes=note).flag
    assert case(tmp_path).flag == ""


def test_measured_figures_never_change_a_prediction(tmp_path: Path) -> None:
    found = [
        judge([table(tmp_path, {"step_time_s": t, "speedup_vs_1gpu": s, "peak_mem_gib": m})])
        for t, s, m in (("0.2", "7.5", "15"), ("0.9", "2.0", "3"))
    ]
    first, second = ({(x.quantity, x.predicted) for j in v.judged for x in j.scored} for v in found)
    assert len(first) == 3
    assert first == second


def test_every_name_of_the_tables_is_known() -> None:
    rules = rules_of(corpora_folder() / "ddp" / "format.yaml")

    def among(key: str, name: str) -> set[str]:
        given = [r.gives[key][name] for r in rules if name in r.gives.get(key, {})]
        return {v for one in given if isinstance(one, dict) for v in one.get("among", {}).values()}

    precisions = among("cells", "stated_precision")
    assert precisions and precisions <= {"fp32", "tf32", "amp-fp16", "bf16"}
    for gpu in among("cells", "card"):
        parse_cluster(f"1x1x{gpu}")
    for network in among("words", "network"):
        parse_cluster("2x8xA100", network=network)
    nodes = {r.gives["cells"]["node"] for r in rules if "node" in r.gives.get("cells", {})}
    assert len(nodes) == 7 and all(NODE_RECORDS[node] for node in nodes)
    assert among("words", "strategy") == {"ddp", "dp", "zero2", "zero3"}


@pytest.mark.long
@pytest.mark.skipif(not SHARED, reason="SIMCORE_TABLES names no folder of measured tables")
def test_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rows of libraries' models: their traces, kept nowhere here, take minutes."""
    monkeypatch.setattr(type(ZOOS["timm"]), "packages", ("simcore-absent",))
    path = Path(SHARED or "") / "steps" / "ddp.csv"
    out = api.validate([path], by=["family"])
    usable = out["rows"] - sum(
        n for why, n in out["skipped"].items() if why.startswith(("tier", "incomplete"))
    )
    assert out["simulated"] >= 0.85 * usable
    assert out["step_time"]["mape_frac"] < 0.30
    assert out["without_flagged"]["speedup"]["median_abs_frac"] < 0.10


def test_runs_of_a_script_that_switched_p2p_off_are_run_so(tmp_path: Path) -> None:
    folder = "pytorch/results/8xA100_80GB_SXM4_v1/PyTorch_SSD_AMP"
    doubted = {"notes": "scale as if NVLink/P2P were not used", "model": "SSD300-R50"}
    off, later, old = table(
        tmp_path,
        {**doubted, "source_ref": f"{folder}/19-11-2022_09-45-13.txt"},
        {**doubted, "source_ref": f"{folder}/14-02-2023_09-45-13.txt"},
        {**doubted, "source_ref": "pytorch/results/8xA100_SXM4/x/04-11-2022_00-38-05.txt"},
    ).cases
    assert off.options.get("node") == "no-p2p" and not off.flag
    for other in (later, old):
        assert "node" not in other.options
        assert other.flag


def test_runs_in_virtual_machines_say_so(tmp_path: Path) -> None:
    """Lambda's logs name no board for them (sys_pytorch.txt)."""
    cloud = {"source_ref": "pytorch/results/4xA100_40GB_SXM4_v1/x/19-11-2022_09-45-13.txt"}
    assert case(tmp_path, **cloud, gpu_type="A100-SXM4-40GB").options["node"] == "no-p2p:vm"


@pytest.mark.parametrize(
    ("log", "node"),
    [
        ("2x3090/x/05-02-2021_10-59-40.txt", "generic-pcie"),  # two EPYC 7662
        ("2x3090/x/31-10-2020_08-57-59.txt", None),  # a Threadripper
        ("8x3070/x/05-03-2021_10-59-40.txt", "as-4124gs-tnr"),
    ],
)
def test_geforce_runs_have_the_host_that_their_logs_name(
    tmp_path: Path, log: str, node: str | None
) -> None:
    where = {"source": "lambdal/deeplearning-benchmark", "source_ref": f"pytorch/results/{log}"}
    assert case(tmp_path, **where, gpu_type="RTX-3090").options.get("node") == node


def test_no_p2p_joins_the_preset_that_the_row_asks_for(tmp_path: Path) -> None:
    where = {"source_ref": "r/2xX_v1/t/30-11-2022_1.txt", "gpu_type": "H100-PCIe-80GB"}
    assert case(tmp_path, intra_link="PCIe5", **where).options["node"] == "generic-pcie5:no-p2p"


@pytest.mark.parametrize(
    ("change", "sent"),
    [
        ({"model": "GNMT-v2"}, "none"),
        ({"model": "ResNet50-v1.5", **EXAMPLES}, None),
        ({"model": "ResNet50-v1.5", "notes": "PT1.7.0a0"}, "none"),
        ({"model": "ResNet50-v1.5", "notes": "PT1.9.0a0"}, None),
        # a cluster of XLA's hands its gradients over when all of it has run; norms part it
        (
            {
                "source": "NVIDIA/DeepLearningExamples",
                "model": "EfficientNet-B4",
                "framework": "TensorFlow2",
            },
            None,
        ),
        (
            {
                "source": "NVIDIA/DeepLearningExamples",
                "model": "BERT-Large",
                "framework": "TensorFlow1",
                "task": "pretrain LAMB",
            },
            "none",
        ),
        (
            {
                **EXAMPLES,
                "model": "BERT-Large",
                "framework": "TensorFlow1",
                "task": "SQuAD fine-tune",
                "precision": "fp32",
            },
            None,
        ),
        ({"model": "Transformer-XL-base", "framework": "TensorFlow1"}, None),
        ({"model": "GNMT-v2", "source": "elsewhere"}, None),
    ],
)
def test_programs_that_send_gradients_after_backward(
    tmp_path: Path, change: dict[str, str], sent: str | None
) -> None:
    overlap = in_effect(case(tmp_path, **change))[0].get("overlap")
    assert (overlap == "none") == (sent == "none")


@pytest.mark.parametrize(
    ("change", "update"),
    [
        ({"model": "WaveGlow-512", "notes": "PT1.13.0a0"}, "for-loop"),
        ({"model": "WaveGlow-512", "notes": "PT2.3.0a0"}, None),
        ({"model": "WaveGlow-512", "notes": "tier=A"}, "for-loop"),
        ({"model": "WaveGlow-512", "source": "elsewhere", "notes": "PT1.13.0a0"}, None),
        ({"model": "GNMT-v2", "notes": "PT1.4.0a0"}, "for-loop"),
        ({"model": "BERT-Large", "notes": "PT1.4.0a0"}, None),
    ],
)
def test_torch_updates_tensor_by_tensor_before_its_second_version(
    tmp_path: Path, change: dict[str, str], update: str | None
) -> None:
    found = in_effect(case(tmp_path, **change))[0].get("optimizer_impl")
    assert (found == "for-loop") == (update == "for-loop")


def test_memory_that_the_named_gpu_does_not_have_is_flagged(tmp_path: Path) -> None:
    """31.58 GiB on a V100 of 16 GB: two rows of the table ran on the card of 32."""
    shown = case(tmp_path, gpu_type="V100-SXM2-16GB", peak_mem_gib="31.58")
    assert "31.58 GiB" in shown.flag and "more than the GPU it names has" in shown.flag
    assert not case(tmp_path, gpu_type="V100-SXM2-32GB", peak_mem_gib="31.58").flag
    assert not case(tmp_path, gpu_type="V100-SXM2-16GB", peak_mem_gib="15.9").flag
    assert not case(tmp_path, gpu_type="a card of its own", peak_mem_gib="31.58").flag


def test_the_last_rate_of_a_progress_bar_is_flagged(tmp_path: Path) -> None:
    note = "tier=B; rate from tqdm of last epoch; log/csv-published=12.3609; n_iter=87"
    assert "smaller last batch" in case(tmp_path, model="BERT-Large", notes=note).flag
    assert not case(tmp_path, model="BERT-Large", notes="tier=A; n_iter=50").flag


def test_what_ran_otherwise_than_the_table_says_is_flagged(tmp_path: Path) -> None:
    row = {
        "source": "NVIDIA/DeepLearningExamples", "framework": "TensorFlow2",
        "model": "MaskRCNN-R50-FPN",
    }  # fmt: skip
    several, one, torch = table(
        tmp_path, row, {**row, "gpus": "1"}, {**row, "framework": "PyTorch"}
    ).cases
    assert "one input pipeline" in several.flag
    assert not one.flag and not torch.flag


@pytest.mark.parametrize(
    ("change", "doubted"),
    [
        ({}, True),
        ({"precision": "amp-fp16"}, False),  # apex asks each step whether gradients are finite
        ({"notes": "PT1.7.0a0"}, False),
        ({"source": "NVIDIA/DeepLearningExamples"}, False),
        ({"model": "ResNet50-v1.5"}, False),
    ],
)
def test_a_clock_that_does_not_wait_for_the_gpu_is_flagged(
    tmp_path: Path, change: dict[str, str], doubted: bool
) -> None:
    row = {"model": "SSD300-R50", "input_shape": "3x300x300", "notes": "PT1.4.0a0"}
    assert ("stops its clock" in case(tmp_path, **(row | change)).flag) == doubted


@pytest.mark.parametrize(
    ("model", "framework", "name"),
    [
        # Their input pipelines are the processor's, and TensorFlow's norms are synchronised.
        ("EfficientNet-B0", "TensorFlow2", "efficientnet-b0-autoaugment"),
        ("EfficientNet-B4", "TensorFlow2", "efficientnet-b4-autoaugment"),
        ("EfficientNetV2-S", "TensorFlow2", "efficientnet-v2-s-randaugment"),
        ("EfficientNet-B0", "PyTorch", "efficientnet-b0-pillow"),
        ("EfficientNet-widese-B0", "PyTorch", "efficientnet-widese-b0-pillow"),
        ("EfficientNet-B4", "PyTorch", "efficientnet-b4"),
        # Shapes of TensorFlow's graph are fixed, PyTorch's follow the images.
        ("MaskRCNN-R50-FPN", "TensorFlow2", "mask-rcnn-r50-fpn-static"),
        ("EfficientDet-D0", "PyTorch", "efficientdet-d0-pillow"),
        ("EfficientDet-D0", "TensorFlow2", "efficientdet-d0-xla"),
    ],
)
def test_the_program_decides_what_a_network_is(
    tmp_path: Path, model: str, framework: str, name: str
) -> None:
    assert is_named(case(tmp_path, model=model, framework=framework, **EXAMPLES), name)


@pytest.mark.parametrize(
    ("source", "framework", "batch", "way", "regions", "positives"),
    [
        # 4,000 proposals of a batch and seven objects of an image, 512 at most; an eighth positive.
        ("NVIDIA/DeepLearningExamples", "PyTorch", 12, "each_level device_polygons 12", 340, 42),
        ("NVIDIA/DeepLearningExamples", "PyTorch", 4, "each_level device_polygons 12", 512, 64),
        # Trained with a rate of 0: objects and what falls upon them.
        ("lambdal/deeplearning-benchmark", "PyTorch", 48, "each_level device_polygons 12", 90, 9),
        (
            "facebookresearch/detectron2",
            "maskrcnn-benchmark",
            2,
            "each_level_unfused host_cropped 12",
            None,
            None,
        ),
        (
            "facebookresearch/detectron2",
            "mmdetection",
            2,
            "each_level_unfused host_polygons 12",
            None,
            None,
        ),
        ("facebookresearch/detectron2", "detectron2", 2, "all_levels host_polygons 3", None, None),
        ("NVIDIA/DeepLearningExamples", "TensorFlow2", 4, "host graph 0", None, 128),
    ],
)
def test_who_picks_the_regions_of_a_detector_and_how_many(
    tmp_path: Path, source: str, framework: str, batch: int, way: str,
    regions: int | None, positives: int | None,
) -> None:  # fmt: skip
    of = case(
        tmp_path, model="MaskRCNN-R50-FPN", framework=framework, source=source,
        local_batch=str(batch),
    )  # fmt: skip
    record = model_of(of.model, settings=of.options.get("settings"))
    library = library_of(of.options, record, layout_of(of.options, []))
    made = library.on(record, of.options)
    assert isinstance(made, ModelRecord)
    found = made.settings({})
    keys = ("proposals", "mask_targets", "loader_bytes_per_pixel")
    assert [str(found[k]) for k in keys] == way.split()
    assert (found["regions"], found["positives"]) == (regions or 512, positives or 64)


# Images of COCO, drawn at random into batches of wide or of tall ones, are padded to the area of
# 800 x 1195 (2), 1257 (6), 1288 (12) and 1337 (50).
@pytest.mark.parametrize(("batch", "width"), [(2, 1195), (6, 1257), (12, 1288), (50, 1337)])
def test_images_are_padded_to_more_in_a_larger_batch(
    tmp_path: Path, batch: int, width: int
) -> None:
    of = case(tmp_path, model="MaskRCNN-R50-FPN", local_batch=str(batch), **EXAMPLES)
    found = int(of.options["settings"]["width"])
    assert found % 32 == 0
    assert abs(found - width) <= 16


def test_a_program_of_fixed_shapes_pads_no_batch(tmp_path: Path) -> None:
    of = case(tmp_path, model="MaskRCNN-R50-FPN", framework="TensorFlow2", **EXAMPLES)
    assert "width" not in str(of.options.get("settings"))


def test_elsewhere_networks_are_plain(tmp_path: Path) -> None:
    assert is_named(case(tmp_path, model="EfficientNet-B0", source="timm"), "efficientnet-b0")


@pytest.mark.parametrize(
    ("model", "task", "framework", "precision", "entry"),
    [
        ("BERT-Base", "BioBERT NER fine-tune", 1, "fp32", "bert-base-tensorflow"),
        ("BERT-Base", "BioBERT NER fine-tune", 1, "amp-fp16", "bert-base-xla"),
        ("BERT-Base", "BioBERT pretrain", 1, "fp32", "bert-base-xla-pretraining"),
        ("BERT-Large", "pretrain LAMB", 2, "tf32", "bert-large-xla-pretraining"),
        ("BERT-Large", "SQuAD fine-tune", 1, "fp32", "bert-large-tensorflow"),
        ("BERT-Large", "SQuAD fine-tune", 1, "tf32", "bert-large-xla"),
        ("BERT-Large", "SQuAD fine-tune", 2, "tf32", "bert-large-tensorflow"),
        ("BERT-Large", "SQuAD fine-tune", 2, "amp-fp16", "bert-large-xla"),
        ("ELECTRA-Base", "SQuAD fine-tune", 2, "tf32", "electra-base-tensorflow"),
        ("ELECTRA-Base", "SQuAD fine-tune", 2, "amp-fp16", "bert-base-xla"),
        ("Transformer-XL-base", "LM wt103", 1, "amp-fp16", "transformer-xl-base-tensorflow"),
    ],
)
def test_tensorflow_s_language_models_are_graphs_or_clusters(
    tmp_path: Path, model: str, task: str, framework: int, precision: str, entry: str
) -> None:
    row = {"source": "NVIDIA/DeepLearningExamples", "framework": f"TensorFlow{framework}"}
    length = "seq384" if task.startswith("SQuAD") else "seq128"
    found = case(tmp_path, **row, model=model, task=task, precision=precision, input_shape=length)
    assert is_named(found, entry)
    # gradients are fp32: apex's O2 is no TensorFlow's
    assert in_effect(found)[0]["precision"] == precision


@pytest.mark.parametrize("model", ["ResNet50-v1.5", "ResNeXt101-32x4d", "SE-ResNeXt101-32x4d"])
def test_tensorflow_compiles_where_the_row_says_so(tmp_path: Path, model: str) -> None:
    row = {"source": "NVIDIA/DeepLearningExamples", "framework": "TensorFlow1", "model": model}
    compiled = case(tmp_path, **row, notes="tier=A; XLA; DP=Horovod")
    assert config(compiled)["xla"] is True
    assert "xla" not in config(case(tmp_path, **row, notes="tier=A; DP=Horovod"))
    torch = {**row, "framework": "PyTorch"}
    assert "xla" not in config(case(tmp_path, **torch, notes="tier=A; XLA"))


@pytest.mark.parametrize(
    ("note", "attention", "recompute"),
    [
        ("xformers=off; gradient checkpointing=OFF", "math", "none"),
        ("xformers=on; gradient checkpointing=OFF", None, "none"),
        ("xformers=on; gradient checkpointing=ON", None, "full"),
    ],
)
def test_attention_and_checkpoints_are_as_the_row_says(
    tmp_path: Path, note: str, attention: str | None, recompute: str
) -> None:
    row = {"source": "baofff/U-ViT", "model": "U-ViT-H/2", "precision": "amp-fp16", "gpus": "1"}
    found = case(tmp_path, **row, notes=f"tier=B; {note}")
    assert found.model == "u-vit-h-2"
    assert (found.options.get("attention"), found.options["recompute"]) == (attention, recompute)


@pytest.mark.parametrize(
    ("change", "optimizer"),
    [
        ({"precision": "tf32"}, "adamw/op-by-op-sync"),  # no version told: before 1.11
        ({"precision": "tf32", "notes": "PT1.10.0a0"}, "adamw/op-by-op-sync"),
        ({"precision": "tf32", "notes": "PT1.13.0a0"}, "adamw/op-by-op"),
        ({"precision": "fp32", "source": "NVIDIA/DeepLearningExamples"}, "adamw/op-by-op"),
        ({"precision": "amp-fp16"}, None),
        ({"precision": "tf32", "input_shape": "seq128"}, None),  # pretraining: LAMB
        ({**EXAMPLES, "framework": "TensorFlow1", "precision": "amp-fp16"}, None),
    ],
)
def test_fine_tuning_without_amp_has_a_loop_of_its_own(
    tmp_path: Path, change: dict[str, str], optimizer: str | None
) -> None:
    row = {"model": "BERT-Large", "input_shape": "seq384", "gpu_type": "A100-SXM4-40GB"}
    options = in_effect(case(tmp_path, **(row | change)))[0]
    assert options.get("optimizer") == optimizer
    assert (options.get("optimizer_impl") == "foreach") == bool(optimizer)


@pytest.mark.parametrize(
    ("notes", "found"),
    [
        ("PT1.4.0a0", {"bias_add": "separate", "unaligned_products": "vector_units"}),
        ("PT1.7.0a0", {"bias_add": "separate"}),
        ("PT1.13.0a0", {}),
        ("tier=A", {"bias_add": "separate"}),  # no version told: tables of 1.x before 1.12
    ],
)
def test_old_libraries_in_the_record(tmp_path: Path, notes: str, found: dict[str, str]) -> None:
    row = case(tmp_path, model="Transformer-XL-base", input_shape="full softmax", notes=notes)
    watched = ("bias_add", "unaligned_products")
    assert {k: v for k, v in config(row).items() if k in watched} == found
    bert = case(tmp_path, model="BERT-Large", input_shape="seq384", notes=notes)
    assert ("bias_add" in config(bert)) == ("bias_add" in found)
    glow = case(tmp_path, model="WaveGlow-512", input_shape="8000-sample segment", notes=notes)
    assert ("dilated_convolutions" in config(glow)) == ("unaligned_products" in found)


@pytest.mark.parametrize(
    ("when", "version"),
    [("11-04-2020_22-01-19", "PyTorch 1.4"), ("26-06-2021_22-01-19", "PyTorch 1.9")],
)
def test_no_run_is_older_than_its_pytorch(tmp_path: Path, when: str, version: str) -> None:
    ref = f"pytorch/results/p3.16xlarge/PyTorch_resnet50_FP32/{when}.txt"
    assert case(tmp_path, source_ref=ref, notes="PT1.9.0a0").columns["version"] == version


@pytest.mark.parametrize(
    ("notes", "bert", "waveglow"),
    [
        ("PT1.4.0a0", {"gelu": "scripted", "scripted_activations": "held"},
         {"conditioning_copies": True, "scripted_activations": "held", "inverse": "by_magma"}),
        ("PT1.7.0a0", {"gelu": "scripted"}, {"conditioning_copies": True}),
        ("PT1.13.0a0", {"gelu": "separate_bias"}, {"conditioning_copies": False}),
        ("tier=A", {"gelu": "scripted"}, {"conditioning_copies": True}),
    ],
)  # fmt: skip
def test_scripts_and_copies_by_the_row_s_torch(
    tmp_path: Path, notes: str, bert: dict[str, object], waveglow: dict[str, object]
) -> None:
    watched = ("gelu", "scripted_activations", "conditioning_copies", "inverse")
    for row, found in (
        ({"model": "BERT-Large", "input_shape": "seq384"}, bert),
        ({"model": "WaveGlow-512", "input_shape": "segment 8000", "precision": "fp32"}, waveglow),
    ):
        read = case(tmp_path, **row, notes=notes)
        record = resolve_model(read.model)
        assert isinstance(record, ModelRecord)
        settings = {**record.config, **config(read)}
        assert {k: v for k, v in settings.items() if k in watched} == found
    ours = case(tmp_path, model="BERT-Large", input_shape="seq384", notes=notes, source="a lab")
    assert "scripted_activations" not in config(ours)


def test_llm_foundrys_attention_and_recompute(tmp_path: Path) -> None:
    row = {
        "source": "mosaicml/llm-foundry", "model": "MPT-1b", "input_shape": "seq2048",
        "precision": "bf16", "framework": "PyTorch+Composer FSDP",
        "strategy": "fsdp full_shard (zero3)",
    }  # fmt: skip
    plain = case(tmp_path, **row, notes="tier=A; act_ckpt=False")
    again = case(tmp_path, **row, notes="tier=A; act_ckpt=True")
    kernels = {config(c)["attention"] for c in (plain, again)}
    assert kernels == {"flash_triton"}
    assert (plain.options.get("recompute"), again.options.get("recompute")) == (None, "full")


def test_paddles_bert_under_amp_is_all_16_bit_with_fp32_gradients(tmp_path: Path) -> None:
    row = {
        "source": "NVIDIA/DeepLearningExamples", "framework": "PaddlePaddle", "model": "BERT-Large",
        "input_shape": "seq128",
    }  # fmt: skip
    options, changed = in_effect(case(tmp_path, **row, precision="amp-fp16"))
    assert options["attention"] == "flash" and changed["epilogues"] is True
    assert (options["precision"], options["main_grads"]) == ("fp16", "fp32")
    assert case(tmp_path, **row, precision="tf32").model == "bert-large"
