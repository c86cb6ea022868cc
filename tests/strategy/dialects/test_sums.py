"""What follows from several arguments of a program together, by sums worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcore.strategy.dialects.line_record import LINES
from simcore.strategy.dialects.lines import ODD, LineDialect
from simcore.strategy.dialects.reading import Reading, Table
from simcore.strategy.dialects.record import value_of
from simcore.strategy.dialects.source import Source


def read(program: str, source: Source | None = None, /, **said: Any) -> Reading:
    """What is stated after a program's record was read, of which these facts are known.

    Facts of the record's own are written ``other_NAME``.
    """
    reading = Reading(program, source or Source("", "line"))
    for name, value in said.items():
        reading.say(name.replace("other_", "other."), value, f"--{name}")
    for implied in LINES[program].implied:
        if implied.holds(reading.context, {}):
            for option, word in implied.options.items():
                key = reading.key_of(implied.because) or implied.because
                reading.say(option, value_of(word, reading.context), key)
    if function := LINES[program].after:
        ODD[function](reading, Table({}))
    return reading


def new(reading: Reading, *names: str) -> dict[str, Any]:
    return {name: reading.said(name) for name in names if reading.said(name) is not None}


# -- tokens, prompts and answers -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "micro_batch"),
    [
        ({"other_tokens": 16384, "seq_len": 4096}, 4),
        ({"other_tokens": 16383, "seq_len": 4096}, 3),
        ({"other_tokens": 1000, "seq_len": 4096}, 1),  # a sequence at least
        ({"other_tokens": 16384, "seq_len": 4096, "cp": 2}, 8),  # tokens of one context rank
        ({"other_tokens": 16384}, None), ({"seq_len": 4096}, None),
    ],
)  # fmt: skip
def test_sequences_in_a_micro_batch_of_tokens(
    said: dict[str, int], micro_batch: int | None
) -> None:
    found = read("verl-sft-engine", other_by_tokens=True, **said)
    assert found.said("micro_batch") == micro_batch
    if micro_batch:
        assert found.key_of("micro_batch") == "--other_tokens"
    assert read("verl-sft-engine", other_by_tokens=False, **said).said("micro_batch") is None
    assert read("verl-sft-engine", **said).said("micro_batch") is None


def test_a_sequence_is_a_prompt_and_its_answer() -> None:
    said = {"other_prompt": 512, "other_response": 1536, "other_mini_batch": 64, "other_answers": 5}
    found = read("verl", **said, other_by_tokens=True, other_tokens=8192)
    expected = {"seq_len": 2048, "global_batch": 320, "micro_batch": 4}
    assert new(found, *expected) == expected
    given = read("verl", micro_batch=3, other_prompt=512, other_mini_batch=64)
    assert new(given, "seq_len", "global_batch", "micro_batch") == {"micro_batch": 3}


@pytest.mark.parametrize(
    ("word", "missing"),
    [("x=1", True), ("use_dynamic_bsz=true", False), ("ppo_micro_batch_size_per_gpu=2", False)],
)
def test_a_micro_batch_is_in_samples_or_in_tokens(word: str, missing: bool) -> None:
    reading = Reading("verl", Source("", "line"))
    found = LineDialect("verl").read_words(reading, [f"actor_rollout_ref.actor.{word}"], "the line")
    assert any(u.word == "micro_batch" for u in found.unsupported) == missing


# -- formulas of records ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (4, 4), ("flash", "flash"), ("=4 * width", 3072), ("=tp * width", 1536),
        ("=width // depth", None),  # not stated
        ("=width / none", None), ("=1 if tp else 2", 1), ("=1 if pp else 2", 2),
        ("=upper(name)", "GPT"), ("=upper(other)", None),
    ],
)  # fmt: skip
def test_formulas_of_what_is_stated(word: Any, value: Any) -> None:
    facts = {"other.width": 768.0, "tp": 2, "other.none": 0, "other.name": "gpt"}
    assert value_of(word, facts) == value


def test_windows_of_a_quarter_in_whole_tiles() -> None:
    """nanochat, gpt.py: -(-long_window // 4 // 128) * 128."""
    for length, window in ((2048, 512), (1000, 256), (128, 128), (513, 256)):
        found = read("nanochat", other_windows="sSl", seq_len=length)
        assert new(found, "set.window", "set.window_pattern") == {
            "set.window": window, "set.window_pattern": "wwf",
        }  # fmt: skip
        assert window == -(-length // 4 // 128) * 128
    assert new(read("nanochat", other_windows="L", seq_len=2048), "set.window") == {}


def test_a_vocabulary_is_of_words_or_of_characters() -> None:
    said = "python nanoGPT/train.py --dataset={} --batch_size=1"
    found = [
        LineDialect("nanogpt").read_words(
            Reading("nanogpt", Source("", "line")), said.format(name).split()[2:], "train.py"
        )
        for name in ("shakespeare_char", "openwebtext")
    ]
    assert [launch.settings["vocab"] for launch in found] == [65, 50_304]


# -- batches of all GPUs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "nominal", "accumulated"),
    [(16, 64, 4), (64, 64, 1), (100, 64, 1), (24, 64, 3), (40, 64, 2), (48, 64, 1), (200, 64, 1)],
)
def test_a_batch_is_repeated_up_to_the_nominal_one(
    batch: int, nominal: int, accumulated: int
) -> None:
    """ultralytics, engine/trainer.py: accumulate = max(round(nbs / batch), 1)."""
    found = read("ultralytics", other_batch=batch, other_nominal=nominal)
    assert new(found, "grad_accum", "global_batch") == {
        "grad_accum": accumulated, "global_batch": batch * accumulated,
    }  # fmt: skip
    assert new(read("ultralytics", other_nominal=64), "grad_accum", "global_batch") == {}
    assert new(read("ultralytics", other_batch=16), "grad_accum", "global_batch") == {}


@pytest.mark.parametrize(
    ("file", "model"),
    [("yolo11n.pt", "yolo11n"), ("a/b/yolov8x-seg.yaml", "yolov8x-seg"), ("yolo.onnx", "yolo.onnx"),
     ("best.v2.pt", "best.v2")],
)  # fmt: skip
def test_weights_are_named_after_their_model(file: str, model: str) -> None:
    assert read("ultralytics", model=file).said("model") == model


@pytest.mark.parametrize(
    ("devices", "count"), [("0,1,2,3", 4), ("[0, 1]", 2), ("0", 1), ("cpu", None), ("0,cpu", 1)]
)
def test_numbers_of_devices_are_counted(devices: str, count: int | None) -> None:
    assert read("ultralytics", other_devices=devices).said("nproc_per_node") == count


@pytest.mark.parametrize(
    ("devices", "count"), [("0,1,2", 3), ("[4, 5]", 2), ("4", 4), (8, 8), ("[2]", 2)]
)
def test_devices_are_a_number_or_a_list(devices: object, count: int) -> None:
    assert read("lightning", other_devices=devices).said("nproc_per_node") == count
    assert read("lightning").said("nproc_per_node") is None


# -- meshes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "stated"),
    [
        ({"other_per_device": 4}, {"micro_batch": 4, "strategy": "zero3"}),
        ({"other_per_device": 0.5, "tp": 2, "cp": 2, "pp": 3}, {"micro_batch": 6,
                                                               "strategy": "zero3"}),
        ({"other_ici_fsdp": 1, "other_dcn_fsdp": 1}, {"strategy": "ddp"}),
        ({"other_ici_fsdp": 1, "other_dcn_fsdp": 2}, {"strategy": "zero3"}),
        ({"other_ici_fsdp": -1, "other_dcn_fsdp": 1, "other_ici_data": 2}, {"strategy": "zero3"}),
        ({"other_ici_fsdp": 8, "other_dcn_fsdp": 2, "other_dcn_data": 4},
         {"strategy": "zero3", "shard_ranks": 16}),
        ({"other_ici_fsdp": 8, "other_ici_fsdp_transpose": 2, "other_dcn_fsdp": 1,
          "other_ici_data": 2}, {"strategy": "zero3", "shard_ranks": 16}),
        ({"other_ici_fsdp": 8, "other_ici_fsdp_transpose": -1, "other_dcn_fsdp": 1,
          "other_ici_data": 2}, {"strategy": "zero3"}),
        ({"other_ici_fsdp": 8, "other_dcn_fsdp": -1, "other_dcn_data": 2}, {"strategy": "zero3"}),
        ({"other_ici_fsdp": 8, "other_dcn_fsdp": 1, "other_dcn_data": 1, "other_ici_data": -1},
         {"strategy": "zero3"}),
        ({"other_ici_fsdp": 2, "other_dcn_fsdp": 1, "other_ici_data": 2},
         {"strategy": "zero3", "shard_ranks": 2}),
        ({"other_ici_fsdp_transpose": 4, "other_dcn_fsdp": 1, "other_ici_data": 2},
         {"strategy": "zero3", "shard_ranks": 4}),
    ],
)  # fmt: skip
def test_axes_of_a_mesh(said: dict[str, Any], stated: dict[str, Any]) -> None:
    """A device's batch times the ranks of a replica; shards within a slice times those over."""
    found = read("maxtext", **said)
    assert new(found, "micro_batch", "strategy", "shard_ranks") == stated
    assert not found.refuses("micro_batch")


