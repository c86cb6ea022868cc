"""Parts that MMDiT, CogVideoX and Wan share: modulated norms and sums, rotary pairs, flow matching.

``fused`` chooses the modules. False: tensor operations as in diffusers' classes. True:
Megatron-Core's modules on Transformer Engine, as NVIDIA's NeMo and DFM build these models
(nemo/collections/diffusion/models/dit/dit_layer_spec.py, DFM's flux_layer_spec.py): a norm with its
modulation and a gate with its sum are one kernel each (``jit_fuser``, torch's compiler), q, k and v
are one product, rotary positions are one kernel, and a separate kernel adds a bias that
``skip_bias_add`` leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simcore.base.record import dataclass
from simcore.workload import ops
from simcore.workload.archs.body import (
    Adapters,
    Body,
    adapters,
    assumptions,
    check_targets,
    frozen_parts,
    frozen_weight_flop,
)
from simcore.workload.archs.diffusion_parts import STEP_FEATURES, latent_frames
from simcore.workload.archs.lm_attention import FLASH, rope_fused
from simcore.workload.archs.parts import check_names, head_width
from simcore.workload.graph import Kernel, Op, Workload
from simcore.workload.ops import autocast_cast
from simcore.workload.ops.adaln import gate, modulate
from simcore.workload.saved import Saved

MODULES = ("diffusers", "megatron")
ENCODED_BYTES = 2.0  # per element of a latent or encoding that the loader reads
#: Traffic (in multiples of the latent) and launches of flow matching (Lipman et al. 2022; Esser et
#: al. 2024), counted by hand. Noise: a normal draw (1), 1 - sigma, two products (2 + 2) and their
#: sum (3), packed into rows (2). Loss: noise - latent (3), difference (3), square (2), mean (1);
#: and their gradients (7).
NOISE_TRAFFIC, NOISE_LAUNCHES = 10.0, 8.0
LOSS_TRAFFIC, LOSS_LAUNCHES = 9.0, 4.0
LOSS_GRAD_TRAFFIC, LOSS_GRAD_LAUNCHES = 7.0, 4.0


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Sizes of a transformer over the rows of a latent (``image``) and of a caption (``text``).

    ``packed``: width of a row of the latent's patches. ``kernel``: of attention.
    """

    image: int
    text: int
    hidden: int
    heads: int
    head_dim: int
    ffn: int
    packed: int
    kernel: str
    fused: bool = False
    adapters: Adapters | None = None

    @property
    def rows(self) -> int:
        return self.image + self.text

    @property
    def q_dim(self) -> int:
        return self.heads * self.head_dim

    @property
    def latent(self) -> float:
        """Elements of the latent."""
        return float(self.image * self.packed)

    def saved_rows(self, rows: int) -> Saved:
        """What recompute keeps of a layer over ``rows``: the residual sum."""
        elems = float(rows * self.hidden)
        return Saved(high=elems) if self.fused else Saved(low=elems)

    def attention(self, body: Body, rows: int, keys: int, name: str = "attention") -> None:
        """Add fused attention of ``rows`` to ``keys``."""
        body.add(
            ops.sdpa(name, 1, self.heads, self.heads, rows, keys, self.head_dim,
                     kind=FLASH[self.kernel])
        )  # fmt: skip


def sizes(
    hidden: int, heads: int, head_dim: int, ffn: int, text_tokens: int, attention: str,
    lora: tuple[int, str, str], modules: str = "diffusers",
) -> dict[str, Any]:  # fmt: skip
    """The fields of ``Flow`` that all models read from their settings. Raises ValueError.

    Zeros mean: ``head_dim`` = hidden / heads, ``ffn`` = 4 hidden. ``lora``: rank, targets, format
    of the frozen base.
    """
    check_names(attention=(attention, tuple(FLASH)), modules=(modules, MODULES))
    if text_tokens < 1:
        raise ValueError(f"text_tokens={text_tokens} must be at least 1")
    return {
        "hidden": hidden, "heads": heads, "head_dim": head_dim or head_width(hidden, heads),
        "ffn": ffn or 4 * hidden, "text": text_tokens, "kernel": attention,
        "fused": modules == "megatron", "adapters": adapters(*lora),
    }  # fmt: skip


