"""Megatron's flags for unequal stages: layers counted by hand, and reading undoes writing."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.strategy.cuts import parsed
from simcore.strategy.dialects.base import Job
from simcore.strategy.dialects.megatron_stages import emit_stages, layers_of_chunks, read_stages
from simcore.strategy.dialects.reading import Reading, Table
from simcore.strategy.dialects.source import Source

LAYOUT, FIRST, LAST = (
    "pipeline-model-parallel-layout", "decoder-first-pipeline-num-layers",
    "decoder-last-pipeline-num-layers",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("Et|t|tL", [1, 1, 1]), ("E|t*3|(tt|)*2t|L", [0, 3, 2, 2, 1, 0]), ("Ettt|(tt|)*3L",
                                                                        [3, 2, 2, 2, 0]),
        ('"Ett|ttL"', [2, 2]), ("Et, t | t L", [2, 1]), ("t|t", [1, 1]), ("Et*2|tmL", [2, 1]),
        ("(t|)*2000L", [1] * 2000 + [0]), ("Ett|tt|mL", [2, 2, 0]), ("Et|t|m|L", [1, 1, 0, 0]),
    ],
)  # fmt: skip
def test_layers_of_chunks(text: str, layers: list[int]) -> None:
    """Megatron-Core, pipeline_parallel_layer_layout.py: t is a layer, | ends a chunk."""
    assert layers_of_chunks(text) == layers


def test_modules_of_multi_token_prediction_count_where_asked() -> None:
    assert layers_of_chunks("Et|tmmL", "tm") == [1, 3]


def test_a_layout_s_modules_are_layers_of_a_model_that_has_them() -> None:
    """The stages of a model count them (Megatron-LM's own DeepSeek-V3 proxy: 14 layers and one)."""
    layout = {LAYOUT: "Et*7|t*7mL"}
    assert parsed(str(read(2, **layout).said("stages"))) == (7, 7)
    modules = {"mtp-num-layers": 1}
    assert parsed(str(read(2, **layout, **modules).said("stages"))) == (7, 8)
    assert read(4, **{FIRST: 6, LAST: 5}, **modules).said("stages") == "6,rest,6"


def test_modules_are_written_after_the_last_layer() -> None:
    job = Job(
        model="deepseek-v3", strategy="zero1", micro_batch=1, grad_accum=4, precision="bf16",
        recompute="none", optimizer="adamw", offload="none", nnodes=1, nproc_per_node=8,
        seq_len=4096, grad_clip=True, stages="3,4,4,3", shape={"next_tokens": 1}, pp=4,
    )  # fmt: skip
    flags = emit_stages(job)
    assert flags == {LAYOUT: '"Ettt|tttt|tttt|ttmL"'}
    back = read(4, **flags, **{"mtp-num-layers": 1})
    assert parsed(str(back.said("stages"))) == (3, 4, 4, 3)


@pytest.mark.parametrize(
    "text", ["Ex|tL", "tE|t", "EtL|t", "Em|tL", "t*2001", "(t|)*2001", "E(t|t", "tLm", "EEt"]
)
def test_what_is_no_layout(text: str) -> None:
    assert layers_of_chunks(text) is None


def read(pp: int | None, vpp: int | None = None, **flags: Any) -> Reading:
    reading = Reading("megatron", Source("", "line"))
    for name, value in (("pp", pp), ("vpp", vpp)):
        if value is not None:
            reading.say(name, value, f"--{name}")
    read_stages(reading, Table({k: v for k, v in flags.items() if v is not None}))
    return reading


@pytest.mark.parametrize(
    ("pp", "first", "last", "stages"),
    [
        (4, 6, None, "6,rest"), (4, None, 5, "rest,5"), (4, 6, 5, "6,rest,5"), (2, 6, 5, "6,5"),
        (3, 6, 5, "6,rest,5"), (None, 6, 5, None), (4, None, None, None),
    ],
)  # fmt: skip
def test_first_and_last_stage(
    pp: int | None, first: int | None, last: int | None, stages: str | None
) -> None:
    found = read(pp, **{FIRST: first, LAST: last})
    assert found.said("stages") == stages
    if stages:
        assert found.key_of("stages") == f"--{FIRST if first else LAST}"


@pytest.mark.parametrize(
    ("layout", "pp", "vpp", "stages", "chunks"),
    [
        ("Et|tt|tttL", 3, None, (1, 2, 3), None),
        ("Et|tt|ttt|tL", 2, None, (4, 3), 2),  # chunk i is on stage i mod 2
        ("Et|tt|ttt|tL", 2, 2, (4, 3), 2), ("Et|tt|ttt|tL", 4, None, (1, 2, 3, 1), None),
        ("E|t|t|t|t|L", 2, None, (2, 2), 3),
    ],
)  # fmt: skip
def test_a_layout_gives_every_stage(
    layout: str, pp: int, vpp: int | None, stages: tuple[int, ...], chunks: int | None
) -> None:
    found = read(pp, vpp, **{LAYOUT: layout})
    assert parsed(str(found.said("stages"))) == stages and found.said("vpp") == chunks
    assert not found.refuses("stages")


@pytest.mark.parametrize(
    ("layout", "pp", "says"),
    [
        ("Et|t|tL", 2, "does not name the chunks of 2 stages"),
        ("Et|tx", 2, "does not name the chunks of 2 stages"),
        ("Et|tL", None, "does not name the chunks of any stages"),
        ("E|tL", 2, "has a stage without a layer"), ("E|t|t|L", 4, "has a stage without a layer"),
    ],
)  # fmt: skip
def test_a_layout_that_cannot_be_is_refused(layout: str, pp: int | None, says: str) -> None:
    found = read(pp, **{LAYOUT: layout})
    assert found.said("stages") is None and found.refuses("stages")
    (told,) = found.finish().unsupported
    assert says in told.text and layout in told.text


@pytest.mark.parametrize(
    ("stages", "vpp", "flags"),
    [
        ("", None, {}), ("3,4,4,2", 1, {FIRST: 3, LAST: 2}), ("3,4,4,2", None, {FIRST: 3, LAST: 2}),
        ("3,4,5,2", 1, {LAYOUT: '"Ettt|tttt|ttttt|ttL"'}),
        ("3,4,5,2", None, {LAYOUT: '"Ettt|tttt|ttttt|ttL"'}), ("5,2", 1, {LAYOUT: '"Ettttt|ttL"'}),
        # 5 over two chunks: 2 and 3, the last stage's the other way round
        ("5,5", 2, {LAYOUT: '"Ett|ttt|ttt|ttL"'}), ("4,6,6", 2, {LAYOUT:
                                                                '"Ett|ttt|ttt|tt|ttt|tttL"'}),
        ("7,7", 3, {LAYOUT: '"Ett|ttt|tt|tt|ttt|ttL"'}),
    ],
)  # fmt: skip
def test_stages_as_flags(stages: str, vpp: int | None, flags: dict[str, Any]) -> None:
    job = Job(
        model="gpt2", strategy="ddp", micro_batch=1, grad_accum=1, precision="bf16",
        recompute="none", optimizer="adamw", offload="none", nnodes=1, nproc_per_node=8,
        seq_len=1024, grad_clip=True, stages=stages, vpp=vpp,
    )  # fmt: skip
    assert emit_stages(job) == flags
    if LAYOUT in flags:
        back = read(len(parsed(stages)), **flags)
        assert parsed(str(back.said("stages"))) == parsed(stages)
        assert back.said("vpp") == (vpp if vpp != 1 else None)
