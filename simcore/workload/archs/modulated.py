"""Parts that MMDiT, CogVideoX and Wan share: modulated norms and sums, rotary pairs, flow matching.

``megatron`` chooses the modules. False: tensor operations as in diffusers' classes. True:
Megatron-Core's modules on Transformer Engine, as NVIDIA's NeMo and DFM build these models
(nemo/collections/diffusion/models/dit/dit_layer_spec.py, DFM's flux_layer_spec.py): a norm with its
modulation and a gate with its sum are one kernel each (``jit_fuser``, torch's compiler), q, k and v
are one product, rotary positions are one kernel, and a separate kernel adds a bias that
``skip_bias_add`` leaves out.
"""

from __future__ import annotations

from simcore.workload import ops
from simcore.workload.archs.body import Body
from simcore.workload.archs.diffusion_parts import STEP_FEATURES
from simcore.workload.archs.lm_attention import rope_fused
from simcore.workload.graph import Kernel, Op
from simcore.workload.ops import autocast_cast
from simcore.workload.ops.modulate import gate, modulate
from simcore.workload.saved import Saved

#: Traffic (in multiples of the latent) and launches of flow matching (Lipman et al. 2022; Esser et
#: al. 2024), counted by hand. Noise: a normal draw (1), 1 - sigma, two products (2 + 2) and their
#: sum (3), packed into rows (2). Loss: noise - latent (3), difference (3), square (2), mean (1);
#: and their gradients (7).
NOISE_TRAFFIC, NOISE_LAUNCHES = 10.0, 8.0
LOSS_TRAFFIC, LOSS_LAUNCHES = 9.0, 4.0
LOSS_GRAD_TRAFFIC, LOSS_GRAD_LAUNCHES = 7.0, 4.0


def modulation(body: Body, name: str, hidden: int, parts: int, *, megatron: bool) -> None:
    """Add SiLU and the linear layer that computes shift, scale and gate of a sample's condition.

    ``parts``: how many vectors of ``hidden`` elements the linear layer returns. All layers share
    the input of SiLU; it is counted where it is computed. The parts are views of the layer's
    output, so the whole output stays saved until backward, which concatenates the parts' gradients.
    With ``megatron`` it computes in 16 bits whatever the other products do (a plain nn.Linear).
    """
    width = float(parts * hidden)
    body.add(ops.activation(f"{name}.silu", hidden, saves="none"))
    body.linear(
        f"{name}.linear", 1, hidden, parts * hidden, bias=True, reads=f"{name}.silu", wide=megatron
    )
    join = (Kernel(kind="copy", low=2 * width),)
    body.add(
        Op(name=f"{name}.chunk", fwd=(), bwd=join, saved=Saved(low=width)),
        ops.accumulate(f"{name}.join", hidden),
    )


def ada_norm(body: Body, name: str, rows: float, hidden: int, *, megatron: bool) -> None:
    """Add a LayerNorm without weights, then ``x (1 + scale) + shift``, a row of each per sample."""
    elems = rows * hidden
    if not megatron:
        body.add(
            widened_sum(name, elems),
            ops.layer_norm(name, rows, hidden, affine=False),
            modulate(f"{name}.modulate", elems, hidden, graded=body.conditioned()),
        )
        return
    fwd = Kernel(kind="norm", high=2 * elems, low=2.0 * hidden)
    bwd = (
        Kernel(kind="norm", high=3 * elems, low=hidden),
        Kernel(kind="reduction", high=2 * elems, low=2.0 * hidden),  # of shift and scale
    )
    saved = Saved(high=elems, raw_bytes=8.0 * rows)
    body.add(Op(name=name, fwd=(fwd,), bwd=bwd, saved=saved))


def widened_sum(name: str, elems: float) -> Op:
    """Autocast's cast of the residual sum to fp32 for a norm, and its gradient's cast back."""
    cast = (autocast_cast(elems),)
    return Op(name=f"{name}.widen", fwd=cast, bwd=cast)


def gated_sum(body: Body, name: str, rows: float, hidden: int, *, megatron: bool) -> None:
    """Add ``x + gate * y`` with one row of the gate per sample; two gradients are summed at ``x``.

    In diffusers ``x`` starts as a product's result, so that all these sums are 16 bit under
    autocast.
    """
    elems = rows * hidden
    if not megatron:
        gated = gate(f"{name}.gate", elems, hidden, graded=body.conditioned())
        body.add(gated, ops.binary(name, elems, grads=1))
        return
    fwd = Kernel(kind="elementwise", high=2 * elems, low=elems + hidden)
    bwd = (
        Kernel(kind="elementwise", high=elems, low=elems + hidden),
        Kernel(kind="reduction", high=elems, low=elems + hidden),
    )
    body.add(
        Op(name=name, fwd=(fwd,), bwd=bwd, saved=Saved(low=elems)),
        ops.accumulate(f"{name}.fork", elems, high=True),
    )


