"""A launch file as options, a job to write, and two files of which one names the other."""

from __future__ import annotations

from typing import Any

import pytest
from strategies import on_by_default

from simcore.strategy.dialects.base import Job, Launch, Unsupported, joined

JOB: dict[str, Any] = {
    "strategy": "ddp", "micro_batch": 3, "grad_accum": 2, "precision": "bf16", "recompute": "none",
    "optimizer": "adamw", "offload": "optimizer:cpu", "nnodes": 4, "nproc_per_node": 6,
}  # fmt: skip


def test_sizes_of_a_job() -> None:
    """24 ranks; 2 x 3 x 2 of them hold a replica, which leaves two: 2 x 3 x 2 samples a step."""
    plain, divided = Job(**JOB), Job(**JOB, tp=2, pp=3, cp=2)
    assert (plain.n_gpus, plain.data_ranks, plain.global_batch) == (24, 24, 144)
    assert (divided.data_ranks, divided.global_batch) == (2, 12)
    for degree in ("tp", "pp", "cp"):
        assert Job(**JOB, **{degree: 2}).data_ranks == 12


def test_facts_of_a_job() -> None:
    facts = Job(**JOB, vpp=2).facts()
    assert facts["global_batch"] == 144 and facts["micro_batch"] == 3
    assert facts["offload.optimizer"] == "cpu" and facts["offload.params"] == "none"
    assert facts["overlap.grads"] is facts["overlap.pipeline"] is True
    assert Job(**JOB).facts()["overlap.pipeline"] is False


def test_options_that_are_stated() -> None:
    launch = Launch(tp=2, pp=None, where="x", said={"cp": 3, "tp": 1})
    assert launch.said == {"cp": 3, "tp": 2} and launch.words() == {"tp": 2, "cp": 3}
    assert launch.pp is None and launch.where == "x" and launch.settings == {}
    assert list(launch.words()) == ["tp", "cp"], "in the order of the table"
    assert Launch().settings is not Launch().settings
    with pytest.raises(TypeError, match="no options of a launch file: abc, shares"):
        Launch(shares="1:2", abc=3)
    for name in ("shares", "abc"):
        with pytest.raises(AttributeError, match=f"Launch has no option '{name}'"):
            getattr(launch, name)


def test_errors_that_options_replace() -> None:
    launch = Launch(unsupported=(Unsupported("a", "tp"), Unsupported("b"), Unsupported("c", "pp")))
    assert launch.violations() == ["a", "b", "c"]
    assert launch.violations({"tp"}) == ["b", "c"]


def test_the_outer_file_goes_before_the_one_that_it_names() -> None:
    inner = Launch(
        tp=2, pp=2, global_batch=8, n_gpus=16, whole_world="w", model="m",
        settings={"a": 1, "b": 1},
        other={"x": 1}, model_hints=("h",), described={"layers": 1}, shape={"s": 1},
        keys={"tp": "--tp", "pp": "--pp"}, absent_files=("i",), approximated=("i",), unknown=("i",),
        ignored=("i",), unsupported=(Unsupported("t", "tp"), Unsupported("c", "cp"),
                                     Unsupported("n")), dialect="in", where="in",
    )  # fmt: skip
    outer = Launch(
        tp=4, settings={"b": 2}, other={"y": 2}, keys={"tp": "-t"}, absent_files=("o",),
        approximated=("o",), unknown=("o",), ignored=("o",), unsupported=(Unsupported("o"),),
        dialect="out", where="out",
    )  # fmt: skip
    both = joined(outer, inner)
    assert both.words() == {"tp": 4, "pp": 2} and (both.dialect, both.where) == ("out", "out")
    assert (both.global_batch, both.n_gpus, both.whole_world) == (8, 16, "w")
    assert (both.model, both.model_hints, both.described) == ("m", ("h",), {"layers": 1})
    assert both.settings == {"a": 1, "b": 2} and both.other == {"x": 1, "y": 2}
    assert both.shape == {"s": 1} and both.keys == {"tp": "-t", "pp": "--pp"}
    for name in ("absent_files", "approximated", "unknown", "ignored"):
        assert getattr(both, name) == ("o", "i")
    assert [u.text for u in both.unsupported] == ["o", "c", "n"], "tp is stated, cp is not"
    own = joined(
        Launch(global_batch=4, n_gpus=2, whole_world="v", model="k", model_hints=("g",)), inner
    )
    assert (own.global_batch, own.n_gpus, own.whole_world, own.model, own.model_hints) == (
        4, 2, "v", "k", ("g",),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("outer", "inner", "fills"),
    [
        ({"fills": False}, {}, False), ({"fills": True}, {"fills": False}, True),
        ({"fills": True}, {"fills": False, "software": "deepspeed"}, False),
        ({"fills": False}, {"fills": True, "software": "deepspeed"}, True),
        ({"fills": True, "software": "fsdp"}, {"fills": False, "software": "deepspeed"}, True),
        ({"fills": False, "software": "fsdp"}, {"fills": True}, False),
    ],
)  # fmt: skip
def test_whose_program_fills_in_defaults(
    outer: dict[str, Any], inner: dict[str, Any], fills: bool
) -> None:
    assert joined(Launch(**outer), Launch(**inner)).fills is fills


def test_a_launch_fills_in_the_programs_defaults_unless_it_says_that_it_has_none() -> None:
    assert on_by_default(Launch) == {"fills": True}
