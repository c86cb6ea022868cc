"""Dry runs: a training script runs as one rank of a cluster, without GPUs, and becomes a job."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcore.base.errors import SimcoreError, UsageError
from simcore.base.units import MEGA
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.estimates import families_of
from simcore.workload.archs.traced import joined_parts, layers_in

if TYPE_CHECKING:
    from simcore.api.results import Prediction
    from simcore.hardware.spec import GpuSpec
    from simcore.workload.models import ModelRecord


#: Compute capability by architecture (CUDA C++ Programming Guide, compute capabilities).
_CAPABILITY = {
    "Pascal": (6, 0), "Volta": (7, 0), "Turing": (7, 5), "Ampere-GA100": (8, 0), "Ampere": (8, 6),
    "Ada": (8, 9), "Hopper": (9, 0), "Blackwell": (10, 0), "Blackwell-GB202": (12, 0),
}  # fmt: skip


def _capability(gpu: GpuSpec) -> tuple[int, int]:
    """The compute capability that scripts are told: of other vendors' GPUs that of their year."""
    of_family = _CAPABILITY.get(families_of(gpu)[-1]) or _CAPABILITY.get(gpu.architecture)
    return of_family or (9, 0)


#: Terms that are counted in the run and predicted alike, and from where on they differ.
_COMPARED = {"parameters": "parameters", "optimizer_state": "optimizer state"}
_DIFFERENT_FRAC = 0.02


def _differences(data: dict[str, Any], gpus: str) -> list[str]:
    """Sentences on terms of which the run counted other bytes than the options stand for."""
    from simcore.api import predict

    captured = data["captured"]
    if captured["stage"] is not None:
        return []
    if parse_cluster(gpus).n_gpus != captured["world_size"]:
        return []
    try:
        terms = predict(_read(data), gpus).memory.terms
    except SimcoreError:  # told where the job is predicted
        return []
    sentences = []
    for term, name in _COMPARED.items():
        counted, predicted = captured["bytes"][term], terms.get(term, 0.0)
        if abs(counted - predicted) > _DIFFERENT_FRAC * max(counted, predicted, MEGA):
            sentences.append(
                f"the dry run counted {counted / MEGA:,.1f} MB of {name}, where the options stand "
                f"for {predicted / MEGA:,.1f} MB: the script divides the model in another way"
            )
    return sentences


def _program(libraries: list[str]) -> str:
    """The first of some packages that is a known training program; empty if none is."""
    from simcore.strategy.programs import PROGRAMS, program_names

    known = {*program_names(), *PROGRAMS.aliases()}
    names = (package.replace("_", "-") for package in libraries)
    return next((name for name in names if name in known), "")


def _joined(stages: list[dict[str, Any]], first: dict[str, Any]) -> dict[str, Any]:
    """The data of a whole model from those of its pipeline stages. Raises UsageError."""
    captured = first["captured"]
    found = [s["captured"]["stage"] for s in stages]
    if found != list(range(captured["options"].get("pp", 1))):
        raise UsageError(
            f"a pipeline of {captured['options'].get('pp', 1)} stages is joined from a run of "
            f"each, not from stages {', '.join(map(str, found))}"
        )
    parts = [s["traced"] for s in stages]
    options = {**captured["options"], "stages": ",".join(str(layers_in(p)) for p in parts)}
    params = sum(s["params"]["value"] for s in stages)
    return {
        **first,
        "params": {**first["params"], "value": params},
        "notes": list(dict.fromkeys(n for s in stages for n in s["notes"])),
        "traced": joined_parts(parts),
        "captured": {**captured, "stage": None, "options": options},
    }


def _read(data: dict[str, Any]) -> ModelRecord:
    from simcore.workload.models import ModelRecord

    return ModelRecord.model_validate(data)


def world_of(gpus: str, world_size: int | None, rank: int) -> dict[str, Any]:
    """The fields of the ``World`` that a script runs in. Raises UsageError."""
    cluster = parse_cluster(gpus)
    ranks = world_size or cluster.n_gpus
    if not 1 <= ranks <= cluster.n_gpus:
        raise UsageError(f"world_size must be 1 to {cluster.n_gpus}, the GPUs of {gpus}")
    if not 0 <= rank < ranks:
        raise UsageError(f"rank must be 0 to {ranks - 1}")
    group = cluster.groups[0]
    return {
        "rank": rank, "world_size": ranks, "local_size": min(group.gpus_per_node, ranks),
        "gpu": group.gpu.name, "memory_bytes": int(group.gpu.usable_memory_bytes),
        "capability": _capability(group.gpu),
        "sm_count": int(group.gpu.sm_count.value) if group.gpu.sm_count else None,
    }  # fmt: skip


