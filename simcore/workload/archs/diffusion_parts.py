"""Parts that DiT, Latte and STDiT share: patch and step embeddings, attention, MLP, output, loss.

Operator lists follow the eager code of the three repositories (facebookresearch/DiT,
Vchitect/Latte, hpcaitech/Open-Sora 1.0), one entry per kernel.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from simcore.base.record import dataclass
from simcore.workload import ops
from simcore.workload.archs.params import weight_and_bias
from simcore.workload.archs.parts import check_names, head_width
from simcore.workload.graph import Kernel, Op, Param
from simcore.workload.ops.modulate import modulate
from simcore.workload.saved import Saved

AttentionMode = Literal["math", "flash"]
#: Attention of U-nets. math: scores in memory; flash1: xformers, before torch had its own kernel;
#: flash: FlashAttention-2.
MODES = ("math", "flash", "flash1")

STEP_FEATURES = 256  # sinusoids of the time step, the input of the embedder's MLP
PIXEL_CHANNELS = 3

# Kernels and traffic (in multiples of the latent) of noise, MSE and variational bound, in the
# diffusion code that DiT and Latte contain; counted with a dispatcher on a torch model of the same
# structure. Each look-up in a schedule table is five launches, one of them a host-to-device copy
# that blocks the host: 2 look-ups while noising, 12 in the loss.
NOISE_LAUNCHES, NOISE_TRAFFIC = 15.0, 17.0
LOSS_FWD_LAUNCHES, LOSS_FWD_TRAFFIC = 135.0, 203.5
LOSS_BWD_LAUNCHES, LOSS_BWD_TRAFFIC = 91.0, 193.0
LOSS_SAVED = 23.5


@dataclass(frozen=True)
class Latent:
    """The latent of one sample, which the denoiser reads."""

    frames: int
    side: int  # of the latent, in elements
    channels: int
    patch: int

    @property
    def elems(self) -> float:
        return float(self.frames) * self.channels * self.side**2

    @property
    def tokens(self) -> int:
        """Tokens of one frame."""
        return (self.side // self.patch) ** 2


def latent_of(image: int, vae_factor: int, patch: int, frames: int, channels: int) -> Latent:
    """The latent of an image size. Raises ValueError unless patches divide it."""
    if image % (vae_factor * patch) or image <= 0:
        raise ValueError(f"image={image} must be a multiple of {vae_factor} x patch={patch}")
    return Latent(frames, image // vae_factor, channels, patch)


def latent_frames(frames: int, stride: int) -> int:
    """Frames of the latent: one for the first frame, then one per ``stride``. Raises ValueError."""
    if frames < 1 or (frames - 1) % stride:
        raise ValueError(f"frames={frames} must be 1 more than a multiple of {stride}")
    return (frames - 1) // stride + 1


def check_heads(hidden: int, heads: int, attention: str) -> None:
    """Raises ValueError if heads do not divide the width or the mode is unknown."""
    head_width(hidden, heads)
    check_names(attention=(attention, ("math", "flash")))


def noise_ops(latent: Latent) -> tuple[Op, ...]:
    """Random step, random noise, and the noised latent ``x_t``."""
    kernel = Kernel(kind="elementwise", high=NOISE_TRAFFIC * latent.elems, launches=NOISE_LAUNCHES)
    return (Op(name="noise", fwd=(kernel,)),)


def patch_ops(latent: Latent, hidden: int) -> tuple[Op, ...]:
    """Patch convolution (saves ``x_t``) and the addition of the frozen position table."""
    grid = latent.side // latent.patch
    elems = float(latent.frames) * latent.tokens * hidden
    conv = ops.conv(
        "x_embedder", (latent.side, latent.side), (grid, grid), latent.channels, hidden,
        latent.patch, stride=latent.patch, images=latent.frames, input_grad=False, bias=True,
    )  # fmt: skip
    table = Kernel(
        kind="elementwise", high=2 * elems, weight=float(latent.tokens) * hidden, indexed=elems
    )
    return conv, Op(name="pos_embed", fwd=(table,))


def step_ops(hidden: int) -> tuple[Op, ...]:
    """Sinusoids of the time step and their MLP: one row per sample."""
    features = Kernel(kind="elementwise", high=8.0 * STEP_FEATURES, launches=10.0)
    return (
        Op(name="t_features", fwd=(features,)),
        ops.linear("t_embedder.0", 1, STEP_FEATURES, hidden, input_grad=False, bias=True),
        ops.activation("t_embedder.silu", hidden),
        ops.linear("t_embedder.2", 1, hidden, hidden, bias=True),
    )


def step_params(hidden: int) -> tuple[Param, ...]:
    """Parameters of the step embedder."""
    return (
        *weight_and_bias("t_embedder.mlp.0", STEP_FEATURES, hidden),
        *weight_and_bias("t_embedder.mlp.2", hidden, hidden),
    )


def residual(name: str, elems: float, *, strided: bool = False) -> Op:
    """``x + branch``; backward adds the gradients of the two paths that start at ``x``.

    ``strided``: ``x`` is transposed in memory. Under autocast ``x`` is fp32 and the branch 16 bit.
    """
    first = replace(ops.residual(name, elems).fwd[0], indexed=elems * strided)
    first = replace(first, mixed=elems * (not strided))
    grad = Kernel(kind="elementwise", high=3 * elems, autocasts=elems)
    return Op(name=name, fwd=(first,), bwd=(grad,), result=Saved(high=elems))


def _softmax(name: str, scores: float) -> Op:
    """Softmax; autocast casts its fp32 result for the following product, and both are saved."""
    op = ops.softmax(name, scores)
    fwd, bwd = (tuple(replace(k, autocasts=scores) for k in way) for way in (op.fwd, op.bwd))
    return replace(op, fwd=fwd, bwd=bwd, saved=op.saved + Saved(autocast=scores))


def attention_ops(
    name: str, batch: float, seq: int, hidden: int, heads: int, mode: AttentionMode, *, packed: bool
) -> tuple[Op, ...]:
    """Self-attention over ``batch`` sequences per sample, from its input to its projection.

    ``packed``: one copy lays q, k and v out head by head (Latte); otherwise they are views, which
    matmul copies one by one and a fused kernel reads as they are.
    """
    rows = batch * seq
    elems = rows * hidden
    qkv = ops.linear(f"{name}.qkv", rows, hidden, 3 * hidden, bias=True, input_high=True)
    proj = ops.linear(
        f"{name}.proj", rows, hidden, hidden, bias=True, save_input=mode == "math" or packed
    )
    stack = ops.grad_only(
        f"{name}.unbind", 6 * elems, kind="copy", indexed=3 * elems * (not packed)
    )
    if mode == "flash":
        fused = ops.sdpa(f"{name}.sdpa", batch, heads, heads, seq, seq, hidden // heads)
        if packed:  # the result is reshaped against its layout: one more copy
            layout = ops.copy(f"{name}.layout", 3 * elems)
            return qkv, layout, fused, stack, ops.copy(f"{name}.merge", elems), proj
        regroup = ops.grad_only(f"{name}.regroup", 6 * elems, kind="copy", indexed=3 * elems)
        return qkv, fused, stack, regroup, proj
    scores = batch * heads * float(seq) * seq
    head = hidden // heads
    if packed:
        layout_ops: tuple[Op, ...] = (ops.copy(f"{name}.layout", 3 * elems, saves=3 * elems), stack)
    else:
        views = tuple(
            Op(
                name=f"{name}.{part}",
                fwd=(Kernel(kind="copy", low=2 * elems, indexed=elems),),
                saved=Saved(low=elems),
            )
            for part in "qkv"
        )
        regroup = ops.grad_only(f"{name}.regroup", 6 * elems, kind="copy", indexed=3 * elems)
        layout_ops = (*views, stack, regroup)
    return (
        qkv,
        *layout_ops,
        ops.bmm(f"{name}.scores", batch * heads, seq, seq, head, save_left=False, save_right=False),
        ops.scale(f"{name}.scale", scores),
        _softmax(f"{name}.softmax", scores),
        ops.bmm(
            f"{name}.context", batch * heads, seq, head, seq, save_left=False, save_right=False
        ),
        ops.copy(f"{name}.merge", elems),
        proj,
    )


def mlp_ops(rows: float, hidden: int, inner: int) -> tuple[Op, ...]:
    """Two linear layers with a tanh GELU between them."""
    return (
        ops.linear("mlp.fc1", rows, hidden, inner, bias=True, input_high=True),
        ops.activation("mlp.gelu", rows * inner),
        ops.linear("mlp.fc2", rows, inner, hidden, bias=True),
    )


def adaln_ops(cond_rows: float, hidden: int, parts: int, *, gated: bool) -> tuple[Op, ...]:
    """SiLU and the linear layer that gives shift, scale (and gate) for each conditioning row.

    SiLU's input is shared by all blocks and counted where it is made. The gates are views, so that
    the whole output is saved; its gradient is concatenated from the parts.
    """
    width = parts * hidden
    chunk = Op(
        name="adaln.chunk",
        fwd=(),
        bwd=(Kernel(kind="copy", low=2 * cond_rows * width),),
        saved=Saved(low=cond_rows * width * gated),
    )
    return (
        ops.activation("adaln.silu", cond_rows * hidden, saves="none"),
        ops.linear("adaln.linear", cond_rows, hidden, width, bias=True),
        chunk,
    )


def final_ops(latent: Latent, cond_rows: float, hidden: int, out: int) -> tuple[Op, ...]:
    """Last norm, modulation, projection to patches, and their rearrangement into an image."""
    rows = float(latent.frames) * latent.tokens
    return (
        ops.layer_norm("norm_final", rows, hidden, affine=False),
        modulate("final.modulate", rows * hidden, cond_rows * hidden),
        ops.linear("final.linear", rows, hidden, out, bias=True, input_high=True),
        ops.copy("unpatchify", rows * out),
    )


def loss_ops(latent: Latent) -> tuple[Op, ...]:
    """MSE on the noise and the variational bound on the learned variance, in fp32."""
    elems = latent.elems
    fwd = Kernel(kind="elementwise", high=LOSS_FWD_TRAFFIC * elems, launches=LOSS_FWD_LAUNCHES)
    bwd = Kernel(kind="elementwise", high=LOSS_BWD_TRAFFIC * elems, launches=LOSS_BWD_LAUNCHES)
    return (Op(name="loss", fwd=(fwd,), bwd=(bwd,), saved=Saved(high=LOSS_SAVED * elems)),)


def pixel_bytes(image: int, frames: int, bytes_per_value: float) -> float:
    """Bytes of the pixels of one sample that are copied to the device."""
    return float(frames) * PIXEL_CHANNELS * image**2 * bytes_per_value