@pytest.mark.parametrize("said", [{"other_per_device": 0.5}, {"other_per_device": 0.3, "tp": 5}])
def test_parts_of_a_sample_are_no_micro_batch(said: dict[str, Any]) -> None:
    found = read("maxtext", **said)
    assert found.said("micro_batch") is None and found.refuses("micro_batch")


def test_ranks_are_the_product_of_all_degrees() -> None:
    assert read("nanotron", other_dp=2, tp=4, pp=3, cp=5).said("n_gpus") == 120
    assert read("nanotron", other_dp=2).said("n_gpus") == 2
    assert read("nanotron", tp=4).said("n_gpus") is None
    assert read("nanotron", other_dp=2, tp=4, nproc_per_node=8).said("n_gpus") is None


# -- files of data ---------------------------------------------------------------------------------


def data(tmp_path: Path, text: str, program: str = "sd-scripts", **said: Any) -> Reading:
    (tmp_path / "data.toml").write_text(text)
    source = Source("", "run.sh", tmp_path / "run.sh")
    return read(program, source, other_dataset="data.toml", **said)


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("[general]\nresolution = 512\nbatch_size = 3\n", {"resolution": "512", "micro_batch": 3}),
        ("[general]\nresolution = 512\n[[datasets]]\nresolution = [768, 1024]\nbatch_size = 2\n",
         {"resolution": "1024x768", "micro_batch": 2}),
        ("[[datasets]]\nresolution = [640, 640]\n", {"resolution": "640"}),
        ("resolutions = [256, 512]\nframe_buckets = [1, 33]\n", {"resolution": "512",
                                                                "frames": 33}),
        ("resolutions = [512]\nframe_buckets = [1]\n", {"resolution": "512"}),
        ("[[datasets]]\ntarget_frames = [1, 25, 45]\n", {"frames": 45}),
        ("[[datasets]]\nframe_buckets = [2]\n", {"frames": 2}),
        ("other = 3\n", {}), ("datasets = []\n", {}),
        ("[datasets]\nresolution = 640\n", {}),  # no list
    ],
)  # fmt: skip
def test_sides_frames_and_batch_of_a_data_set(
    tmp_path: Path, text: str, stated: dict[str, Any]
) -> None:
    """Sides are width, height; what a data set says replaces what is said of all."""
    found = data(tmp_path, text)
    assert new(found, "resolution", "micro_batch", "frames") == stated
    assert found.finish().approximated == ()


