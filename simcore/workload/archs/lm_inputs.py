"""Inputs of each layer beside the residual stream: rows of a second, wide table of embeddings.

Gemma 3n and Gemma 4 E2B and E4B (transformers, modeling_gemma4.py: project_per_layer_inputs and
Gemma4TextDecoderLayer).
"""

from __future__ import annotations

from simcore.workload import ops
from simcore.workload.archs.body import Body


def look_up(
    body: Body, seq: int, hidden: int, layers: int, width: int, vocab: int, norm: str
) -> None:
    """Add the inputs of all layers, of ``width`` each.

    Rows of the wide table, scaled, and a product of the tokens' own embedding, scaled and
    normalised, are summed and scaled.
    """
    joined = layers * width
    elems = float(seq * joined)
    body.embedding("layer_inputs", seq, joined, vocab)
    body.add(ops.scale("layer_inputs.scale", elems, high=True))
    body.linear("layer_inputs.project", seq, hidden, joined, reads="scale")
    body.add(
        ops.accumulate("layer_inputs.fork", float(seq * hidden), high=True),
        ops.scale("layer_inputs.project.scale", elems),
    )
    body.norm("layer_inputs.norm", float(seq * layers), width, norm, narrow=True)
    body.add(
        ops.binary("layer_inputs.sum", elems, grads=0, high=True),
        ops.scale("layer_inputs.sum.scale", elems, high=True),
        ops.keep("layer_inputs.kept", elems, high=True),  # of which each layer reads a slice
    )


def taken(
    body: Body, seq: int, hidden: int, layers: int, width: int, norm: str, sums: int = 1
) -> None:  # fmt: skip
    """Add what a layer does with its input: a gated product of the residual, normalised and summed.

    ``sums``: streams to which the result is added.

    Autograd writes the gradient of one layer's slice into a tensor of all layers' inputs, which is
    then added to that of the layers after it.
    """
    elems = float(seq * width)
    body.linear("input_gate", seq, hidden, width, reads="output")
    body.add(
        ops.activation("input_gate.gelu", elems),
        ops.binary("input_gate.product", elems, saves=elems, grads=2),
    )
    if body.trains:
        body.add(ops.grad_only("layer_inputs.slice", 4.0 * seq * layers * width, launches=2))
    body.linear("input_out", seq, width, hidden, reads="input_gate.product")
    body.norm("input_norm", seq, hidden, norm, narrow=True)
    body.add(
        ops.binary("input_residual", float(seq * hidden * sums), grads=0, high=True),
        ops.accumulate("input_fork", float(seq * hidden), high=True),
    )
