"""What stages hold, asked for many points at a time, is what each cut of each point needs."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from simcore.answer.request import make_request
from simcore.answer.stages import with_stages
from simcore.hardware.cluster import parse_cluster
from simcore.memory.job import memory_over, stage_allocated_bytes
from simcore.memory.stages import StageLimits


@pytest.mark.parametrize("words", [{}, {"schedule": "zb-1p"}, {"recompute": "full", "tp": 2}])
def test_stages_hold_what_the_memory_of_each_cut_says(words: dict[str, Any]) -> None:
    request = make_request(
        "llama3.2-1b", "2x8xH100", pp=4, strategy="zero1", precision="bf16", **words
    )
    points = list(product(("1x8xH100", "2x8xH100", "4x8xH100"), (1, 4), (1, 3, 64)))
    clusters = [parse_cluster(name) for name, _, _ in points]
    cuts = [(4, 4, 4, 4), (1, 1, 1, 13), (6, 5, 3, 2), (13, 1, 1, 1)]

    def needed(at: int, sizes: tuple[int, ...]) -> list[float]:
        """Of each stage of a point, by the engine."""
        cut = with_stages(request, sizes)
        assert cut.placed is not None
        cluster, (_, batch, accum) = clusters[at], points[at]
        # Every stage by itself: of equal ones the engine asks the first alone.
        stages = tuple(replace(s, workload=replace(s.workload)) for s in cut.placed.stages)
        cut = replace(cut, placed=replace(cut.placed, stages=stages))
        over = (batch, accum, cluster.n_gpus, cluster.n_nodes)
        found = memory_over(cut, *(np.array([float(v)]) for v in over))
        return [float(m.needed[0]) for m in found]

    table = {(at, cut): needed(at, cut) for at in range(len(points)) for cut in cuts}
    limits = np.quantile([n for row in table.values() for n in row], np.linspace(0.1, 0.9, 18))
    over = (
        np.array([float(batch) for _, batch, _ in points]),
        np.array([float(accum) for _, _, accum in points]),
        np.array([float(c.n_gpus) for c in clusters]),
        np.array([float(c.n_nodes) for c in clusters]),
    )
    stage_limits = StageLimits(request, over, limits)
    held = set()
    for (at, cut), bytes_of in table.items():
        fits, first = stage_limits.of_point(at), 0
        for s, size in enumerate(cut):
            assert fits(s, first, first + size) == (bytes_of[s] <= limits[at])
            held.add(bytes_of[s] <= limits[at])
            first += size
    assert held == {True, False}


def test_what_follows_from_other_ranges_is_what_each_alone_computes() -> None:
    """A model of two kinds of layers, the first of which is dense; ranges in any order."""
    request = make_request("deepseek-v2-lite", "2x8xH100", pp=2, strategy="zero1", recompute="full")
    over = tuple(np.array(column) for column in ((1.0, 4.0), (1.0, 64.0), (16.0, 16.0), (2.0, 2.0)))
    limits = np.array([7e10, 1e11])
    together = StageLimits(request, over, limits)
    ranges = [(a, b) for a in (0, 1, 2, 9) for b in (3, 10, 17, 24, 27) if a < b]
    answers = set()
    for a, b in Random(5).sample(ranges, len(ranges)):
        alone = StageLimits(request, over, limits)
        for at, stage in product((0, 1), (0, 1)):
            answer = together.of_point(at)(stage, a, b)
            assert answer == alone.of_point(at)(stage, a, b)
            answers.add((at, answer))
    assert len(answers) == 4


def test_deferred_gradients_of_the_head_stay_on_the_last_stage() -> None:
    """The head's input and 16-bit gradient of the logits, for at most so many micro-batches.

    Of 2 x 1,024 tokens, 512 wide, and half of 50,432 words: 2 (512 + 25,216) bytes a token.
    """
    words = {
        "settings": {"hidden": 512, "heads": 8, "ffn": 2048, "layers": 4, "seq_len": 1024,
                     "vocab": 50432, "loss": "vocab_parallel"},
        "tp": 2, "pp": 2, "strategy": "ddp", "precision": "bf16", "micro_batch": 2,
        "software": "megatron-lm", "sequence_parallel": False, "recompute": "none",
    }  # fmt: skip

    def stage(position: int, **more: int) -> float:
        request = make_request("arch:transformer", "1x8xH100", **words, **more)
        return stage_allocated_bytes(request, position)

    each = 2 * 1024 * 2 * (512 + 50432 / 2)
    for position, accum, waiting in ((-1, 8, 2), (-1, 2, 1), (0, 8, 0)):
        more = stage(position, grad_accum=accum, deferred_heads=2)
        assert more - stage(position, grad_accum=accum) == pytest.approx(waiting * each)
