"""Named formulas that rules of ``validate/corpora`` call to compute an option from a row's cells.

A formula takes the row's cells and the arguments that the rule gives. It returns a value, or None
if it does not apply to the row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from simcore.base.errors import UsageError
from simcore.base.lookup import Registry
from simcore.base.units import GIB, GIGA, MEGA, format_gib
from simcore.hardware.cluster import default_node
from simcore.hardware.spec import GPUS
from simcore.strategy.cuts import modules_cut, written
from simcore.validate.formats import Row, number, whole
from simcore.workload.models import MODELS, ModelRecord, Scalar, setting_kinds
from simcore.workload.resolve import resolve_model
from simcore.workload.trace.zoos import zoo_of

Formula = Callable[..., "Scalar | None"]
FORMULAS: Registry[Formula] = Registry("formula")

#: Sizes of the NVLink domain that a job uses in a rack of 72 GPUs: the largest that divides the
#: job's GPUs.
_RACK_GPUS = (72, 64, 36, 32, 16, 8, 4, 2, 1)
#: Largest relative difference of parameters and FLOP between a row and the models_db entry of the
#: same name for which the entry is taken to be the row's model.
_SAME_FRAC = 0.05
#: The other size of clip for which Wan's authors publish their models [pixels].
_720P = (720, 1280)
#: Architectures of diffusion transformers.
_DITS = ("mmdit", "wan")
#: The ratio of hardware to model FLOP utilisation of a run, as notes state it.
_UTILISATIONS = re.compile(r"HFU/MFU=([\d.]+)")


class NoJobError(ValueError):
    """No command describes the row's job. The error's text is the reason why the row is skipped."""


@FORMULAS.register("gpus_of_a_rack")
def _gpus_of_a_rack(row: Row, *, gpus: int) -> int:
    """GPUs per NVLink domain of a job that runs in racks of 72 GPUs."""
    return next(n for n in _RACK_GPUS if n <= gpus and gpus % n == 0)


@FORMULAS.register("gpus_of_a_slice")
def _gpus_of_a_slice(row: Row, *, gpus: int, gpu_type: str) -> int:
    """Chips of the largest slice of the job's torus that divides its chips evenly."""
    torus = default_node(GPUS[gpu_type], 1).torus
    most = torus.max_chips if torus else gpus
    return next(n for n in range(min(gpus, most), 0, -1) if gpus % n == 0)


@FORMULAS.register("whole_nodes")
def _whole_nodes(row: Row, *, gpus: int, a_node: int) -> int:
    """Number of nodes of a job. Raises NoJobError if its last node would not be full."""
    if gpus % a_node:
        raise NoJobError(f"{gpus} GPUs are no whole number of nodes of {a_node}")
    return gpus // a_node


@FORMULAS.register("layers_run_again")
def _layers_run_again(row: Row) -> int | None:
    """Number of recomputed layers, from the ratio of hardware to model FLOP utilisation.

    Both utilisations divide FLOP by the same step time. Model FLOP are 3 forward passes of each
    layer; hardware FLOP add one pass of each recomputed layer: recomputed = 3 (HFU/MFU - 1) layers.
    None if the notes do not state the ratio, and if no layer or every layer is recomputed.
    """
    stated = _UTILISATIONS.search(row.get("notes", ""))
    if stated is None:
        return None
    layers = whole(row, "layers")
    recomputed = round(3.0 * (float(stated[1]) - 1.0) * layers)
    return recomputed if 0 < recomputed < layers else None


@FORMULAS.register("one_layer_a_chunk")
def _one_layer_a_chunk(row: Row) -> int:
    """Chunks per pipeline rank (virtual stages) if each chunk has one layer."""
    return max(1, round(whole(row, "layers") / whole(row, "pp", 1)))


