"""What models of pairs of an image and a text have in common: CLIP, SigLIP."""

from __future__ import annotations

from simcore.base.units import FP32_BYTES, INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs.body import Body
from simcore.workload.archs.towers import Tower
from simcore.workload.graph import Block, Param, Workload


def unit(body: Body, width: int) -> None:
    """One row of ``width`` elements a sample, made unit."""
    body.add(
        ops.reduction("length", width, out=1.0, saves=width),
        ops.binary("unit", width, broadcast=1.0, saves=0.0),
    )


def tokens(text: Tower, vocab: int, max_positions: int) -> Block:
    """Token and learned position embeddings."""
    body = Body()
    body.embedding("tokens", text.rows, text.hidden, vocab)
    body.add(ops.add_positions("positions", text.rows, text.hidden, table_rows=max_positions))
    body.params.append(Param("positions.weight", max_positions * text.hidden))
    return body.block("tokens")


def loss(width: int, *scalars: str) -> Block:
    """Rows scaled by the temperature; ``scalars``: the loss's parameters.

    The products of all pairs of the local batch grow with its square; they are left out, as they
    are small beside the towers (B·width against their layers).
    """
    body = Body()
    body.add(ops.scale("temperature", 2.0 * width), ops.loss_seed())
    body.params += [Param(scalar, 1) for scalar in scalars]
    return body.block("loss")


def workload(
    name: str, sample_unit: str, blocks: tuple[Block, ...], vision_layers: int, text_layers: int,
    *, pixels: int, id_rows: int, seq_len: int,
) -> Workload:  # fmt: skip
    """``blocks``: patches, layer and end of the image; tokens, layer and end of the text; loss.

    ``id_rows``: rows of 64-bit integers that a text comes in, token ids and perhaps their mask.
    """
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=blocks,
        order=(0, *[1] * vision_layers, 2, 3, *[4] * text_layers, 5, 6),
        input_bytes=FP32_BYTES * pixels + float(id_rows * INT64_BYTES * seq_len),
        tokens_per_sample=seq_len,
    )
