"""How training libraries divide layers into pipeline stages by default: one rule each.

A rule is a function of the number of layers, the number of stages (two or more) and the model's
settings. It returns the layers of each stage and raises InvalidConfig where a stage would have
none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise

from simcore.base.errors import InvalidConfig
from simcore.base.registry import Registry
from simcore.workload.models import Scalar
from simcore.workload.sharding import even_cut

CutRule = Callable[[int, int, Mapping[str, Scalar]], tuple[int, ...]]
CUT_RULES: Registry[CutRule] = Registry("cut rule")

EVEN = "even"


@CUT_RULES.register(EVEN)
def _even(n_layers: int, n_stages: int, _settings: Mapping[str, Scalar]) -> tuple[int, ...]:
    return even_cut(n_layers, n_stages)


@CUT_RULES.register("modules")
def _modules(n_layers: int, n_stages: int, _settings: Mapping[str, Scalar]) -> tuple[int, ...]:
    """Embedding, layers, final norm and head count as one module each, as in Aleph Alpha's scaling.

    core/nn/parallel_module/pipeline_partitioning.py: stages take modules evenly, the first ones one
    more; transformer/model/model.py lists the modules.
    """
    return modules_cut(n_layers, n_stages, 1, 2)


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


def costs_cut(n_layers: int, n_stages: int, layer: int, head: int) -> tuple[int, ...]:
    """Layers of each stage, where stages take layers until the cost so far exceeds their share.

    The head belongs to the last stage. Raises InvalidConfig where a stage would have no layer.
    """
    whole, at = n_layers * layer + head, [0]
    for stage in range(1, n_stages):
        share = whole * (stage / n_stages)  # rounded like nanotron's
        passed = int(share // layer) + 1
        at.append(min(max(passed, at[-1] + 1), n_layers))
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