class DryRunJob:
    """A job that a dry run captures: complete once the ``with`` block has ended.

    ``bytes``: what the rank holds at the last update, and the most that was alive at one time;
    ``collectives``: those of the last whole step.
    """

    def __init__(self, gpus: str, run: Any) -> None:
        self.gpus = gpus
        self._run = run
        self._joined: dict[str, Any] | None = None

    @property
    def record(self) -> ModelRecord:
        """The captured job as a model record, which ``predict``, ``sweep`` and ``plan`` take.

        Raises UsageError for one stage of a pipeline.
        """
        return _read(self._whole())

    def _whole(self) -> dict[str, Any]:
        data = self._data()
        if (stage := data["captured"]["stage"]) is not None:
            stages = data["captured"]["options"]["pp"]
            raise UsageError(
                f"the dry run saw stage {stage} of {stages}: run it as a rank of each other stage "
                "too (rank=...), and join them: first.joined(second)"
            )
        return data

    def _data(self) -> dict[str, Any]:
        if self._joined is not None:
            return self._joined
        data: dict[str, Any] = self._run.record()
        if not data["captured"].get("gpus"):
            data["captured"]["gpus"] = self.gpus
            if program := _program(data["captured"].pop("libraries")):
                data["captured"]["options"]["software"] = program
            data["notes"] += _differences(data, self.gpus)
        return data

    def joined(self, *others: DryRunJob) -> DryRunJob:
        """The job of the whole pipeline, from dry runs of one rank of each stage, in any order.

        Its bytes and collectives are those of this run's rank. Raises UsageError where a stage is
        missing.
        """
        whole = DryRunJob(self.gpus, self._run)
        whole._joined = _joined(
            [job._data() for job in sorted((self, *others), key=lambda j: j.stage)], self._data()
        )
        return whole

    @property
    def stage(self) -> int:
        """The pipeline stage that the rank runs; 0 without a pipeline."""
        return self._data()["captured"]["stage"] or 0

    @property
    def stages(self) -> int:
        """The pipeline stages of which this is one; 1 where the job is whole."""
        captured = self._data()["captured"]
        return 1 if captured["stage"] is None else int(captured["options"].get("pp", 1))

    @property
    def world_size(self) -> int:
        """The ranks of the run."""
        return int(self._data()["captured"]["world_size"])

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes on the rank by term, and ``peak``."""
        return dict(self._data()["captured"]["bytes"])

    @property
    def collectives(self) -> list[Any]:
        """Kind, bytes, ranks and phase of each collective of the last whole step."""
        return list(self._run.collectives)

    @property
    def options(self) -> dict[str, Any]:
        """The options of ``simcore predict`` that the script stands for."""
        data = self._data()
        training = {k: v for k, v in data["training"].items()
                    if k not in ("source", "waits_for_gradients")}  # fmt: skip
        return {**training, **data["captured"]["options"]}

    def predict(self, gpus: str | None = None, **options: Any) -> Prediction:
        """The prediction of the job on its cluster, or on another one, or with other options."""
        from simcore.api import predict

        return predict(self.record, gpus or self.gpus, **options)

    def save(self, path: str | Path) -> None:
        """Write the job to a YAML file, which ``simcore predict --model FILE`` reads without torch.

        Raises UsageError for another ending.
        """
        from simcore.workload.trace.yamlout import yaml_text

        path = Path(path)
        if path.suffix not in (".yaml", ".yml"):
            raise UsageError(f"{str(path)!r} must end in .yaml")
        path.write_text(yaml_text(self._whole(), path.stem), encoding="utf-8")


@contextmanager
def dry_run(
    gpus: str, *, world_size: int | None = None, rank: int = 0, source: str = ""
) -> Iterator[DryRunJob]:
    """Run the block's training steps as one rank of a cluster, without GPUs, data or weights.

    Tensors in the block have shapes and no values; process groups have ``world_size`` ranks
    (default: all GPUs of ``gpus``), of which this process plays ``rank``. The block builds the
    model and runs at least two optimizer steps of it. Raises UsageError for a cluster that is not
    known, and for what cannot run without values, with file and line.
    """
    fields = world_of(gpus, world_size, rank)
    try:
        from simcore.workload.trace.run.capture import World
        from simcore.workload.trace.run.capture import dry_run as run_dry
    except ModuleNotFoundError as err:
        if err.name != "torch":
            raise
        raise UsageError("a dry run needs PyTorch: pip install '.[torch]'") from None
    name = source or Path(getattr(sys.modules["__main__"], "__file__", "") or "notebook").name
    with run_dry(World(**fields), name) as run:
        yield DryRunJob(gpus, run)
