"""Names for shell completion, from the databases; a broken database completes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

#: What stands before the GPU type being typed: earlier groups and counts.
_BEFORE_TYPE = re.compile(r"^(?:.*\+)?(?:\d+x){0,2}")

Completer = Callable[[str], list[str]]


def _completer(names: Callable[[], Iterable[str]]) -> Completer:
    def complete(incomplete: str) -> list[str]:
        try:
            return sorted(n for n in names() if n.startswith(incomplete))
        except Exception:  # an error message would land in the user's command line
            return []

    return complete


def _databases() -> Any:
    from simcore.hardware import spec

    return spec


def _models() -> Iterable[str]:
    from simcore.workload.models import MODELS

    return MODELS.names()


def _gpus() -> list[str]:
    names: list[str] = _databases().GPUS.names()
    return names


def _nodes() -> list[str]:
    names: list[str] = _databases().NODES.names()
    return names


def _links() -> list[str]:
    names: list[str] = _databases().LINKS.names()
    return names


def _network_links() -> Iterable[str]:
    within = ("pcie", "nvlink", "xgmi", "upi", "c2c")
    return (n for n in _links() if not n.startswith(within))


def _strategies() -> Iterable[str]:
    from simcore.strategy.strategy import STRATEGIES

    return STRATEGIES


def _precisions() -> Iterable[str]:
    from simcore.strategy.precision import PRECISIONS

    return PRECISIONS


def _software() -> Iterable[str]:
    from simcore.strategy.programs import PROGRAMS, program_names

    releases = (f"{n}@{r}" for n in PROGRAMS.names() for r in PROGRAMS[n].releases)
    return [*program_names(), *releases]


def _optimizers() -> Iterable[str]:
    from simcore.strategy.optimizers import OPTIMIZERS

    return OPTIMIZERS


def _calibrations() -> Iterable[str]:
    from simcore.hardware.calibrations import CALIBRATIONS

    return (n for n in CALIBRATIONS.names() if n != "runtime")


def _terms() -> Iterable[str]:
    from simcore.engine.explain import TERMS

    return TERMS


def _scores() -> Iterable[str]:
    from simcore.planning.ranking import SCORES

    return SCORES


def _objectives() -> Iterable[str]:
    from simcore.planning.goal import OBJECTIVES

    return OBJECTIVES


def _price_lists() -> Iterable[str]:
    from simcore.hardware.prices import PRICES

    return PRICES.names()


def _dialects() -> Iterable[str]:
    from simcore.strategy.dialects import FILES

    return FILES


dialects = _completer(_dialects)
models = _completer(_models)
gpus = _completer(_gpus)
nodes = _completer(_nodes)
links = _completer(_links)
networks = _completer(_network_links)
strategies = _completer(_strategies)
precisions = _completer(_precisions)
optimizers = _completer(_optimizers)
calibrations = _completer(_calibrations)
terms = _completer(_terms)
scores = _completer(_scores)
policies = _completer(lambda: ("fifo", "backfill", "priority", "preempt"))
objectives = _completer(_objectives)
price_lists = _completer(_price_lists)
recomputes = _completer(lambda: ("none", "selective", "full"))
schedules = _completer(lambda: ("1f1b", "gpipe", "zb-1p", "zb-2p", "dualpipe"))
dispatchers = _completer(lambda: ("alltoall", "deepep", "hybridep"))
cp_comms = _completer(lambda: ("ring", "all-gather", "ulysses"))
overlaps = _completer(lambda: ("grads", "params", "tensor", "dgrad", "experts", "pipeline", "none"))
recompute_modules = _completer(
    lambda: (
        "core_attn",
        "layernorm",
        "mlp",
        "moe_act",
        "moe",
        "shared_experts",
        "mla_up_proj",
        "operators",
    )
)


def _optimizer_impls() -> Iterable[str]:
    from simcore.strategy.optimizers import implementation_words

    return implementation_words()


optimizer_impls = _completer(_optimizer_impls)
issuers = _completer(lambda: ("torch", "megatron", "megatron_graphs", "megatron_2022", "graph"))
attentions = _completer(
    lambda: (
        "flash",
        "flash2",
        "flash3",
        "cudnn",
        "cudnn_fp8",
        "flash1",
        "flash_triton",
        "masked",
        "fused_softmax",
        "xla",
        "math",
        "eager",
    )
)
nccl_algorithms = _completer(
    lambda: ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
)
nccl_protocols = _completer(lambda: ("LL", "LL128", "Simple"))
software = _completer(_software)
main_grads = _completer(lambda: ("weights", "fused", "fp32"))
offloads = _completer(
    lambda: [
        "none",
        *(f"{w}:{t}" for w in ("optimizer", "params") for t in ("cpu", "cpu-far", "nvme")),
        "optimizer+params",
    ]
)


def cluster(incomplete: str) -> list[str]:
    """GPU types behind the counts already typed: ``4x8xA6`` to ``4x8xA6000ada``."""
    match = _BEFORE_TYPE.match(incomplete)
    before = match[0] if match else ""
    return [before + name for name in gpus(incomplete[len(before) :])]


#: Kinds of plots of a prediction, the first by default.
PLOTS = (
    "overview", "time", "memory", "memory-over-step", "scaling", "roofline", "timeline",
    "sensitivity",
)  # fmt: skip
plots = _completer(lambda: PLOTS)

#: What ``list`` and ``show`` know; singular words are taken too.
LISTS = (
    "gpus", "models", "configs", "nodes", "links", "strategies", "precisions", "optimizers",
    "collectives", "software", "calibrations", "prices",
)  # fmt: skip
SHOWS = ("gpu", "model", "node", "link", "program", "optimizer", "calibration")
kinds = _completer(lambda: LISTS)
shown_kinds = _completer(lambda: SHOWS)


def show_name(ctx: Any, incomplete: str) -> list[str]:
    """Names of the kind that ``show`` was asked for."""
    kind = str(ctx.params.get("kind") or "").rstrip("s")
    by_kind = {"gpu": gpus, "model": models, "node": nodes, "link": links, "program": software,
               "optimizer": optimizers, "calibration": calibrations}  # fmt: skip
    return by_kind[kind](incomplete) if kind in by_kind else []