def bias_apart(name: str, elems: float, width: int) -> Op:
    """A bias that a separate kernel adds; its gradient is counted with its product."""
    added = Kernel(kind="elementwise", low=2 * elems, weight=float(width), indexed=elems)
    return Op(name=name, fwd=(added,))


def mlp(
    body: Body, prefix: str, rows: float, hidden: int, ffn: int, reads: str, *, megatron: bool
) -> None:
    """Add two products with biases and a tanh GELU between them."""
    inner = rows * ffn
    body.linear(f"{prefix}up", rows, hidden, ffn, bias=True, reads=reads)
    if megatron:
        body.add(bias_apart(f"{prefix}up.bias", inner, ffn))
    body.add(ops.activation(f"{prefix}gelu", inner))
    body.linear(f"{prefix}down", rows, ffn, hidden, bias=True, reads=f"{prefix}gelu")


def split_qkv(
    body: Body, prefix: str, rows: float, hidden: int, q_dim: int, reads: str, *, megatron: bool
) -> None:
    """Add q, k and v of ``reads``: one product, or three whose input gradients are summed."""
    if megatron:
        body.linear(f"{prefix}qkv", rows, hidden, 3 * q_dim, bias=True, reads=reads)
        body.add(ops.grad_only(f"{prefix}qkv.cat", 6.0 * rows * q_dim, kind="copy"))
        return
    for part in "qkv":
        body.linear(f"{prefix}{part}", rows, hidden, q_dim, bias=True, reads=reads)
    body.add(ops.accumulate(f"{prefix}qkv.forks", rows * hidden, times=2))


def turned(name: str, elems: float, *, megatron: bool) -> Op:
    """Rotary positions of adjacent pairs of elements, in fp32.

    Forward: neg and stack of the pairs, both cast, two products, sum, cast; backward reverses
    these. Nothing is saved except cosines and sines, which all layers share.
    """
    if megatron:
        return rope_fused(name, elems)
    wide, cast = 4.0 * elems, ops.cast(elems)
    fwd = (
        Kernel(kind="elementwise", low=elems, indexed=elems / 2),  # neg, of one of each pair
        Kernel(kind="copy", low=2 * elems, indexed=elems),
        cast, cast,
        Kernel(kind="elementwise", raw_bytes=7 * wide, launches=3.0),
        cast,
    )  # fmt: skip
    bwd = (
        cast,
        Kernel(kind="elementwise", raw_bytes=4 * wide, launches=2.0),
        cast, cast,
        Kernel(kind="elementwise", low=elems, indexed=elems / 2),
        Kernel(kind="copy", low=2 * elems, indexed=elems),
        Kernel(kind="elementwise", low=3 * elems),
    )  # fmt: skip
    return Op(name=name, fwd=fwd, bwd=bwd)


def step_embedder(body: Body, name: str, width: int, hidden: int) -> None:
    """Add two products with SiLU between them, of one row per sample that needs no gradient."""
    body.linear(f"{name}.1", 1, width, hidden, bias=True, reads=f"{name}.in", input_grad=False)
    body.add(ops.activation(f"{name}.silu", hidden))
    body.linear(f"{name}.2", 1, hidden, hidden, bias=True, reads=f"{name}.silu")


def step_features() -> Op:
    """Sinusoids of the time step: ten kernels on one row per sample."""
    return Op(
        name="t_features",
        fwd=(Kernel(kind="elementwise", high=8.0 * STEP_FEATURES, launches=10.0),),
    )


def flow_noise(latent: float) -> Op:
    """A random step and the latent mixed with noise."""
    kernel = Kernel(kind="elementwise", high=NOISE_TRAFFIC * latent, launches=NOISE_LAUNCHES)
    return Op(name="noise", fwd=(kernel,))


def flow_loss(latent: float) -> Op:
    """Mean squared error of the velocity, in fp32."""
    fwd = Kernel(kind="elementwise", raw_bytes=4 * LOSS_TRAFFIC * latent, launches=LOSS_LAUNCHES)
    bwd = Kernel(
        kind="elementwise", raw_bytes=4 * LOSS_GRAD_TRAFFIC * latent, launches=LOSS_GRAD_LAUNCHES
    )
    return Op(name="loss", fwd=(fwd,), bwd=(bwd,), saved=Saved(raw_bytes=8.0 * latent))