def test_of_several_data_sets_the_first_counts_and_one_is_told(tmp_path: Path) -> None:
    text = "[[datasets]]\nbatch_size = 4\n[[datasets]]\nbatch_size = 9\n"
    found = data(tmp_path, text)
    assert found.said("micro_batch") == 4
    (told,) = found.finish().approximated
    assert "several data sets: the first one counts" in told


def test_sides_of_the_line_hold_unless_the_file_says_others(tmp_path: Path) -> None:
    assert read("sd-scripts", other_sides="512,768").said("resolution") == "768x512"
    assert read("sd-scripts", other_sides="(512, 512)").said("resolution") == "512"
    assert read("sd-scripts", other_sides="640").said("resolution") == "640"
    assert read("sd-scripts").said("resolution") is None
    over = data(tmp_path, "[general]\nresolution = 1024\n", other_sides="512,768")
    assert over.said("resolution") == "1024" and "data.toml" in over.key_of("resolution")
    kept = data(tmp_path, "[general]\nbatch_size = 1\n", other_sides="512,768")
    assert kept.said("resolution") == "768x512" and kept.key_of("resolution") == "--other_sides"


def test_a_file_that_is_not_at_hand_is_told() -> None:
    found = read("musubi-tuner", other_dataset="none.toml", other_sides="512")
    assert found.said("resolution") == "512"
    (told,) = found.finish().approximated
    assert "none.toml is not at hand" in told


