"""What a program does of which its record says nothing: PyTorch's own way."""

from __future__ import annotations

import pickle
from dataclasses import fields, is_dataclass
from typing import Any

from simcore.strategy.programs.mechanisms import (
    FUSED_SOFTMAX_SCORES,
    PLAIN,
    Program,
    Recompute,
    Runs,
    TensorLists,
    Zero3,
)

#: Mechanisms that are not off, zero or absent where nothing is said, each with its reason.
SAID_BY_DEFAULT: dict[str, Any] = {
    "gradients.shard_joined_before_widening": True,  # DeepSpeed's flattened shard
    "gradients.stub_after_fused_sum": True,  # Megatron-LM's placeholder of param.grad
    "offload.host_update_bytes": 28.0,  # Adam reads 4 and writes 3 fp32 values of a parameter
    "pipeline.cut": "even",
    "pipeline.interleaves": True,
    "ranks.communicators_a_dimension": 1,
}


def _off(value: object) -> bool:
    return value in (None, False, 0, 0.0, "") and value is not True


def test_nothing_is_assumed_of_a_program_but_what_is_named_here() -> None:
    bare = Program(name="bare", meaning="nothing said")
    found = {}
    for part in fields(bare):
        mechanism = getattr(bare, part.name)
        if is_dataclass(mechanism):
            for fact in fields(mechanism):
                if not _off(value := getattr(mechanism, fact.name)):
                    found[f"{part.name}.{fact.name}"] = value
    assert found == SAID_BY_DEFAULT
    assert bare.runs is None


def test_plain_is_pytorchs_modules_and_nothing_else() -> None:
    bare = Program(name="plain", meaning=PLAIN.meaning, layers=PLAIN.layers)
    assert bare == PLAIN and PLAIN.layers.plain_pytorch_modules and not PLAIN.layers.window_as_mask


def test_a_program_runs_language_models_as_torch_does_where_nothing_is_said() -> None:
    runs = Runs()
    assert runs.words() == {"issuer": "torch", "overlap": "grads", "main_grads": "weights"}
    assert (runs.precisions, runs.loss_with_tensor_ranks, runs.dropout) == ({}, "", 0.0)
    assert runs.sequence_parallel and not runs.fp8_weights
    assert not runs.zero1_reduces_after_backward and not runs.selective_is_whole_layers
    summed = Runs(fp32_gradient_sums=True, overlap=frozenset({"grads", "tensor", "dgrad"}))
    # hiding a tensor sum covers that of the input's gradient
    assert summed.words() == {"issuer": "torch", "overlap": "grads,tensor", "main_grads": "fp32"}
    assert Runs(overlap=frozenset()).words()["overlap"] == "none"
    recipe = Runs(recipe_overlap=frozenset({"params"}), options={"recompute": "full"})
    assert recipe.words()["overlap"] == "grads,params" and recipe.words()["recompute"] == "full"


def test_programs_are_keys_by_name() -> None:
    assert hash(Program(name="a", meaning="x")) == hash(Program(name="a", meaning="y"))
    assert Program(name="a", meaning="x") != Program(name="a", meaning="y")


def test_modules_gathered_singly_hold_a_tensor_and_the_list_that_is_copied_from_it() -> None:
    lists = TensorLists(**{f.name: 1.0 for f in fields(TensorLists)})
    assert Zero3().tensors_at_once == Zero3(tensor_lists=lists).tensors_at_once == 0
    assert Zero3(live_numel=1).tensors_at_once == 1
    assert Zero3(live_numel=10**9, tensor_lists=lists).tensors_at_once == 2


def test_torchs_reentrant_checkpoints_run_a_layer_to_its_end() -> None:
    """torch.utils.checkpoint: only those of use_reentrant=False stop early."""
    head = Recompute(full_includes_head=True)
    for reentrant in (False, True):
        made = head.made(reentrant)
        assert (made.reentrant, made.stops_early) == (reentrant, not reentrant)
        assert made.full_includes_head


def test_layers_of_a_program_by_hand() -> None:
    """Megatron's kernel of mask and softmax takes multiples of four matrices of scores."""
    runs = Runs(settings={"attention": "fused_softmax"}, dropout=0.1, loss_with_tensor_ranks="cut")
    plain = {"dropout": 0.1, "attention": "fused_softmax"}
    assert FUSED_SOFTMAX_SCORES == 4
    assert runs.layers(1, 8) == plain and runs.layers(2, 8) == {**plain, "loss": "cut"}
    assert runs.layers(1, 6) == {**plain, "attention": "math"}
    flash = Runs(settings={"attention": "flash"})
    assert flash.layers(8, 6) == {"dropout": 0.0, "attention": "flash"}
    travelled = pickle.loads(pickle.dumps(runs))
    assert travelled == runs and travelled.layers(1, 6) == runs.layers(1, 6)
