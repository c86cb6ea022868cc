"""Parts that models of image and text pairs share: CLIP, SigLIP."""

from __future__ import annotations

from simcore.base.units import FP32_BYTES, INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs.body import Body
from simcore.workload.archs.towers import Tower
from simcore.workload.graph import Block, Param, Workload


def unit(body: Body, width: int) -> None:
    """Add the normalisation of one row of ``width`` elements per sample to unit length."""
    body.add(
        ops.reduction("length", width, out=1.0, saves=width),
        ops.binary("unit", width, broadcast=1.0, saves=0.0),
    )


def tokens(text: Tower, vocab: int, max_positions: int) -> Block:
    """Block of token embeddings and learned position embeddings."""
    body = Body()
    body.embedding("tokens", text.rows, text.hidden, vocab)
    body.add(ops.add_positions("positions", text.rows, text.hidden, table_rows=max_positions))
    body.params.append(Param("positions.weight", max_positions * text.hidden))
    return body.block("tokens")


def loss(width: int, *scalars: str) -> Block:
    """Block of the loss: rows scaled by the temperature; ``scalars``: the loss's parameters.

    The products of all pairs of the local batch grow with its square. They are left out, since they
    are small compared with the towers (B·width against the towers' layers).
    """
    body = Body()
    body.add(ops.scale("temperature", 2.0 * width), ops.loss_seed())
    body.params += [Param(scalar, 1) for scalar in scalars]
    return body.block("loss")


def workload(
    name: str, sample_unit: str, blocks: tuple[Block, ...], vision_layers: int, text_layers: int,
    *, pixels: int, id_rows: int, seq_len: int,
) -> Workload:  # fmt: skip
    """The workload of both towers.

    ``blocks``: patches, layer and end of the image tower; tokens, layer and end of the text tower;
    loss. ``id_rows``: rows of 64-bit integers per text: token ids and perhaps their mask.
    """
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=blocks,
        order=(0, *[1] * vision_layers, 2, 3, *[4] * text_layers, 5, 6),
        input_bytes=FP32_BYTES * pixels + float(id_rows * INT64_BYTES * seq_len),
        tokens_per_sample=seq_len,
    )
