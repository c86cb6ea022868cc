"""Named formulas of corpora: what a row's figures imply and no table of values can say.

Each takes the row's cells and the arguments that its rule writes, and returns a value, or None
where it does not apply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from simcore.base.registry import Registry
from simcore.strategy.cut_rules import modules_cut
from simcore.strategy.cuts import written
from simcore.validate.formats import Row, number, whole
from simcore.workload.models import MODELS, ModelRecord, Scalar

Formula = Callable[..., "Scalar | None"]
FORMULAS: Registry[Formula] = Registry("formula")

#: GPUs of a rack of 72 that a job takes as one NVLink domain: as many as divide the job evenly.
_RACK_GPUS = (72, 64, 36, 32, 16, 8, 4, 2, 1)
#: How notes tell hardware and model FLOP utilisation of one run.
_UTILISATIONS = re.compile(r"HFU/MFU=([\d.]+)")


class NoJobError(ValueError):
    """A row that no command describes; its text is the reason for which the row is skipped."""


@FORMULAS.register("gpus_of_a_rack")
def _gpus_of_a_rack(row: Row, *, gpus: int) -> int:
    """GPUs of one NVLink domain of a job in racks of 72."""
    return next(n for n in _RACK_GPUS if n <= gpus and gpus % n == 0)


@FORMULAS.register("whole_nodes")
def _whole_nodes(row: Row, *, gpus: int, a_node: int) -> int:
    """Nodes of a job. Raises NoJobError where its last node would not be full."""
    if gpus % a_node:
        raise NoJobError(f"{gpus} GPUs are no whole number of nodes of {a_node}")
    return gpus // a_node


@FORMULAS.register("layers_run_again")
def _layers_run_again(row: Row) -> int | None:
    """Layers whose forward pass runs again, by two utilisations of the same step.

    Both divide FLOP by one time: model FLOP are 3 passes of each layer, hardware FLOP one more of
    some. None where the notes do not tell both, and where it is none or all of them.
    """
    told = _UTILISATIONS.search(row.get("notes", ""))
    if told is None:
        return None
    layers = whole(row, "layers")
    again = round(3.0 * (float(told[1]) - 1.0) * layers)
    return again if 0 < again < layers else None


@FORMULAS.register("one_layer_a_chunk")
def _one_layer_a_chunk(row: Row) -> int:
    """Chunks a pipeline rank where each has one layer."""
    return max(1, round(whole(row, "layers") / whole(row, "pp", 1)))


@FORMULAS.register("equal_chunks_short_last")
def _equal_chunks_short_last(row: Row, *, vpp: int) -> str | None:
    """Layers of each stage where all chunks are as long but the last, which has fewer.

    The last has the modules that predict further tokens too. None where one chunk does not make up
    the difference, and where layers divide evenly.
    """
    layers, pp = whole(row, "layers"), whole(row, "pp", 1)
    chunk = -(-layers // (pp * vpp))
    short = chunk * pp * vpp - layers
    if layers % pp == 0 or short >= chunk:
        return None
    last = chunk * vpp - short + int(row.get("mtp") == "yes")
    return f"{pp - 1}x{chunk * vpp},{last}"


@FORMULAS.register("embedding_and_head_as_layers")
def _embedding_and_head_as_layers(row: Row) -> str:
    """Layers of each stage where embedding and head count as a layer each."""
    return written(modules_cut(whole(row, "layers"), whole(row, "pp", 1), 1, 1))


@FORMULAS.register("dense_then_experts")
def _dense_then_experts(row: Row, *, dense: int) -> str:
    """Which layers have experts where the first ``dense`` have none; at least one has."""
    layers = whole(row, "layers")
    first = min(dense, layers - 1)
    return "d" * first + "e" * (layers - first)


@FORMULAS.register("described_in_models_db")
def _described_in_models_db(row: Row, *, model: str, archs: list[str]) -> str:
    """The model itself, where models_db has it as one of these architectures.

    Raises NoJobError where it has not.
    """
    if MODELS.path(model) is None or MODELS[model].arch not in archs:
        raise NoJobError(f"diffusion transformer {model!r} is not described in models_db")
    return model


@FORMULAS.register("frames_of_tokens")
def _frames_of_tokens(row: Row, *, model: str) -> int | None:
    """Frames of a clip whose latent frames make the row's tokens. Raises NoJobError where none do.

    The tokens are the video's alone: its caption is attended to from outside the sequence.
    """
    config = _settings(model, "wan")
    if config is None:
        return None
    cell = int(config["vae_factor"]) * int(config["patch"])
    frame = (int(config["height"]) // cell) * (int(config["width"]) // cell)
    seen, rest = divmod(whole(row, "seq_len"), frame)
    if rest:
        raise NoJobError(f"diffusion: {row['seq_len']} tokens are no whole frames of {frame}")
    return (seen - 1) * int(config["vae_frames"]) + 1


@FORMULAS.register("side_of_tokens")
def _side_of_tokens(row: Row, *, model: str) -> int | None:
    """Side in pixels of a square image that makes the row's tokens with the model's caption.

    Raises NoJobError where none does.
    """
    config = _settings(model, "mmdit")
    if config is None:
        return None
    tokens = whole(row, "seq_len") - int(config["text_tokens"])
    side = math.isqrt(max(tokens, 0))
    if side < 1 or side**2 != tokens:
        raise NoJobError(f"diffusion: {row['seq_len']} tokens are no caption and square image")
    return side * int(config["vae_factor"]) * int(config["patch"])


def _settings(model: str, arch: str) -> dict[str, Any] | None:
    record: ModelRecord = MODELS[model]
    return record.settings({}) if record.arch == arch else None


def applied(name: str, row: Row, arguments: dict[str, Any]) -> Scalar | None:
    """What a formula makes of a row. Raises NoJobError, ValueError as ``number`` does."""
    return FORMULAS[name](row, **arguments)


def as_number(text: str) -> Scalar:
    """A cell as a number where it is one (a whole one as int), else its text."""
    try:
        value = number({"cell": text}, "cell")
    except ValueError:
        return text
    if value is None:
        return text
    return int(value) if value == int(value) else value