def test_what_stands_below_trainer_is_read_as_if_it_stood_above() -> None:
    table = Table({"trainer": {"model": {"name": "x"}, "batch": 3}, "other": 1})
    ODD[LINES["prime-rl-trainer"].before](Reading("prime-rl-trainer", Source("", "line")), table)
    assert table.given == {"model.name": "x", "batch": 3, "other": 1}


# -- jobs with processes ---------------------------------------------------------------------------


def first_process(*processes: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Keys at the top level of an ai-toolkit job, and what is told."""
    table = Table({"config.process": list(processes), "job": "extension"})
    reading = Reading("ai-toolkit", Source("", "job.yaml"))
    ODD[LINES["ai-toolkit"].before](reading, table)
    told = tuple(f"{a}" for a in reading.finish().approximated)
    return {k: v for k, v in table.given.items() if k not in ("job", "config.process")}, told


def test_the_first_process_of_a_job_counts() -> None:
    one = {"train": {"batch_size": 2}, "datasets": [{"resolution": [512, 1024, 768]},
                                                    {"resolution": 256}]}  # fmt: skip
    found, told = first_process(one)
    assert found["train.batch-size"] == 2 and found["datasets.resolution"] == 1024
    assert told == ()
    again, told = first_process(one, {"train": {"batch_size": 9}})
    assert again == found and len(told) == 1 and "several processes" in told[0]


@pytest.mark.parametrize("processes", [(), ({},), ({"datasets": []},), ({"datasets": ["x"]},)])
def test_a_job_may_say_little(processes: tuple[dict[str, Any], ...]) -> None:
    found, told = first_process(*processes)
    assert "datasets.resolution" not in found and told == ()


def test_shards_of_a_slice_alone_or_over_slices() -> None:
    """Without a number over slices there is no group of shards; -1 is whatever is left."""
    base = {"other_ici_fsdp": 8, "other_ici_data": 2}
    assert new(read("maxtext", **base), "shard_ranks") == {}
    assert new(read("maxtext", **base, other_dcn_fsdp=3), "shard_ranks") == {"shard_ranks": 24}
    left = {**base, "other_ici_fsdp": -1, "other_dcn_fsdp": 3}
    assert new(read("maxtext", **left), "shard_ranks", "strategy") == {"strategy": "zero3"}
    none = {"other_ici_fsdp": 1, "other_dcn_fsdp": 8, "other_ici_data": 2}
    assert new(read("maxtext", **none), "shard_ranks", "strategy") == {"strategy": "zero3"}


def test_adapters_of_named_parts() -> None:
    """litgpt's switches: the three products of its MLP have one."""
    on = {"other_on_query": True, "other_on_key": False, "other_on_mlp": True}
    found = new(read("litgpt-lora", **on), "lora_targets")
    assert found == {"lora_targets": "q_proj,gate_proj,up_proj,down_proj"}
    alone = new(read("litgpt-lora", other_on_query=True, other_on_value=True), "lora_targets")
    assert alone == {"lora_targets": "q_proj,v_proj"}


@pytest.mark.parametrize(
    ("per_device", "tp", "micro_batch"), [(1, 1, 1), (0.5, 2, 1), (3, 2, 6), (0.5, 1, None)]
)
def test_a_devices_batch_is_that_of_its_replica_over_its_ranks(
    per_device: float, tp: int, micro_batch: int | None
) -> None:
    reading = Reading("maxtext", Source("", "line"))
    reading.say("other.per_device", per_device, "per_device_batch_size")
    reading.say("tp", tp, "ici_tensor_parallelism")
    ODD["axes of a mesh"](reading, Table({}))
    assert reading.said("micro_batch") == micro_batch
    refused = [u for u in reading.finish().unsupported if u.word == "micro_batch"]
    assert bool(refused) is (micro_batch is None)
