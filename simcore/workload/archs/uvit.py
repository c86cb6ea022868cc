"""U-ViT (Bao et al. 2023): a plain transformer on latents whose first blocks feed its last ones.

Operators follow baofff/U-ViT (libs/uvit.py, train_ldm_discrete.py, sde.py): time step, label and
patches are all tokens. Each block of the second half joins its input with the output of the
mirrored block of the first half and projects both back to ``hidden``. Under autocast that product
is 16 bit, and so is the residual sum after it; in the first half the sum is fp32, as the embeddings
are.
"""

from __future__ import annotations

from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.diffusion_parts import MODES, Latent, latent_of
from simcore.workload.archs.lm_attention import FLASH
from simcore.workload.archs.params import norm_params, weight_and_bias
from simcore.workload.archs.parts import check_names, head_width
from simcore.workload.graph import Block, Kernel, Op, Param, Workload
from simcore.workload.ops.attention import ALIGNED
from simcore.workload.saved import Saved

_LABEL_BYTES = 8.0
#: Kernels, and latents moved, of random step and noise, look-ups in the schedule, and the noised
#: latent.
_NOISE = (20.0, 14.0)
#: Kernels, and latents moved, of the noise's squared error and its mean (sde.mos), each way; the
#: difference is saved.
_LOSS_FWD, _LOSS_BWD = (4.0, 7.0), (6.0, 12.0)


def _cast(name: str, elems: float) -> Op:
    """A cast between fp32 and 16 bit each way, under autocast."""
    return Op(name=name, fwd=(ops.autocast_cast(elems),), bwd=(ops.autocast_cast(elems),))


def _norm(name: str, rows: float, hidden: int, *, high: bool) -> tuple[Op, ...]:
    """LayerNorm between the residual sum and a product; it saves its input in fp32."""
    elems = rows * hidden
    before = () if high else (_cast(f"{name}.up", elems),)
    return (*before, ops.layer_norm(name, rows, hidden), _cast(f"{name}.down", elems))


def _split(elems: float) -> tuple[Op, ...]:
    """Backward of ``qkv[0], qkv[1], qkv[2]``: each copied into zeros, summed, laid out by token."""
    zeros = Kernel(kind="elementwise", low=9.0 * elems, launches=3.0)
    placed = Kernel(kind="copy", low=6.0 * elems, launches=3.0)
    summed = Kernel(kind="elementwise", low=18.0 * elems, launches=2.0)
    regrouped = Kernel(kind="copy", low=6.0 * elems)
    return (Op(name="qkv.split", fwd=(), bwd=(zeros, placed, summed, regrouped)),)


def _attention(seq: int, hidden: int, heads: int, mode: str) -> tuple[Op, ...]:
    elems, head = float(seq) * hidden, hidden // heads
    qkv = ops.linear("attn.qkv", seq, hidden, 3 * hidden)
    if mode != "math":
        fused = ops.sdpa("attn.core", 1, heads, heads, seq, seq, head, kind=FLASH[mode])
        proj = ops.linear("attn.proj", seq, hidden, hidden, bias=True, save_input=False)
        return qkv, *_split(elems), fused, proj
    scores = float(heads) * seq * seq
    views = tuple(ops.copy(f"attn.{part}", elems, saves=elems) for part in "qkv")
    copies = tuple(Op(name=v.name, fwd=v.fwd, saved=v.saved) for v in views)
    aligned = head % ALIGNED == 0
    # Softmax is fp32 under autocast; the product with the values also saves a 16-bit copy.
    cast = ops.autocast_cast(scores)
    probabilities = Op(name="attn.cast", fwd=(cast,), bwd=(cast,), saved=Saved(autocast=scores))
    return (
        qkv,
        *_split(elems),
        *copies,
        ops.bmm("attn.scores", heads, seq, seq, head, save_left=False, save_right=False,
                aligned=aligned),
        ops.scale("attn.scale", scores),
        _cast("attn.scores.up", scores),
        ops.softmax("attn.softmax", scores, row=seq),
        probabilities,
        ops.bmm("attn.context", heads, seq, head, seq, save_left=False, save_right=False,
                aligned=aligned),
        ops.copy("attn.merge", elems),
        ops.linear("attn.proj", seq, hidden, hidden, bias=True),
    )  # fmt: skip