@FORMULAS.register("equal_chunks_short_last")
def _equal_chunks_short_last(row: Row, *, vpp: int) -> str | None:
    """Layers of each stage if all chunks have equally many layers except the last, with fewer.

    The last chunk also has the modules of multi-token prediction. None if layers divide evenly, and
    if the last chunk would have no layer left.
    """
    layers, pp = whole(row, "layers"), whole(row, "pp", 1)
    chunk = -(-layers // (pp * vpp))
    short = chunk * pp * vpp - layers
    if layers % pp == 0 or short >= chunk:
        return None
    last = chunk * vpp - short + int(row.get("mtp") == "yes")
    return f"{pp - 1}x{chunk * vpp},{last}"


@FORMULAS.register("stages_of_layout")
def _stages_of_layout(row: Row, *, layout: str) -> str | None:
    """Layers of each stage by Megatron-Core's text for a pipeline's layout, "Et*4|(t*4|)*14tmL".

    Modules of multi-token prediction (m) count as layers. None if chunks do not fill the stages.
    """
    from simcore.strategy.dialects.megatron_stages import layers_of_chunks  # few rows have one

    pp, chunks = whole(row, "pp", 1), layers_of_chunks(layout, "tm")
    if chunks is None or len(chunks) % pp:
        return None
    return written([sum(chunks[stage::pp]) for stage in range(pp)])


@FORMULAS.register("embedding_and_head_as_layers")
def _embedding_and_head_as_layers(row: Row) -> str:
    """Layers of each stage if embedding and head count as one layer each."""
    return written(modules_cut(whole(row, "layers"), whole(row, "pp", 1), 1, 1))


@FORMULAS.register("dense_then_experts")
def _dense_then_experts(row: Row, *, dense: int) -> str:
    """A letter per layer, ``d`` dense or ``e`` experts: the first ``dense`` layers are dense.

    At least one layer has experts.
    """
    layers = whole(row, "layers")
    first = min(dense, layers - 1)
    return "d" * first + "e" * (layers - first)


@FORMULAS.register("described_in_models_db")
def _described_in_models_db(row: Row, *, model: str, archs: list[str]) -> str:
    """The model's name. Raises NoJobError if models_db has no such model of these ``archs``."""
    if MODELS.path(model) is None or MODELS[model].arch not in archs:
        raise NoJobError(f"diffusion transformer {model!r} is not described in models_db")
    return model


@FORMULAS.register("in_models_db")
def _in_models_db(_row: Row, *, model: str) -> str | None:
    """The name of the models_db entry or alias that the row's model name finds; None without."""
    try:
        return model if resolve_model(model) is not None else None
    except UsageError:
        return None


@FORMULAS.register("kind_in_models_db")
def _kind_in_models_db(_row: Row, *, model: str) -> str:
    """``dit`` for a diffusion transformer of models_db, else ``named``."""
    record = resolve_model(model)
    return "dit" if isinstance(record, ModelRecord) and record.arch in _DITS else "named"


@FORMULAS.register("frames_of_tokens")
def _frames_of_tokens(row: Row, *, model: str) -> int | None:
    """Frames of a video clip whose latent has as many tokens as the row's sequence.

    The sequence has no tokens of the caption, which the model reads by cross-attention. Raises
    NoJobError if no whole number of latent frames has so many tokens.
    """
    config = _settings(model, "wan")
    if config is None:
        return None
    size = _video_size(row, config) or (int(config["height"]), int(config["width"]))
    latents, rest = divmod(whole(row, "seq_len"), frame := _tokens_of_frame(config, *size))
    if rest:
        raise NoJobError(
            f"diffusion: {row['seq_len']} tokens are no whole number of frames of {frame}"
        )
    return (latents - 1) * int(config["vae_frames"]) + 1


def _tokens_of_frame(config: dict[str, Any], height: int, width: int) -> int:
    cell = int(config["vae_factor"]) * int(config["patch"])
    return (height // cell) * (width // cell)


def _video_size(row: Row, config: dict[str, Any]) -> tuple[int, int] | None:
    """720p where the row's tokens are whole frames of it and not of the model's usual size."""
    tokens = whole(row, "seq_len")
    usual = _tokens_of_frame(config, int(config["height"]), int(config["width"]))
    return _720P if tokens % usual and tokens % _tokens_of_frame(config, *_720P) == 0 else None


@FORMULAS.register("video_size_of_tokens")
def _video_size_of_tokens(row: Row, *, model: str) -> str | None:
    """Height x width of a clip whose tokens are no whole number of frames of the usual size."""
    config = _settings(model, "wan")
    size = _video_size(row, config) if config else None
    return "x".join(map(str, size)) if size else None


@FORMULAS.register("side_of_tokens")
def _side_of_tokens(row: Row, *, model: str) -> int | None:
    """Side [pixels] of the square image whose tokens and the caption's make the row's sequence.

    Raises NoJobError if no square image has so many tokens.
    """
    config = _settings(model, "mmdit")
    if config is None:
        return None
    tokens = whole(row, "seq_len") - int(config["text_tokens"])
    side = math.isqrt(max(tokens, 0))
    if side < 1 or side**2 != tokens:
        raise NoJobError(
            f"diffusion: {row['seq_len']} tokens are not those of a caption and a square image"
        )
    return side * int(config["vae_factor"]) * int(config["patch"])


@FORMULAS.register("entry_of_equal_name")
def _entry_of_equal_name(row: Row) -> str | None:
    """The models_db entry with the row's model name (without its library) and the same size.

    None if there is none whose parameters and FLOP agree with the row's to ``_SAME_FRAC``.
    """
    entry = row["model"].rpartition(":")[2]
    params, flop = number(row, "params_m"), number(row, "fwd_gflops_per_sample")
    if MODELS.path(entry) is None or not params or not flop:
        return None
    built = MODELS[entry].build()
    sizes = (built.trainable_numel, params * MEGA), (built.forward_flop, flop * GIGA)
    same = all(abs(ours / stated - 1.0) <= _SAME_FRAC for ours, stated in sizes)
    return MODELS[entry].name if same else None


@FORMULAS.register("model_of_a_library")
def _model_of_a_library(row: Row) -> str | None:
    """The row's model if a vision library has it. Raises NoJobError if that is not installed."""
    if (found := zoo_of(row["model"])) is None:
        return None
    try:
        found[0].versions()
    except UsageError as err:
        raise NoJobError(str(err)) from None
    return row["model"]


@FORMULAS.register("in_a_library")
def _in_a_library(_row: Row, *, model: str) -> bool:
    """Whether the model is one of a vision library."""
    return zoo_of(model) is not None


@FORMULAS.register("model_fact")
def _model_fact(_row: Row, *, model: str, name: str) -> Scalar | None:
    """A fact of a models_db entry or alias; a setting by its name; None for a library's model."""
    if zoo_of(model) is not None:
        return None
    record = resolve_model(model)
    assert isinstance(record, ModelRecord)
    settings = record.settings({})
    facts: dict[str, Scalar] = {
        **settings,
        "arch": record.arch,
        "has_layout": "layout" in setting_kinds(record.arch),
    }
    return facts.get(name)


@FORMULAS.register("images_of_a_batch")
def _images_of_a_batch(row: Row, *, layout: str) -> str:
    """The input of a library's model, as ``--input`` takes it."""
    shape = f"float32[B,{row['input_shape'].replace('x', ',')}]"
    return f"{shape} channels_last" if layout == "nhwc" else shape


@FORMULAS.register("gpus_a_node")
def _gpus_a_node(row: Row) -> int:
    """GPUs of each node. Raises NoJobError if they do not divide evenly."""
    gpus, nodes = whole(row, "gpus"), whole(row, "nodes", 1)
    if gpus % nodes:
        raise NoJobError(f"{gpus} GPUs do not divide over {nodes} nodes")
    return gpus // nodes


@FORMULAS.register("whole_batch")
def _whole_batch(row: Row) -> int:
    """Samples of a rank. Raises NoJobError for no whole number."""
    batch = number(row, "local_batch", at_least=1)
    if batch is None or batch != int(batch):
        raise NoJobError(f"local batch {row['local_batch']!r} is not a whole number")
    return int(batch)


@FORMULAS.register("regions")
def _regions(
    row: Row, *, batch_total: int, plus: int, at_most: int, share: float = 1.0
) -> int:  # fmt: skip
    """Regions per image of a two-stage detector, or a share of them.

    They depend on the batch size where the program limits the proposals of a whole batch.
    """
    return round(share * min(at_most, round(batch_total / whole(row, "local_batch")) + plus))


@FORMULAS.register("between")
def _between(row: Row, *, column: str, points: list[float], multiple: int) -> int | None:
    """A figure that depends on a column's, as points of both say: linear in the column's logarithm.

    ``points``: column and figure in turn, by growing column. Rounded to a ``multiple``.
    """
    at, figures = [math.log(p) for p in points[::2]], points[1::2]
    where = math.log(number(row, column) or 1.0)
    i = max(1, min(sum(a < where for a in at), len(at) - 1))
    part = min(max((where - at[i - 1]) / (at[i] - at[i - 1]), 0.0), 1.0)
    return round((figures[i - 1] + part * (figures[i] - figures[i - 1])) / multiple) * multiple


@FORMULAS.register("memory_beyond")
def _memory_beyond(row: Row, *, gpu: str) -> str:
    """Why the row is doubted if its peak memory exceeds the named GPU's; empty if it does not."""
    peak = (number(row, "peak_mem_gib") or 0.0) * GIB
    if not peak or GPUS.path(gpu) is None or peak <= GPUS[gpu].memory_size.value:
        return ""
    return f"its memory, {format_gib(peak)}, is more than the GPU it names has"


@FORMULAS.register("host_of_log")
def _host_of_log(row: Row) -> str:
    """A text that is equal for runs on one host: the source and the folder of its log.

    For a source without folders it is the whole reference, a document and its line.
    """
    return f"{row['source']}/{row['source_ref'].rpartition('/')[0] or row['source_ref']}"


def _settings(model: str, arch: str) -> dict[str, Any] | None:
    record: ModelRecord = MODELS[model]
    return {**record.settings({})} if record.arch == arch else None


def applied(name: str, row: Row, arguments: dict[str, Any]) -> Scalar | None:
    """The value of a named formula for a row. Raises NoJobError, and ValueError for bad cells."""
    return FORMULAS[name](row, **arguments)


def as_number(text: str) -> Scalar:
    """A cell as a number if it is one, 0 or more (an int if it is whole), else its text."""
    try:
        value = float(text)
    except ValueError:
        return text
    if not math.isfinite(value) or value < 0.0:
        return text
    return int(value) if value == int(value) else value
