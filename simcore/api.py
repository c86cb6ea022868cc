"""What the command line, a notebook and a web page all call.

Every function takes plain words and numbers and returns frozen results; nothing prints.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.engine.evaluate import Loading
from simcore.engine.explain import explain
from simcore.engine.predict import Request, fitting_batch
from simcore.engine.predict import predict as _predict
from simcore.engine.result import Prediction
from simcore.hardware.cluster import ClusterSpec, parse_cluster
from simcore.hardware.profile import Profile, load_profile
from simcore.strategy.precision import OPTIMIZERS, PRECISIONS
from simcore.strategy.strategy import Strategy, parallelism_named, parse_offload
from simcore.workload.models import MODELS, ModelRecord

#: ``micro_batch="max"`` looks for the largest batch that fits up to this.
MAX_BATCH = 4096


def predict(
    model: str,
    gpus: str,
    *,
    strategy: str | None = None,
    micro_batch: int | str | None = None,
    grad_accum: int | None = None,
    precision: str | None = None,
    recompute: str | None = None,
    optimizer: str | None = None,
    offload: str | None = None,
    network: str | None = None,
    node: str | None = None,
    nnodes: int | None = None,
    nproc_per_node: int | None = None,
    steps: float | None = None,
    epochs: float | None = None,
    seq_len: int | None = None,
    calibration: str | None = None,
    keep_timeline: bool = False,
) -> Prediction:
    """Predict one training job.

    Args mirror the command line's flags; what is None takes the model's default and is listed in
    ``Prediction.defaults``. Raises UsageError (every violation at once) for a wrong request;
    a job that does not fit is an answer, not an error.
    """
    request = make_request(
        model,
        gpus,
        strategy=strategy,
        micro_batch=micro_batch,
        grad_accum=grad_accum,
        precision=precision,
        recompute=recompute,
        optimizer=optimizer,
        offload=offload,
        network=network,
        node=node,
        nnodes=nnodes,
        nproc_per_node=nproc_per_node,
        seq_len=seq_len,
        calibration=calibration,
    )
    result = _predict(request, keep_timeline=keep_timeline)
    run_steps = _run_steps(request, result, steps, epochs)
    return replace(
        result,
        explanations=explain(request, result),
        fixes=_fixes(request) if not result.fits else (),
        run_steps=run_steps,
        run_time_s=run_steps * result.step_time_s.value if run_steps is not None else None,
    )


def make_request(
    model: str,
    gpus: str,
    *,
    strategy: str | None = None,
    micro_batch: int | str | None = None,
    grad_accum: int | None = None,
    precision: str | None = None,
    recompute: str | None = None,
    optimizer: str | None = None,
    offload: str | None = None,
    network: str | None = None,
    node: str | None = None,
    nnodes: int | None = None,
    nproc_per_node: int | None = None,
    seq_len: int | None = None,
    calibration: str | None = None,
) -> Request:
    """Resolve names and defaults. Raises with every violation found."""
    problems: list[str] = []
    found: dict[str, Any] = {}

    def attempt(key: str, make: Any) -> None:
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
            gpus, network=network, node=node, nnodes=nnodes, nproc_per_node=nproc_per_node
        ),
    )
    record: ModelRecord | None = found.get("record")
    defaults: list[str] = []

    def chosen(flag: str, given: Any, fallback: Any) -> Any:
        if given is not None:
            return given
        defaults.append(f"{flag} {fallback}")
        return fallback

    t = record.training if record else None
    attempt(
        "parallelism",
        lambda: parallelism_named(chosen("strategy", strategy, t.strategy if t else "ddp")),
    )
    attempt(
        "precision",
        lambda: PRECISIONS[chosen("precision", precision, t.precision if t else "fp32")],
    )
    attempt(
        "optimizer",
        lambda: OPTIMIZERS[chosen("optimizer", optimizer, t.optimizer if t else "adamw")],
    )
    attempt("offload", lambda: parse_offload(offload or "none"))
    mode = chosen("recompute", recompute, t.recompute if t else "none")
    if mode not in ("none", "full"):
        problems.append(str(UnknownName("recompute", str(mode), ["none", "full"])))
    accum = chosen("grad-accum", grad_accum, 1)
    if accum < 1:
        problems.append(f"grad-accum must be at least 1, not {accum}")
    batch = chosen("micro-batch", micro_batch, t.micro_batch if t else 1)
    batch = _batch(batch, problems)
    cluster: ClusterSpec | None = found.get("cluster")
    attempt("profile", lambda: load_profile(calibration))
    overrides = {} if seq_len is None else {"seq_len": seq_len}
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


def _run_steps(
    request: Request, result: Prediction, steps: float | None, epochs: float | None
) -> float | None:
    if steps is not None and epochs is not None:
        raise InvalidConfig(["give --steps or --epochs, not both"])
    for name, value in (("steps", steps), ("epochs", epochs)):
        if value is not None and not 0 < value < float("inf"):
            raise InvalidConfig([f"{name} must be above zero, not {value:g}"])
    if steps is not None:
        return float(steps)
    if epochs is None:
        return None
    data = MODELS[request.workload.name].dataset
    if data is None:
        raise InvalidConfig([f"{request.workload.name} has no data set: give --steps"])
    per_epoch = data.samples.value // result.global_batch
    if per_epoch < 1:
        raise InvalidConfig(
            [
                f"a global batch of {result.global_batch} is larger than data set {data.name} "
                f"({data.samples.value:.0f} samples)"
            ]
        )
    return epochs * per_epoch


def _fixes(request: Request) -> tuple[str, ...]:
    """What would make the job fit, cheapest first; each is computed, not guessed."""
    found: list[str] = []

    def fits(changed: Request, what: str) -> None:
        if _predict(changed).fits:
            found.append(what)

    best = fitting_batch(request)
    if best:
        found.append(f"micro-batch {best}")
    s = request.strategy
    if s.recompute == "none" and any(b.recomputable for b in request.workload.blocks):
        fits(replace(request, strategy=replace(s, recompute="full")), "recompute full")
    if request.cluster.n_gpus > 1 and s.zero_stage < 3:
        for stage in range(max(1, s.zero_stage + 1), 4):
            name = parallelism_named(f"zero{stage}")
            before = len(found)
            fits(replace(request, strategy=replace(s, parallelism=name)), name)
            if len(found) > before:
                break
    if s.precision.name in ("fp32", "tf32"):
        fits(replace(request, strategy=replace(s, precision=PRECISIONS["amp-bf16"])), "amp-bf16")
    return tuple(found)


__all__ = ["Prediction", "Profile", "make_request", "predict"]
