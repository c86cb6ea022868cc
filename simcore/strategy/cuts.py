"""The layers of each pipeline stage: as text, and by the rules of programs.

# L layers, p stages
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from types import MappingProxyType

from simcore.base.errors import InvalidConfig
from simcore.strategy.layout import AUTO, CUT_RULES, EVEN
from simcore.workload.models import Scalar
from simcore.workload.sharding import even_cut

#: Digits are bounded, so that no text makes more stages than any model has layers.
_ENTRY = re.compile(r"^(?:(\d{1,4})\s*[x×*]\s*)?(\d{1,6}|rest)$")
_EXAMPLE = "write the layers of each stage: 19,21,21,19, or 7,14x8,7, or 7,rest,7"


def normalised(text: str) -> str:
    """``19, 21, 21,19`` as ``19,2x21,19``; ``even`` as "". Raises InvalidConfig."""
    text = text.strip().lower()
    if text in ("", EVEN):
        return ""
    return text if text == AUTO else _written(_entries(text))


def written(sizes: Sequence[int]) -> str:
    """The layers of each stage as short text."""
    return _written([(1, str(n)) for n in sizes])


def _written(entries: Sequence[tuple[int, str]]) -> str:
    runs = [(each, sum(n for n, _ in run)) for each, run in groupby(entries, key=lambda e: e[1])]
    return ",".join(each if count == 1 else f"{count}x{each}" for each, count in runs)


def _entries(text: str) -> list[tuple[int, str]]:
    found, problems = [], []
    for part in text.split(","):
        match = _ENTRY.match(part.strip())
        if match is None or match[1] == "0" or (match[2] == "rest" and match[1]):
            problems.append(f"stages {text!r}: {part.strip()!r} is no count of layers; {_EXAMPLE}")
        else:
            found.append((int(match[1] or 1), match[2]))
    if sum(each == "rest" for _, each in found) > 1:
        problems.append(f"stages {text!r}: 'rest' stands for all stages that are not named, once")
    if problems:
        raise InvalidConfig(problems)
    return found


def parsed(text: str) -> tuple[int, ...]:
    """The layers of each stage, from a text that names all of them. Raises InvalidConfig."""
    return tuple(int(each) for count, each in _entries(text) for _ in range(count))


def stages_told(text: str) -> int | None:
    """The number of stages in a text; None where the text leaves it open."""
    if text in ("", AUTO) or "rest" in text:
        return None
    return sum(count for count, _ in _entries(text))


def cut_problems(text: str, n_layers: int, n_stages: int, chunks: int = 1) -> list[str]:
    """Every rule that a division breaks, for these numbers of layers, stages and chunks a stage."""
    return [] if text in ("", AUTO) else _sizes(text, n_layers, n_stages, chunks)[1]


def cut_sizes(
    text: str,
    n_layers: int,
    n_stages: int,
    rule: str = EVEN,
    settings: Mapping[str, Scalar] = MappingProxyType({}),
) -> tuple[int, ...]:
    """The layers of each stage; ``auto`` counts as even until it is resolved. Raises InvalidConfig.

    ``rule``: of ``CUT_RULES``, where the text is empty; ``settings``: the model's, for the rule.
    """
    if text == "" and n_stages > 1:
        return CUT_RULES[rule](n_layers, n_stages, settings)
    if text in ("", AUTO):
        return even_cut(n_layers, n_stages)
    sizes, problems = _sizes(text, n_layers, n_stages, 1)
    if problems:
        raise InvalidConfig(problems)
    return sizes


def _sizes(
    text: str, n_layers: int, n_stages: int, chunks: int
) -> tuple[tuple[int, ...], list[str]]:
    entries = _entries(text)
    named = sum(count for count, each in entries if each != "rest")
    stated = sum(count * int(each) for count, each in entries if each != "rest")
    open_stages, left = n_stages - named, n_layers - stated
    if not any(each == "rest" for _, each in entries):
        problems = []
        if open_stages:
            problems.append(f"stages {text} are {named}, not pp={n_stages}")
        if left:
            problems.append(f"stages {text} have {stated} layers, not the model's {n_layers}")
    elif open_stages < 1:
        problems = [f"stages {text} leave no stage of pp={n_stages} for the rest"]
    elif left % open_stages or left < open_stages:
        near = max(1, round(left / open_stages)) * open_stages
        problems = [
            f"stages {text} leave {left} layers to {open_stages} stages, which does not divide: "
            f"{near} would"
        ]
    else:
        problems = []
    if problems:
        return (), problems
    sizes: list[int] = []
    for count, each in entries:
        rest = each == "rest"
        sizes += [left // open_stages] * open_stages if rest else [int(each)] * count
    for s, (size, least) in enumerate(zip(sizes, least_layers(n_stages, chunks), strict=True)):
        if size < least:
            what = f"its {chunks} chunks" if chunks > 1 else "one layer"
            problems = [f"stage {s} of stages {text} has {size} layers, less than {what}"]
            break
    return tuple(sizes), problems


#: Largest number of chunks of a pipeline rank in a search.
MOST_CHUNKS = 8


def chunk_counts(n_layers: int, n_stages: int) -> tuple[int, ...]:
    """Numbers of chunks that divide a pipeline's layers, with or without embedding and head.

    Megatron-LM takes either (--account-for-embedding-in-pipeline-split and the same for the loss).
    Where several numbers do, only the smallest, the largest and 4 are returned.
    """
    found = [n for n in range(2, MOST_CHUNKS + 1)
             if any((n_layers + ends) % (n_stages * n) == 0 for ends in (0, 1, 2))]  # fmt: skip
    return tuple(n for n in found if n in (found[0], 4, found[-1]))


def least_layers(n_stages: int, chunks: int) -> tuple[int, ...]:
    """The smallest number of layers of each stage: one a chunk.

    At the ends it is one less, since a chunk may hold the embedding or the head in place of a
    layer; but it is never zero.
    """
    ends = (0, n_stages - 1)
    return tuple(max(1, chunks - (s in ends)) for s in range(n_stages))


@CUT_RULES.register(EVEN)
def _even(n_layers: int, n_stages: int, settings: Mapping[str, Scalar]) -> tuple[int, ...]:
    """Equally many layers a stage; the last one has the modules of further tokens besides.

    Megatron-Core, transformer_block.py (get_num_layers_to_build) divides the layers alone, and
    multi_token_prediction.py (get_mtp_num_layers_to_build) puts all modules of further tokens on
    the last stage. Where the layers alone do not divide, modules count as layers.
    """
    extra = int(settings.get("next_tokens") or 0)
    if extra and (n_layers - extra) % n_stages == 0 and n_layers > extra:
        *others, last = even_cut(n_layers - extra, n_stages)
        return (*others, last + extra)
    return even_cut(n_layers, n_stages)


@CUT_RULES.register("parameters")
def _parameters(n_layers: int, n_stages: int, settings: Mapping[str, Scalar]) -> tuple[int, ...]:
    """Stages by their parameters, as Aleph Alpha's scaling divides them with ``balanced``.

    core/nn/parallel_module/pipeline_partitioning.py, pipe_partition_balanced; transformer/model/
    model.py lists the modules. Where that leaves a stage without a layer, stages take modules
    evenly, as its default does (uniform), and those of a model without such widths layers.
    """
    from simcore.workload.archs.lm_mlp import GATED  # one program cuts so

    hidden, ffn, vocab = (int(settings.get(k) or 0) for k in ("hidden", "ffn", "vocab"))
    if not hidden or not vocab:
        return even_cut(n_layers, n_stages)
    heads = int(settings.get("heads") or 1)
    keys = hidden * int(settings.get("kv_heads") or heads) // heads
    products = 3 if settings.get("mlp") in GATED else 2
    layer = hidden * (2 * hidden + 2 * keys + products * (ffn or 4 * hidden))
    sizes = parameters_cut(n_layers, n_stages, layer, vocab * hidden)
    return modules_cut(n_layers, n_stages, 1, 2) if 0 in sizes else sizes


@CUT_RULES.register("costs")
def _costs(n_layers: int, n_stages: int, settings: Mapping[str, Scalar]) -> tuple[int, ...]:
    """Stages by compute cost, as in nanotron's build_model with llama.py's get_block_compute_costs.

    The cost counts matrix products: four times the squared hidden width whatever the number of key
    heads, three for the feed-forward layer. A model without such widths is divided evenly.
    """
    hidden, ffn, vocab = (int(settings.get(k) or 0) for k in ("hidden", "ffn", "vocab"))
    if not hidden or not vocab:
        return even_cut(n_layers, n_stages)
    layer = hidden * (4 * hidden + 3 * (ffn or 4 * hidden))
    return costs_cut(n_layers, n_stages, layer, vocab * hidden)


@CUT_RULES.register("filled")
def _filled(n_layers: int, n_stages: int, _settings: Mapping[str, Scalar]) -> tuple[int, ...]:
    """Stages filled one after another with as many layers as the fullest needs, as in DeepSpeed.

    runtime/utils.py, partition_balanced: finds the least weight that no stage must exceed, to which
    _lprobe fills the stages; Megatron-DeepSpeed's type:transformer weighs layers only ("78/12=6.5 -
    so the last stage has 1 block, while the rest have 7", bigscience,
    train/tr11-176B-ml/chronicles-prequel.md).
    """
    most = -(-n_layers // n_stages)
    sizes = tuple(min(most, n_layers - most * s) for s in range(n_stages))
    if sizes[-1] < 1:
        raise InvalidConfig(
            [
                f"{n_layers} layers filled into {n_stages} stages of {most} leave the last without "
                f"a layer; take fewer stages, or name the layers of each (stages)"
            ]
        )
    return sizes


def modules_cut(n_layers: int, n_stages: int, before: int, after: int) -> tuple[int, ...]:
    """Layers of each stage where modules are divided evenly, the first stages taking one more.

    ``before``, ``after``: modules before the first layer and after the last one, each counted like
    a layer. Raises InvalidConfig where a stage would have no layer.
    """
    base, longer = divmod(before + n_layers + after, n_stages)
    ends = list(accumulate(base + (s < longer) for s in range(n_stages)))
    at = [min(max(end - before, 0), n_layers) for end in (0, *ends)]
    return _all_have(tuple(b - a for a, b in pairwise(at)), f"{before + after} more modules")


def parameters_cut(n_layers: int, n_stages: int, layer: int, table: int) -> tuple[int, ...]:
    """Layers of each stage, filled in turn up to the fewest parameters that no stage must exceed.

    ``layer``: parameters of a layer; ``table``: of the embedding before the layers, and of the head
    after them; those of norms are so few that they decide nothing. A stage may have no layer.
    """
    modules = [table, *[layer] * n_layers, table]
    sums = (table * ends + layer * n for ends in (0, 1, 2) for n in range(n_layers + 1))
    limits = sorted({total for total in sums if total >= max(modules)})
    limit = bisect_left(limits, True, key=lambda most: len(_filled_to(modules, most)) <= n_stages)
    ends = list(accumulate(_filled_to(modules, limits[limit])))
    ends += [ends[-1]] * (n_stages - len(ends))
    at = [min(max(end - 1, 0), n_layers) for end in (0, *ends)]
    return tuple(b - a for a, b in pairwise(at))


def _filled_to(weights: Sequence[int], most: int) -> list[int]:
    """How many items each part gets: each takes the next items until they would exceed ``most``."""
    sizes, weight = [0], 0
    for each in weights:
        if weight + each > most:
            sizes.append(0)
            weight = 0
        sizes[-1] += 1
        weight += each
    return sizes


def costs_cut(n_layers: int, n_stages: int, layer: int, head: int) -> tuple[int, ...]:
    """Layers of each stage, where stages take layers until the cost so far exceeds their share.

    The head belongs to the last stage. Raises InvalidConfig where a stage would have no layer.
    """
    whole, at = n_layers * layer + head, [0]
    for stage in range(1, n_stages):
        share = whole * (stage / n_stages)  # rounded like nanotron's
        at.append(min(int(share // layer) + 1, n_layers))
    return _all_have(tuple(b - a for a, b in pairwise((*at, n_layers))), "a head")


def _all_have(sizes: tuple[int, ...], beside: str) -> tuple[int, ...]:
    if 0 in sizes:
        raise InvalidConfig(
            [
                f"{sum(sizes)} layers and {beside} divided over {len(sizes)} stages leave stage "
                f"{sizes.index(0)} without a layer; take fewer stages, or name the layers of each "
                f"(stages)"
            ]
        )
    return sizes
