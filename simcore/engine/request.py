"""From plain words to a request: names looked up, defaults taken and listed, rules checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.engine.evaluate import Loading
from simcore.engine.predict import Request, fitting_batch
from simcore.hardware.cluster import ClusterSpec, parse_cluster
from simcore.hardware.profile import Profile, load_profile
from simcore.strategy.precision import OPTIMIZERS, PRECISIONS
from simcore.strategy.strategy import Strategy, parallelism_named, parse_offload
from simcore.workload.models import MODELS, ModelRecord

#: ``micro_batch="max"`` looks for the largest batch that fits up to this.
MAX_BATCH = 4096


class Options(TypedDict, total=False):
    """The words of the command line; what is missing or None takes the model's default.

    strategy        dp, manual, ddp, zero1, zero2, zero3
    micro_batch     samples a GPU and micro-step, or "max"
    grad_accum      micro-steps before an update
    precision       fp32, tf32, amp-fp16, amp-bf16, fp16, bf16
    recompute       none, full
    optimizer       adamw, adam, sgd, sgd-plain
    offload         none, optimizer, optimizer:nvme, optimizer+params, ... (cpu, cpu-far, nvme)
    network         link between nodes: ib-hdr, 8xib-ndr, "25 Gbit/s"
    node            node preset
    nnodes, nproc_per_node   torchrun's counts, where ``gpus`` names a type only
    seq_len         sequence length, where the model has one
    calibration     name or file of a calibration
    """

    strategy: str | None
    micro_batch: int | str | None
    grad_accum: int | None
    precision: str | None
    recompute: str | None
    optimizer: str | None
    offload: str | None
    network: str | None
    node: str | None
    nnodes: int | None
    nproc_per_node: int | None
    seq_len: int | None
    calibration: str | None


def make_request(
    model: str, gpus: str, *, profile: Profile | None = None, **options: Unpack[Options]
) -> Request:
    """Resolve names and defaults. Raises with every violation found."""
    problems: list[str] = []
    found: dict[str, Any] = {}

    def attempt(key: str, make: Callable[[], object]) -> None:
        try:
            found[key] = make()
        except InvalidConfig as err:
            problems.extend(err.violations)
        except UsageError as err:
            problems.append(str(err))

    attempt("record", lambda: MODELS[model])
    attempt(
        "cluster",
        lambda: parse_cluster(
            gpus,
            network=options.get("network"),
            node=options.get("node"),
            nnodes=options.get("nnodes"),
            nproc_per_node=options.get("nproc_per_node"),
        ),
    )
    record: ModelRecord | None = found.get("record")
    defaults: list[str] = []

    def chosen(flag: str, value: Any, fallback: Any) -> Any:
        if value is not None:
            return value
        defaults.append(f"{flag} {fallback}")
        return fallback

    t = record.training if record else None
    attempt(
        "parallelism",
        lambda: parallelism_named(
            chosen("strategy", options.get("strategy"), t.strategy if t else "ddp")
        ),
    )
    attempt(
        "precision",
        lambda: PRECISIONS[
            chosen("precision", options.get("precision"), t.precision if t else "fp32")
        ],
    )
    attempt(
        "optimizer",
        lambda: OPTIMIZERS[
            chosen("optimizer", options.get("optimizer"), t.optimizer if t else "adamw")
        ],
    )
    attempt("offload", lambda: parse_offload(options.get("offload") or "none"))
    mode = chosen("recompute", options.get("recompute"), t.recompute if t else "none")
    if mode not in ("none", "full"):
        problems.append(str(UnknownName("recompute", str(mode), ["none", "full"])))
    accum = chosen("grad-accum", options.get("grad_accum"), 1)
    if accum < 1:
        problems.append(f"grad-accum must be at least 1, not {accum}")
    batch = chosen("micro-batch", options.get("micro_batch"), t.micro_batch if t else 1)
    batch = _batch(batch, problems)
    cluster: ClusterSpec | None = found.get("cluster")
    attempt("profile", lambda: profile or load_profile(options.get("calibration")))
    seq_len = options.get("seq_len")
    overrides: dict[str, Any] = {} if seq_len is None else {"seq_len": seq_len}
    if record is not None:
        attempt("workload", lambda: record.build(**overrides))
    chosen_strategy: Strategy | None = None
    if {"parallelism", "precision", "optimizer", "offload"} <= found.keys():
        chosen_strategy = Strategy(
            parallelism=found["parallelism"],
            precision=found["precision"],
            optimizer=found["optimizer"],
            recompute=mode,
            offload=found["offload"],
            ema=t.ema if t else False,
            grad_clip=t.grad_clip if t else False,
            step_impl=t.optimizer_impl if t else "foreach",
            ema_impl=t.ema_impl if t else "for-loop",
        )
        if cluster is not None:
            types = len({g.gpu.name for g in cluster.groups})
            problems += chosen_strategy.violations(cluster.n_nodes, cluster.n_gpus, types)
            if "nvme" in str(chosen_strategy.offload):
                problems += [
                    f"node {g.node.name!r} has no NVMe in the database to offload to"
                    for g in cluster.groups
                    if g.node.nvme is None
                ]
    if problems:
        raise InvalidConfig(list(dict.fromkeys(problems)))
    assert record is not None and cluster is not None and chosen_strategy is not None
    request = Request(
        workload=found["workload"],
        full_name=record.full_name,
        cluster=cluster,
        strategy=chosen_strategy,
        micro_batch=1 if batch == "max" else int(batch),
        grad_accum=accum,
        profile=found["profile"],
        loading=_loading(record),
        defaults=tuple(defaults),
        assumptions=_assumptions(record),
    )
    if batch == "max":
        best = fitting_batch(request, MAX_BATCH)
        note = f"micro-batch {best} is the largest that fits" if best else "not even 1 fits"
        request = replace(
            request, micro_batch=max(best, 1), assumptions=(*request.assumptions, note)
        )
    return request


def _batch(value: int | str, problems: list[str]) -> int | str:
    if isinstance(value, str):
        if value.strip().lower() == "max":
            return "max"
        try:
            value = int(value)
        except ValueError:
            problems.append(f"micro-batch {value!r} is neither a whole number nor 'max'")
            return 1
    if not 1 <= value <= 10**6:
        problems.append(f"micro-batch must be 1 to 1,000,000, not {value}")
        return 1
    return value


def _loading(record: ModelRecord) -> Loading | None:
    data = record.dataset
    if data is None or data.sample_load is None:
        return None
    return Loading(
        samples=data.samples.value,
        sample_load_s=data.sample_load.value,
        workers=data.workers,
        persistent=data.persistent_workers,
    )


def _assumptions(record: ModelRecord) -> tuple[str, ...]:
    data = record.dataset
    if data is None or data.sample_load is None:
        return ("data loading keeps up (no data set described)",)
    return (
        f"data set {data.name}: {data.samples.value:.0f} samples, {data.workers} loader workers a "
        f"rank, {data.sample_load.value:g} s of processor time a sample",
    )
