"""One contract for every file of models_db."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from alike import first_of_each, settings_of

from simcore.base.database import fold_name, shipped_root
from simcore.base.errors import InvalidConfig
from simcore.workload.graph import NONE, Kernel, Op, Workload
from simcore.workload.models import MODELS, ModelRecord
from simcore.workload.saved import Saved

_FOLDER = shipped_root() / "models_db"
_FILES = sorted(_FOLDER.glob("*.yaml"))
_PRECISIONS = {"fp32", "tf32", "amp-fp16", "amp-bf16", "fp16", "bf16"}
_OPTIMIZERS = {"sgd", "adam", "adamw", "adamw-tensorflow", "lamb-tensorflow", "adagrad"}
_STRATEGIES = {"dp", "manual", "ddp", "zero1", "zero2", "zero3"}


@pytest.fixture(scope="module", params=_FILES, ids=lambda path: path.stem)
def record(request: pytest.FixtureRequest) -> Iterator[ModelRecord]:
    """Each record, for all of its tests one after the other: it is built once for them."""
    path: Path = request.param
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(_FOLDER.parent)  # the shipped files, not a user's own
        yield MODELS[path.stem]


@pytest.fixture(scope="module")
def records() -> list[ModelRecord]:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(_FOLDER.parent)
        return [MODELS[path.stem] for path in _FILES]


def _not_negative(saved: Saved) -> bool:
    return min(saved.low, saved.high, saved.raw_bytes, saved.matmul, saved.matmul_copy) >= 0


def _kernel_is_sane(kernel: Kernel) -> bool:
    # Casts that only 16-bit training or only autocast has are elements of both signs, whose bytes
    # add up: pure 16 bit, autocast, fp32.
    widths = ((2, 2), (2, 4), (4, 4))
    moved = [kernel.raw_bytes + low * kernel.low + high * kernel.high for low, high in widths]
    is_cast = min(kernel.low, kernel.high) < 0
    work = (kernel.flop, kernel.weight, kernel.raw_bytes, *moved)
    issued = kernel.launches > 0 or kernel.awaited != NONE
    return min(work) >= 0 and (issued or is_cast)


def _op_is_sane(op: Op) -> bool:
    return _not_negative(op.saved) and all(_kernel_is_sane(k) for k in (*op.fwd, *op.bwd))


def test_there_are_models() -> None:
    assert len(_FILES) >= 19


def test_names_and_aliases_are_unique() -> None:
    used = Counter(
        fold_name(name) for r in map(MODELS.__getitem__, [p.stem for p in _FILES])
        for name in {fold_name(r.name): r.name, **{fold_name(a): a for a in r.aliases}}.values()
    )  # fmt: skip
    assert [name for name, count in used.items() if count > 1] == []


def test_every_alias_finds_its_record(
    records: list[ModelRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(_FOLDER.parent)
    for record in records:
        names = (record.name, *record.aliases)
        assert {name: MODELS[name].name for name in names} == dict.fromkeys(names, record.name)
        assert all(MODELS[name] is record for name in names), record.name
        assert len({fold_name(n) for n in names}) == len(names), record.name


def test_parameters_are_the_pinned_count(record: ModelRecord) -> None:
    assert record.build().trainable_numel == record.params.value


def test_frozen_parameters_are_the_pinned_count(record: ModelRecord) -> None:
    encodes = {"encoded": False} if "encoded" in record.settings({}) else {}
    built = record.build(**encodes).frozen
    assert len(built) == len(record.frozen)
    for part, given in zip(built, record.frozen, strict=True):
        assert part.resident_numel == given.params.value
        assert part.transient_low >= 0
        assert all(_op_is_sane(op) for op in part.ops)


def test_work_and_storages_are_sane(record: ModelRecord) -> None:
    workload = record.build()
    assert workload.forward_flop > 0
    assert workload.input_bytes > 0
    assert all(0 <= i < len(workload.blocks) for i in workload.order)
    assert set(workload.order) == set(range(len(workload.blocks)))
    saved = workload.saved
    assert _not_negative(saved)
    assert saved.low + saved.high > 0
    for block in workload.blocks:
        assert _not_negative(block.boundary)
        assert all(_op_is_sane(op) for op in block.ops), block.name
        assert all(p.numel > 0 for p in block.params)
        if block.recomputable:  # there is an input to start again from
            assert block.boundary.low + block.boundary.high > 0


def test_backward_does_about_twice_the_work_of_forward(record: ModelRecord) -> None:
    ops = [op for block in record.build().instances() for op in block.ops]
    forward = sum(k.flop for op in ops for k in op.fwd)
    backward = sum(k.flop for op in ops for k in op.bwd)
    if record.arch == "moco":  # the network of keys, half of forward, has no backward
        forward /= 2.0
    assert 1.5 * forward <= backward <= 2.5 * forward


def test_sources_are_given(records: list[ModelRecord]) -> None:
    for record in records:
        assert all(text.strip() for text in record.sources.values()), record.name
        used = {figure.source for figure in record.figures().values()}
        assert {*used, record.training.source} <= set(record.sources), record.name
        assert record.params.source in used, record.name


def test_training_uses_known_words(records: list[ModelRecord]) -> None:
    for record in records:
        training = record.training
        assert training.precision in _PRECISIONS, record.name
        assert training.optimizer in _OPTIMIZERS, record.name
        assert training.strategy in _STRATEGIES, record.name


@pytest.mark.parametrize(
    "name", first_of_each([path.stem for path in _FILES], kind=settings_of, name=str)
)
def test_building_is_deterministic(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(_FOLDER.parent)
    record = MODELS[name]
    again = record.model_copy()
    first, second = record.build(), again.build()
    assert first is not second  # the copy is not served from the cache
    for field in fields(Workload):
        assert getattr(first, field.name) == getattr(second, field.name), field.name


def test_an_unknown_setting_is_refused(records: list[ModelRecord]) -> None:
    """By every architecture."""
    firsts = {record.arch: record for record in reversed(records)}
    assert len(firsts) >= 19
    for record in firsts.values():
        with pytest.raises(InvalidConfig, match="no_such_setting"):
            record.build(no_such_setting=1)


def test_overrides_change_the_workload() -> None:
    record = MODELS["bert-base"]
    longer = record.build(seq_len=256)
    assert longer.tokens_per_sample == 256
    assert longer.trainable_numel == record.params.value
    assert longer.forward_flop > 2 * record.build().forward_flop


WRONG = {
    "layers": [-3, 0, math.nan, math.inf, "zwölf", 12.5, True, 10**9],
    "vocab": [-1, 2.0, "many"],
    "experts": [-1],
    "rotary_share": [-0.5, math.nan, math.inf, "half"],
    "fused_qkv": ["no", 1],
}


@pytest.mark.parametrize(("key", "value"), [(k, v) for k, vs in WRONG.items() for v in vs])
def test_a_setting_of_no_sense_is_named(key: str, value: object) -> None:
    """Not built into a model of other size, nor told in Python's words."""
    record = MODELS["gpt2"]
    bad = record.model_copy(update={"config": {**record.config, key: value}})
    with pytest.raises(InvalidConfig) as err:
        bad.build()
    assert f"{key} {value!r} is n" in str(err.value)


def test_none_of_something_is_allowed() -> None:
    """A count whose default is none may be stated as none."""
    record = MODELS["gpt2"]
    stated = record.model_copy(update={"config": {**record.config, "experts": 0, "window": 0}})
    assert stated.build().trainable_numel == record.build().trainable_numel
