"""Megatron-LM's flags for pipeline stages of unequal length.

``--decoder-first-pipeline-num-layers`` and ``--decoder-last-pipeline-num-layers`` give the first
and last stage, and the others share the rest. ``--pipeline-model-parallel-layout`` gives every
chunk: E embedding, t layer, m multi-token prediction, L loss, ``|`` between chunks, ``x*n`` and
``(...)*n`` for n repetitions (megatron/core/transformer/pipeline_parallel_layer_layout.py).
"""

from __future__ import annotations

import re
from typing import Any

from simcore.strategy.cuts import parsed, written
from simcore.strategy.dialects.base import Job
from simcore.strategy.dialects.reading import NOT_YET, Reading, Table

_LAYOUT, _FIRST, _LAST = (
    "pipeline-model-parallel-layout",
    "decoder-first-pipeline-num-layers",
    "decoder-last-pipeline-num-layers",
)
#: Modules that predict further tokens, which stages count as layers; a layout alone places them.
_MODULES = "mtp-num-layers"
_GROUP = re.compile(r"\(([^()]*)\)\*(\d+)")
_REPEAT = re.compile(r"([EtmL])\*(\d+)")
_CHUNKS = re.compile(r"^E?t*(?:\|t*)*m*L?$")
#: Largest number of repetitions in a layout; more are taken for a typing error.
_MOST = 2_000


def read_stages(reading: Reading, table: Table) -> None:
    """State the option ``stages`` from the flags; the degrees must have been read."""
    ends = [reading.whole(f"--{n}", table.take(n)) for n in (_FIRST, _LAST)]
    layout, stages = table.take(_LAYOUT), reading.said("pp")
    modules = reading.whole(f"--{_MODULES}", table.given.get(_MODULES)) or 0
    if layout is not None:
        _read_layout(reading, str(layout), stages, "tm" if modules else "t")
    elif any(ends) and isinstance(stages, int):
        first, last = ends
        last = None if last is None else last + modules
        open_stages = stages - sum(n is not None for n in ends)
        named = [str(first or ""), "rest" if open_stages else "", str(last or "")]
        key = f"--{_FIRST if first else _LAST}"
        reading.say("stages", ",".join(n for n in named if n), key)


def _read_layout(reading: Reading, text: str, stages: object, counted: str) -> None:
    key = f"--{_LAYOUT} {text}"
    chunks = layers_of_chunks(text, counted)
    if not isinstance(stages, int) or chunks is None or len(chunks) % stages:
        reading.refuse(key, f"does not name the chunks of {stages or 'any'} stages", "stages")
        return
    # Chunk i is on stage i mod p.
    sizes = [sum(chunks[s::stages]) for s in range(stages)]
    if not all(sizes):
        reading.refuse(key, f"has a stage without a layer, which {NOT_YET}", "stages")
        return
    reading.say("stages", written(sizes), f"--{_LAYOUT}")
    if len(chunks) > stages and reading.said("vpp") is None:
        reading.say("vpp", len(chunks) // stages, f"--{_LAYOUT}")


def layers_of_chunks(text: str, counted: str = "t") -> list[int] | None:
    """Layers of each chunk, from the first on; None where the text is not a layout.

    ``counted``: the letters that count as layers, "tm" with modules of multi-token prediction.
    """
    text = re.sub(r"[\s,'\"\\]", "", text)
    for pattern in (_GROUP, _REPEAT):
        if any(int(m[2]) > _MOST for m in pattern.finditer(text)):
            return None
        text = pattern.sub(lambda m: m[1] * int(m[2]), text)
    if not _CHUNKS.match(re.sub(r"\|(?=[mL])", "", text)):
        return None
    return [sum(map(part.count, counted)) for part in text.split("|")]


def emit_stages(job: Job) -> dict[str, Any]:
    """The flags for unequal stages; empty for even ones. Raises InvalidConfig for a wrong text."""
    if not job.stages:
        return {}
    sizes = parsed(job.stages)
    middle = set(sizes[1:-1])
    if len(middle) == 1 and (job.vpp or 1) == 1 and not job.shape.get("next_tokens"):
        return {_FIRST: sizes[0], _LAST: sizes[-1]}
    chunks = _spread(sizes, job.vpp or 1)
    modules = int(job.shape.get("next_tokens") or 0)
    layers = "|".join("t" * n for n in (*chunks[:-1], max(chunks[-1] - modules, 0)))
    return {_LAYOUT: f'"E{layers}{"m" * modules}L"'}


def _spread(sizes: tuple[int, ...], vpp: int) -> list[int]:
    """Layers of each chunk in the model's order, each stage's divided over its chunks.

    The first chunk, with the embedding, and the last one, with the loss, are the shorter ones.
    """
    p = len(sizes)
    chunks = [0] * (p * vpp)
    for s, size in enumerate(sizes):
        base, more = divmod(size, vpp)
        longer = range(vpp - more, vpp) if s < p - 1 else range(more)
        for c in range(vpp):
            chunks[c * p + s] = base + (c in longer)
    return chunks
