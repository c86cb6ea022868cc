"""What the page shows of each option, in which order, and what it takes for a typing mistake."""

from __future__ import annotations

from itertools import pairwise

from simcore.strategy.options import OPTIONS, Number, Option, Whole
from simcore.strategy.options.job import BATCHES
from simcore.strategy.options.option import GROUPS, LAYOUT_GROUP

#: Controls of the groups that are always seen, and of two below them, from first to last: what is
#: trained and how much, then how; within a group what most people change stands first.
IN_ORDER = {
    "Job": ["model", "lora_rank", "micro_batch", "grad_accum", "seq_len", "strategy", "precision",
            "tokens"],
    "Cluster": ["network", "gpus"],
    "Strategy": ["recompute", "optimizer", "offload"],
    "Run": ["steps", "epochs", "deadline", "cost", "price"],
}  # fmt: skip
#: The largest degree of any parallelism, of adapters' ranks and of factors on the page.
DEGREE = 4096


def _shown() -> dict[str, Option]:
    return {o.name: o for o in OPTIONS if o.control is not None}


def _in_group(group: str) -> list[str]:
    controls = [o for o in OPTIONS if o.control is not None and o.control.group == group]
    return [o.name for o in sorted(controls, key=lambda o: o.control.place)]  # type: ignore[union-attr]


def test_what_most_jobs_need_stands_first() -> None:
    for group, names in IN_ORDER.items():
        assert _in_group(group) == names
    assert [group for group, more in GROUPS.items() if not more] == ["Job", "Cluster"]
    assert _in_group(LAYOUT_GROUP)[-2:] == ["recompute_modules", "recompute_layers"]
    assert _in_group("More")[0] == "global_batch" and _in_group("More")[-1] == "calibration"


def test_what_is_long_spans_both_columns() -> None:
    wide = [name for name, o in _shown().items() if o.control and o.control.wide]
    assert wide == ["model", "micro_batch", "settings", "fabric", "node"]


def test_numbers_beyond_any_job_are_taken_for_typing_mistakes() -> None:
    """A run's length has its own limits: a hundred billion steps, 10^17 tokens."""
    degrees = {"lora_rank", "tp", "pp", "vpp", "cp", "ep", "expert_tp", "shard_ranks",
               "expert_imbalance", "expert_capacity"}  # fmt: skip
    most = {
        "steps": 10**11, "epochs": 10**11, "tokens": 10**17, "epoch_samples": 2 * 10**9,
        "bucket_numel": 10**12, "reuse_numel": 10**12, **dict.fromkeys(degrees, DEGREE),
    }  # fmt: skip
    for name, option in _shown().items():
        assert option.control is not None
        assert option.control.most == most.get(name, 10**6), name
        letters = {"gpus": 200, "micro_batch": 8, "settings": 4000}.get(name, 100)
        assert option.control.most_letters == letters, name


def test_only_what_is_no_whole_number_takes_a_fraction() -> None:
    fine = [name for name, o in _shown().items() if o.control and o.control.fine]
    assert fine == ["epochs", "expert_imbalance", "expert_capacity"]
    assert all(isinstance(OPTIONS[name].kind, Number) for name in fine)


def test_examples_are_values_of_their_options_that_the_page_takes() -> None:
    for name, option in _shown().items():
        assert option.control is not None
        example = option.control.example
        assert example is not None, name
        read = option.read(example)
        if isinstance(option.kind, Whole | Number) and not isinstance(read, str):
            assert read <= option.control.most, name


def test_the_short_help_lists_what_most_jobs_need() -> None:
    assert [o.name for o in OPTIONS if o.common] == [
        "model", "gpus", "strategy", "micro_batch", "global_batch", "precision", "optimizer",
        "recompute", "launch", "steps", "epochs", "tokens", "deadline", "cost", "seq_len",
        "lora_rank", "qlora", "tp", "pp", "software", "network", "calibration",
    ]  # fmt: skip


def test_what_the_engine_judges_itself_is_not_refused_by_the_table() -> None:
    """Names that depend on the model, the program or the parallelism; the engine says why."""
    judged = {o.name for o in OPTIONS if getattr(o.kind, "judged", False)}
    assert judged == {
        "strategy", "precision", "optimizer", "recompute", "layout", "attention", "quantised_base",
        "schedule", "cp_comm", "dispatcher", "overlap", "recompute_modules", "main_grads",
        "issuer", "optimizer_impl",
    }  # fmt: skip
    for name in judged:
        assert OPTIONS[name].read("no such name") == "no such name"
    assert {o.name for o in OPTIONS if getattr(o.kind, "counts", False)} == {"steps", "tokens"}


def test_a_slider_of_batches_takes_every_power_of_two_and_steps_between() -> None:
    """Each number is 1, 3 or 5 times a power of two, and at most twice the one before."""
    assert [2**n for n in range(9)] == [b for b in BATCHES if b & (b - 1) == 0]
    assert all(b < after <= 2 * b for b, after in pairwise(BATCHES))
    odd = {b // (b & -b) for b in BATCHES}
    assert odd == {1, 3, 5} and BATCHES[:6] == (1, 2, 3, 4, 5, 6)
