"""Which options a launch file may set, a sweep may vary, and the least values that make sense."""

from __future__ import annotations

import inspect
import re

from simcore import api
from simcore.strategy.dialects import DIALECTS
from simcore.strategy.options import OPTIONS, Number, Whole

#: Options that describe the machine, the calibration or the question, and details that no format
#: of launch files has. Everything else can be in one.
OF_NO_LAUNCH_FILE = {
    "qlora", "tokens", "deadline", "cost", "price", "prices",
    "model", "inputs", "gpus", "zero", "global_batch", "launch", "steps", "epochs", "settings",
    "sample_load", "epoch_samples", "expert_imbalance", "shares", "network", "node", "fabric",
    "nccl_algo", "nccl_proto", "nccl_version", "launch_blocking", "calibration",
    "prefetch_blocks", "gather_tensors", "reuse_numel", "eager_kernels", "cudnn_benchmark",
    "profile", "mean_seq_len", "packing",
}  # fmt: skip
#: Options of which several values beside each other are no sweep: switches, files, lists of names.
OF_NO_SWEEP = {
    "qlora", "tokens", "deadline", "cost", "price", "prices",
    "model", "inputs", "gpus", "launch", "steps", "epochs", "settings", "lora_targets",
    "quantised_base", "packing", "compile", "sequence_parallel", "expert_padding", "overlap",
    "recompute_modules", "fp8_params", "update_in_backward", "growing_segments", "node", "fabric",
    "reentrant",
    "nccl_algo", "nccl_proto", "nccl_version", "optimizer_impl", "grad_clip", "ema",
    "launch_blocking", "calibration",
    "bucket_numel", "prefetch_blocks", "gather_tensors", "reuse_numel", "eager_kernels",
    "cudnn_benchmark", "profile",
    "sample_load", "epoch_samples",
}  # fmt: skip
#: Values where nothing is said, of options that no other default decides.
UNSAID = {
    "qlora": False, "grad_accum": 1, "quantised_base": "none", "packing": False, "compile": False,
    "tp": 1, "pp": 1, "vpp": 1, "deferred_heads": 0,
    "cp": 1, "ep": 1, "expert_tp": 1, "sequence_parallel": True, "stages": "even",
    "schedule": "1f1b", "cp_comm": "ring", "dispatcher": "alltoall", "expert_imbalance": 1.0,
    "expert_padding": True, "shard_ranks": 0, "recompute_layers": 0, "offload": "none",
    "offload_layers": 0, "main_grads": "weights", "fp8_params": False, "growing_segments": False,
    "update_in_backward": False,
    "launch_blocking": False, "calibration": "blind", "gather_tensors": False,
    "eager_kernels": False, "cudnn_benchmark": False,
}  # fmt: skip
#: Whole numbers of which none is a value too.
FROM_ZERO = {
    "shard_ranks", "recompute_layers", "offload_layers", "prefetch_blocks", "reuse_numel",
    "num_workers", "deferred_heads",
}  # fmt: skip


def test_what_a_launch_file_may_set() -> None:
    assert {o.name for o in OPTIONS if not o.in_launch} == OF_NO_LAUNCH_FILE
    keys = {option for name in DIALECTS for option in OPTIONS.launch_keys(name).values()}
    assert keys <= set(OPTIONS.in_launch()) | {"global_batch"}


def test_what_a_sweep_may_vary() -> None:
    assert {o.name for o in OPTIONS if o.axis is None} == OF_NO_SWEEP


def test_values_where_nothing_is_said() -> None:
    assert {o.name: o.unsaid for o in OPTIONS if o.unsaid is not None} == UNSAID


def test_least_and_greatest_numbers() -> None:
    whole = {o.name: o.kind for o in OPTIONS if isinstance(o.kind, Whole)}
    assert {name for name, kind in whole.items() if kind.least == 0} == FROM_ZERO
    assert all(kind.least == 1 for name, kind in whole.items() if name not in FROM_ZERO)
    most = {name: kind.most for name, kind in whole.items() if kind.most is not None}
    assert most == {"zero": 3, "micro_batch": 1_000_000}
    assert [n for n, k in whole.items() if k.or_max] == ["micro_batch", "seq_len"]
    assert [n for n, k in whole.items() if k.binary] == [
        "seq_len",
        "mean_seq_len",
    ]  # 4k is 4,096 tokens
    numbers = {o.name: o.kind.least for o in OPTIONS if isinstance(o.kind, Number)}
    assert numbers == {
        "steps": None, "epochs": None, "tokens": None, "expert_imbalance": 1, "expert_capacity": 1,
    }  # fmt: skip


def test_help_in_python_names_every_option_with_unit_and_default() -> None:
    text = inspect.getdoc(api.predict) or ""
    told = dict(re.findall(r"^(\w+) {2,}(.+(?:\n {22}.+)*)", text.partition("Options: ")[2], re.M))
    options = OPTIONS.keywords()
    assert set(options) <= set(told)
    without = [name for name in options if "default" not in told[name].lower()]
    assert not without, "options whose default help() does not say"
    pure = {"lora_rank", "expert_imbalance", "expert_capacity"}  # a rank, ratios
    for name, option in options.items():
        if isinstance(option.kind, Whole | Number) and name not in pure:
            assert f"[{option.unit}]" in " ".join(told[name].split()), name
    for name in ("steps", "epochs", "tokens", "deadline", "cost", "price"):
        assert re.search(rf"^{name}\b|, {name}\b", text, re.M), name