def _block(
    name: str, seq: int, hidden: int, heads: int, inner: int, mode: str, *,
    joins: bool,
) -> Block:  # fmt: skip
    """One block; ``joins``: it also reads the output of its mirrored block."""
    rows, elems, high = float(seq), float(seq) * hidden, not joins
    join: tuple[Op, ...] = ()
    params: tuple[Param, ...] = ()
    if joins:  # the cast of the 16-bit input, the copy, and the cast for the product
        copied = Kernel(kind="copy", high=4.0 * elems)
        join = (
            _cast("skip.up", elems),
            Op(name="skip.cat", fwd=(copied,)),
            _cast("skip.down", 2.0 * elems),
            ops.linear("skip_linear", rows, 2 * hidden, hidden, bias=True),
            ops.accumulate("skip.fork", elems, high=True),
        )
        params = weight_and_bias("skip_linear", 2 * hidden, hidden)
    body = (
        *join,
        *_norm("norm1", rows, hidden, high=high),
        *_attention(seq, hidden, heads, mode),
        ops.binary("attn.residual", elems, grads=0, high=high),
        ops.accumulate("attn.fork", elems, high=high),
        *_norm("norm2", rows, hidden, high=high),
        ops.linear("mlp.fc1", rows, hidden, inner, bias=True),
        ops.activation("mlp.gelu", rows * inner),
        ops.linear("mlp.fc2", rows, inner, hidden, bias=True),
        ops.binary("mlp.residual", elems, grads=0, high=high),
        ops.accumulate("mlp.fork", elems, high=high),
    )
    own = (
        *norm_params("norm1", hidden),
        Param("attn.qkv.weight", 3 * hidden * hidden),
        *weight_and_bias("attn.proj", hidden, hidden),
        *norm_params("norm2", hidden),
        *weight_and_bias("mlp.fc1", hidden, inner),
        *weight_and_bias("mlp.fc2", inner, hidden),
    )
    # A checkpoint saves its inputs; the mirrored block's output is already the next block's input.
    kept = Saved(high=elems) if high else Saved(low=elems)
    return Block(name=name, ops=body, params=(*own, *params), boundary=kept, recomputable=True)


def _embed(latent: Latent, hidden: int, classes: int, seq: int) -> Block:
    """Noise, patches, the tokens of time and label joined before them, trained positions."""
    grid, elems = latent.side // latent.patch, float(seq) * hidden
    extras = 1 + bool(classes)
    patches = ops.conv(
        "patch_embed", (latent.side, latent.side), (grid, grid), latent.channels, hidden,
        latent.patch, stride=latent.patch, input_grad=False, bias=True,
    )  # fmt: skip
    noise = Kernel(kind="elementwise", high=_NOISE[1] * latent.elems, launches=_NOISE[0])
    sinusoids = Kernel(kind="elementwise", high=8.0 * hidden, launches=9.0)
    # The patches' gradient comes after that of the first tokens: it is copied to a separate tensor.
    joined = Op(
        name="tokens",
        fwd=(Kernel(kind="copy", high=2.0 * elems * extras, launches=float(extras)),),
        bwd=(Kernel(kind="copy", low=2.0 * grid * grid * hidden),),
    )
    label = (ops.embedding("label_emb", 1, hidden, classes),) if classes else ()
    table = (Param("label_emb.weight", classes * hidden),) if classes else ()
    return Block(
        name="embed",
        ops=(
            Op(name="noise", fwd=(noise,)), patches, Op(name="time", fwd=(sinusoids,)), *label,
            joined, ops.add_positions("pos_embed", seq, hidden),
        ),
        params=(
            Param("pos_embed", seq * hidden),
            *weight_and_bias("patch_embed.proj", latent.channels * latent.patch**2, hidden),
            *table,
        ),
    )  # fmt: skip


def _output(latent: Latent, hidden: int, seq: int) -> Block:
    out = latent.channels * latent.patch**2
    # After the last block's 16-bit sum the extra tokens are cut off and patches put back in place.
    last = float(latent.tokens) * out

    def loss(launches: float, moved: float) -> Kernel:
        return Kernel(kind="elementwise", high=moved * latent.elems, launches=launches)

    cut = Op(name="cut", fwd=(), bwd=(Kernel(kind="copy", low=2.0 * last, launches=2.0),))
    return Block(
        name="output",
        ops=(
            *_norm("norm", float(seq), hidden, high=False),
            ops.linear("decoder_pred", float(seq), hidden, out, bias=True),
            cut,
            ops.copy("unpatchify", last),
            Op(name="loss", fwd=(loss(*_LOSS_FWD),), bwd=(loss(*_LOSS_BWD),),
               saved=Saved(high=latent.elems)),
        ),
        params=(*norm_params("norm", hidden), *weight_and_bias("decoder_pred", hidden, out)),
    )  # fmt: skip


@ARCHS.register("uvit")
def uvit(
    *,
    name: str,
    sample_unit: str = "image",
    depth: int,
    hidden: int,
    heads: int,
    patch: int = 2,
    image: int = 256,
    mlp_ratio: float = 4.0,
    num_classes: int = 1001,
    attention: str = "flash",
    vae_factor: int = 8,
    in_channels: int = 4,
) -> Workload:
    """U-ViT of ``depth`` blocks and one in their middle, on the latent of one image.

    ``num_classes`` includes the empty label of guidance; 0 is unconditional.
    """
    head_width(hidden, heads)
    check_names(attention=(attention, MODES))
    if depth % 2 or depth < 2:
        raise ValueError(f"depth={depth} must be even: each block has its mirror image")
    latent = latent_of(image, vae_factor, patch, 1, in_channels)
    seq, inner = latent.tokens + 1 + bool(num_classes), int(hidden * mlp_ratio)

    def block(name: str, joins: bool) -> Block:
        return _block(name, seq, hidden, heads, inner, attention, joins=joins)

    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=(
            _embed(latent, hidden, num_classes, seq), block("block", False), block("joined", True),
            _output(latent, hidden, seq),
        ),
        order=(0, *([1] * (depth // 2 + 1)), *([2] * (depth // 2)), 3),
        # Means and deviations of the latent, which the loader reads.
        input_bytes=2.0 * FP32_BYTES * latent.elems + _LABEL_BYTES * bool(num_classes),
        tokens_per_sample=float(seq),
    )  # fmt: skip
