"""``--launch`` and ``--emit``: launch files of other programs, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simcore.cli.output import complain, write

if TYPE_CHECKING:
    from simcore.api import Prediction
    from simcore.strategy.layout import Layout


def emit_problems(dialect: str | None, as_json: bool, explain: str | None) -> list[str]:
    """What is wrong with ``--emit`` itself."""
    if dialect is None:
        return []
    from simcore.base.errors import UnknownName
    from simcore.strategy.dialects import FILES

    found = []
    if dialect not in FILES:
        found.append(str(UnknownName("dialect", dialect, FILES)))
    if as_json or explain is not None:
        other = "--json" if as_json else "--explain"
        found.append(f"--emit and {other} both write standard output: drop one")
    return found


def warn_unknown(launch: str | None) -> None:
    """Name unknown keys of a launch file where nobody can miss them: a typo changes the job."""
    if launch is None:
        return
    from simcore.strategy.dialects import read_launch

    for sentence in read_launch(launch).unknown:
        complain(f"warning: {sentence}")


def write_launch(
    dialect: str, answer: Prediction, model: str, gpus: str, options: Mapping[str, Any]
) -> None:
    """Write the predicted job as a launch file; say on standard error what it leaves out.

    Raises InvalidConfig with everything that the format cannot express.
    """
    from simcore import api
    from simcore.base.errors import InvalidConfig
    from simcore.strategy.dialects import Job, emit

    request = api.make_request(model, gpus, **options)
    if answer.recompute == "selective":
        raise InvalidConfig([f"--emit {dialect}: selective recompute is not written yet"])
    per_node = {g.gpus_per_node for g in request.cluster.groups}
    if len(per_node) > 1:
        counts = ", ".join(map(str, sorted(per_node)))
        raise InvalidConfig(
            [f"--emit {dialect} is for nodes with equal counts of GPUs, not {counts} in {gpus}"]
        )
    job = Job(
        model=answer.model,
        strategy=answer.strategy,
        micro_batch=answer.micro_batch,
        grad_accum=answer.grad_accum,
        precision=answer.precision,
        recompute=answer.recompute,
        optimizer=answer.optimizer,
        offload=answer.offload,
        nnodes=answer.n_nodes,
        nproc_per_node=per_node.pop(),
        seq_len=_seq_len(model, options),
        grad_clip=request.strategy.grad_clip,
        **_degrees(request.placed.layout if request.placed else None),
        main_grads="fp32" if request.strategy.precision.main_grads else None,
        bucket_numel=(
            request.strategy.zero_bucket_numel if request.strategy.zero_stage in (1, 2) else None
        ),
    )
    emitted = emit(dialect, job)
    write(emitted.text)
    words = job.words()
    left = [f"{w.replace('_', '-')} {_shown(words[w])}" for w in emitted.left if w in words]
    if left:
        complain(f"note: not in this file, set them where you launch: {', '.join(left)}")


def _degrees(layout: Layout | None) -> dict[str, Any]:
    """Degrees above 1, and how tensor ranks and the pipeline work where there are any."""
    if layout is None:
        return {}
    found: dict[str, Any] = {
        w: n for w in ("tp", "pp", "vpp", "cp", "ep") if (n := getattr(layout, w)) > 1
    }
    if "tp" in found:
        found["sequence_parallel"] = layout.sequence_parallel
    if layout.zero_bubble:
        found["zero_bubble"] = True
    return found


def _seq_len(model: str, options: Mapping[str, Any]) -> int | None:
    """What was asked for, what the launch file says, or the model's own."""
    if options.get("seq_len") is not None:
        return int(options["seq_len"])
    if options.get("launch") is not None:
        from simcore.strategy.dialects import read_launch

        if (stated := read_launch(options["launch"]).seq_len) is not None:
            return stated
    from simcore.workload.resolve import resolve_model

    source = resolve_model(model, inputs=tuple(options.get("inputs") or ()))
    value = getattr(source, "config", {}).get("seq_len")
    return value if isinstance(value, int) else None


def _shown(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