def clip_rows(
    frames: int, vae_frames: int, height: int, width: int, patch: int, vae_factor: int
) -> int:
    """Rows of a clip's latent. Raises ValueError unless patches divide it.

    The autoencoder keeps one frame of every ``vae_frames`` after the first, and divides height and
    width by ``vae_factor``.
    """
    cell = vae_factor * patch
    for key, side in (("height", height), ("width", width)):
        if side < 1 or side % cell:
            raise ValueError(f"{key}={side} must be a multiple of {cell}")
    return latent_frames(frames, vae_frames) * (height // cell) * (width // cell)


@dataclass(frozen=True)
class Stage:
    """A block of a model, how often it runs in a row, and its rows if recompute keeps them.

    ``recomputed``: whether it is one of the layers that recompute runs again.
    """

    name: str
    body: Body
    count: int = 1
    rows: int = 0
    recomputed: bool = True


def flow_workload(
    m: Flow, name: str, sample_unit: str, stages: Sequence[Stage], **more: Any
) -> Workload:
    """The workload of ``stages`` that run one after the other; those that run no time are left out.

    ``more``: further fields of the workload. Raises ValueError for an adapter's unknown target.
    """
    run = [stage for stage in stages if stage.count]
    check_targets(m.adapters, [s.body for s in run if s.rows])
    built = [(s.body, s.count) for s in run]
    blocks = tuple(
        s.body.block(s.name, boundary=m.saved_rows(s.rows), recomputable=s.recomputed)
        if s.rows
        else s.body.block(s.name)
        for s in run
    )
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=blocks,
        order=tuple(i for i, s in enumerate(run) for _ in range(s.count)),
        frozen=frozen_parts(built),
        frozen_weight_flop=frozen_weight_flop(built),
        tokens_per_sample=float(m.rows),
        notes=assumptions(m.adapters),
        **more,
    )


def modulation(
    body: Body, name: str, hidden: int, parts: int, *, fused: bool = False, step_width: int = 0
) -> None:
    """Add SiLU and the linear layer that computes shift, scale and gate of a sample's condition.

    ``parts``: how many vectors of ``hidden`` elements the linear layer returns. ``step_width``:
    width of the condition, if that is not ``hidden``. All layers share
    the input of SiLU; it is counted where it is computed. The parts are views of the layer's
    output, so the whole output stays saved until backward, which concatenates the parts' gradients.
    ``fused``: it computes in 16 bits whatever the other products do (a plain nn.Linear).
    """
    width, read = float(parts * hidden), step_width or hidden
    body.add(ops.activation(f"{name}.silu", read, saves="none"))
    body.linear(
        f"{name}.linear",
        1,
        read,
        parts * hidden,
        bias=True,
        reads=f"{name}.silu",
        wide=fused or None,
    )
    join = (Kernel(kind="copy", low=2 * width),)
    body.add(
        Op(name=f"{name}.chunk", fwd=(), bwd=join, saved=Saved(low=width)),
        ops.accumulate(f"{name}.join", read),
    )


def ada_norm(body: Body, name: str, rows: float, hidden: int, *, fused: bool = False) -> None:
    """Add a LayerNorm without weights, then ``x (1 + scale) + shift``, a row of each per sample."""
    elems = rows * hidden
    if not fused:
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


def gated_sum(body: Body, name: str, rows: float, hidden: int, *, fused: bool = False) -> None:
    """Add ``x + gate * y`` with one row of the gate per sample; two gradients are summed at ``x``.

    In diffusers ``x`` starts as a product's result, so that all these sums are 16 bit under
    autocast.
    """
    elems = rows * hidden
    if not fused:
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
    return Op(name=name, fwd=(ops.added_bias(elems, width),))


def mlp(
    body: Body, prefix: str, rows: float, hidden: int, ffn: int, reads: str, *, fused: bool = False
) -> None:
    """Add two products with biases and a tanh GELU between them."""
    inner = rows * ffn
    body.linear(f"{prefix}up", rows, hidden, ffn, bias=True, reads=reads)
    if fused:
        body.add(bias_apart(f"{prefix}up.bias", inner, ffn))
    body.add(ops.activation(f"{prefix}gelu", inner))
    body.linear(f"{prefix}down", rows, ffn, hidden, bias=True, reads=f"{prefix}gelu")


def split_qkv(
    body: Body,
    prefix: str,
    rows: float,
    hidden: int,
    q_dim: int,
    reads: str,
    *,
    fused: bool = False,
) -> None:
    """Add q, k and v of ``reads``: one product, or three whose input gradients are summed."""
    if fused:
        body.linear(f"{prefix}qkv", rows, hidden, 3 * q_dim, bias=True, reads=reads)
        body.add(ops.grad_only(f"{prefix}qkv.cat", 6.0 * rows * q_dim, kind="copy"))
        return
    for part in "qkv":
        body.linear(f"{prefix}{part}", rows, hidden, q_dim, bias=True, reads=reads)
    body.add(ops.accumulate(f"{prefix}qkv.forks", rows * hidden, times=2))


def turned(name: str, elems: float, *, fused: bool = False) -> Op:
    """Rotary positions of adjacent pairs of elements, in fp32.

    Forward: neg and stack of the pairs, both cast, two products, sum, cast; backward reverses
    these. Nothing is saved except cosines and sines, which all layers share.
    """
    if fused:
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
