"""Jobs to predict, sampled with a fixed seed: every model, every GPU, every value of an option.

A job is plain data: ``{"id", "kind", "model", "gpus", "words"}``, its words those of
``simcore.api.predict`` (the options of the command line). Nothing of the package's inside is in it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.golden.settings import LARGE, Setting, all_settings
from simcore.report.catalog import listing
from simcore.workload.models import MODELS

Job = dict[str, Any]

SEED = 20261126
#: Number of jobs of a recording: per model, per GPU, per value of an option, and in total.
OF_MODEL, OF_GPU, OF_VALUE, IN_ALL = 3, 7, 8, 5600
#: Least number of accepted jobs for each value of an option.
LEAST = 5
#: Bytes per parameter of weights, gradients, optimizer state and some activations.
_STATE_BYTES = 20.0
STYLES = ("any", "text", "image", "video", "dataset", "cut", "moe")


@dataclass(frozen=True)
class Model:
    """The properties of a model that sampling uses."""

    name: str
    kind: str
    n_params: int
    heads: int
    layers: int
    experts: int
    has_frames: bool
    has_dataset: bool

    def is_of(self, style: str) -> bool:
        """Whether jobs of this style can use this model."""
        language = self.kind == "language"
        return {
            "any": self.n_params < 3e9,
            "text": language and not self.experts and self.n_params < 15e9,
            "image": self.kind == "image",
            "video": self.has_frames and self.kind == "diffusion",
            "dataset": self.has_dataset,
            "cut": language and not self.experts and 1e9 < self.n_params < 80e9,
            "moe": language and self.experts > 1,
        }[style]


@dataclass(frozen=True)
class Gpu:
    """The properties of a GPU that sampling uses."""

    name: str
    memory_bytes: float
    has_bf16: bool


def models() -> tuple[Model, ...]:
    """All models of the database, by name."""
    found = []
    for row in listing("models").data:
        record = MODELS[row["name"]]
        config = record.config

        def number(key: str, config: dict[str, Any] = config) -> int:
            value = config.get(key, 0)
            return value if isinstance(value, int) else 0

        found.append(
            Model(row["name"], row["kind"], row["n_params"], number("heads"), number("layers"),
                  number("experts"), "frames" in config, record.dataset is not None)
        )  # fmt: skip
    return tuple(sorted(found, key=lambda m: m.name))


def gpus() -> tuple[Gpu, ...]:
    """All GPUs of the database, by name."""
    found = [
        Gpu(row["name"], row["memory_bytes"], "bf16" in row["peak_flop_per_s"])
        for row in listing("gpus").data
    ]
    return tuple(sorted(found, key=lambda g: g.name))


class Sampler:
    """Draws jobs; the same seed gives the same jobs as long as the databases are the same."""

    def __init__(self, seed: int = SEED) -> None:
        self._rng = Random(seed)
        self._models = models()
        self._gpus = {g.name: g for g in gpus()}
        self._settings = all_settings()
        self._of_style = {
            style: [s for s in self._settings if "gpus" not in s.words and _fits(s, style)]
            for style in STYLES
        }

    def first(self) -> list[Job]:
        """The first jobs of a recording, drawn without regard to the option values they cover."""
        made: list[Job] = []
        for model in self._models:
            made += [self._draw("any", model=model) for _ in range(OF_MODEL - 1)]
            style = next(
                (s for s in ("cut", "moe", "text", "image", "any") if model.is_of(s)), "any"
            )
            made.append(self._draw(style, model=model))
            made.append(self._plain(model))
        for gpu in self._gpus.values():
            made += [self._draw("any", gpu=gpu) for _ in range(OF_GPU)]
        for setting in self._settings:
            made += self.with_setting(setting, OF_VALUE)
        styles = ("any", "text", "image", "cut", "cut", "moe")
        made += [self._draw(self._rng.choice(styles)) for _ in range(IN_ALL - len(made))]
        return made

    def with_setting(self, setting: Setting, count: int) -> list[Job]:
        """Jobs that have one value of an option."""
        return [self._draw(self._rng.choice(setting.styles), setting) for _ in range(count)]

    def missing(self, accepted: Iterable[Job]) -> list[Setting]:
        """The values of options that are in fewer than ``LEAST`` of these jobs."""
        counts = Counter(key for job in accepted for key in keys_of(job))
        return [s for s in self._settings if counts[s.key] < LEAST]

    def _plain(self, model: Model) -> Job:
        """A job of a model without options, on GPUs with enough memory for it."""
        gpu = self._gpus[self._rng.choice(LARGE[:4])]
        nodes, per_node = _room(model.n_params * _STATE_BYTES, gpu)
        return _job(model.name, f"{nodes}x{per_node}x{gpu.name}", {})

    def _draw(
        self, style: str, setting: Setting | None = None, *, model: Model | None = None,
        gpu: Gpu | None = None,
    ) -> Job:  # fmt: skip
        rng = self._rng
        chosen = [setting] if setting else []
        few = rng.choice((0, 1, 2, 2, 3) if setting else (1, 2, 3, 3, 4))
        for other in rng.sample(self._of_style[style], few):
            taken = {o for s in chosen for o in (s.option, *s.words)}
            if not taken & {other.option, *other.words}:
                chosen.append(other)
        if gpu is None:
            allowed = [s.gpus for s in chosen if s.gpus]
            usual = LARGE if style in ("cut", "moe") or rng.random() < 0.5 else tuple(self._gpus)
            gpu = self._gpus[rng.choice(allowed[0] if allowed else usual)]
        words: dict[str, Any] = {}
        for s in reversed(chosen):  # what was asked for first wins
            words = {**words, **s.words, s.option: s.value}
        if model is None:
            model = self._model(style, gpu)
        where = words.pop("gpus", None)
        if style in ("cut", "moe") and model.is_of(style):
            per_node, nodes = self._cut(model, words, style)
        else:
            per_node, nodes = self._data(model, gpu, words)
        counted = [s.per_node for s in chosen if s.per_node]
        per_node = counted[0] if counted else per_node
        if not gpu.has_bf16 and "precision" not in words and rng.random() < 0.8:
            words["precision"] = rng.choice(("fp32", "amp-fp16"))
        return _job(model.name, where or f"{nodes}x{per_node}x{gpu.name}", words)

    def _model(self, style: str, gpu: Gpu) -> Model:
        fitting = [m for m in self._models if m.is_of(style)]
        if style not in ("cut", "moe"):
            small = [m for m in fitting if m.n_params * _STATE_BYTES < gpu.memory_bytes]
            fitting = small or [min(fitting, key=lambda m: m.n_params)]
        return self._rng.choice(fitting)

    def _data(self, model: Model, gpu: Gpu, words: dict[str, Any]) -> tuple[int, int]:
        """GPUs per node and nodes of a data-parallel job; adds the job's options to its words."""
        rng = self._rng
        needed = model.n_params * _STATE_BYTES
        large = needed > 0.9 * gpu.memory_bytes
        if large and "strategy" not in words:
            words["strategy"] = "zero3"
        elif rng.random() < 0.4:
            words.setdefault("strategy", rng.choice(("ddp", "zero1", "zero2", "zero3")))
        if "micro_batch" not in words and rng.random() < 0.7:
            images = (4, 8, 16, 32, 64) if model.kind == "image" else (1, 2, 4)
            words["micro_batch"] = rng.choice(images)
        nodes, per_node = _room(needed, gpu) if large else (1, rng.choice((1, 2, 4, 8)))
        if words.get("strategy") in ("dp", "manual"):
            return rng.choice((2, 4)), 1
        if words.get("strategy") == "hsdp" or "network" in words:
            return 8, max(2, nodes)
        if "shard_ranks" in words:
            return 8, max(1, nodes)
        return per_node, nodes if large else rng.choice((1, 1, 2, 4))

    def _cut(self, model: Model, words: dict[str, Any], style: str) -> tuple[int, int]:
        """GPUs per node and nodes of a job with tensor, pipeline or expert parallelism.

        Adds the job's options to its words.
        """
        rng = self._rng

        def degree(name: str, values: Sequence[int], of: int) -> int:
            fitting = [v for v in values if not of or of % v == 0] or [1]
            return int(words.setdefault(name, rng.choice(fitting)))

        tp = degree("tp", (1, 2, 4, 8), model.heads)
        pp = degree("pp", (1, 2, 4, 8), model.layers)
        cp = degree("cp", (1, 1, 1, 2), 0)
        replicas = rng.choice((1, 2, 4))
        if style == "moe":
            ep = degree("ep", (1, 2, 4, 8), model.experts)
            replicas = max(replicas, ep)
        if "grad_accum" not in words:
            words["grad_accum"] = pp * rng.choice((1, 2, 4))
        words.setdefault("micro_batch", 1)
        if "precision" not in words:
            words["precision"] = "bf16"
        n_gpus = tp * pp * cp * replicas
        per_node = min(8, n_gpus)
        for name in ("tp", "pp", "cp", "ep"):
            if words.get(name) == 1 and rng.random() < 0.8:
                del words[name]
        return per_node, n_gpus // per_node


def _fits(setting: Setting, style: str) -> bool:
    """Whether jobs of a style may have a setting; styles of few options take those of any style."""
    general = style in ("video", "dataset") and "any" in setting.styles
    return style in setting.styles or general


def keys_of(job: Job) -> list[str]:
    """The options and values of a job, as ``Setting.key`` writes them."""
    return [f"{option}={value}" for option, value in job["words"].items()]


def _room(needed_bytes: float, gpu: Gpu) -> tuple[int, int]:
    """(nodes, GPUs per node) with enough memory for this many bytes, sharded over all GPUs."""
    count = math.ceil(needed_bytes / (0.8 * gpu.memory_bytes))
    if count <= 8:
        return 1, 1 << max(0, count - 1).bit_length()
    return 1 << (math.ceil(count / 8) - 1).bit_length(), 8


def _job(model: str, where: str, words: dict[str, Any]) -> Job:
    return {"kind": "predict", "model": model, "gpus": where, "words": dict(sorted(words.items()))}
