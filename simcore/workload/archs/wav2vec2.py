"""wav2vec 2.0 (Baevski et al. 2020) and HuBERT (Hsu et al. 2021), fine-tuned to transcribe (CTC).

Op by op as transformers runs them (models/wav2vec2/modeling_wav2vec2.py, models/hubert) on clips of
one length: convolutions of the raw wave, a grouped convolution for positions, BART's layers.
"""

from __future__ import annotations

from simcore.base.record import dataclass
from simcore.base.units import FP32_BYTES, INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.body import Body
from simcore.workload.archs.parts import check_names, head_width
from simcore.workload.archs.towers import CORES, Tower, layer
from simcore.workload.graph import Block, Frozen, Kernel, Op, Workload
from simcore.workload.saved import Saved

#: Fraction of the frames that SpecAugment replaces by a vector (mask_time_prob of the config).
_MASKED_SHARE = 0.05


@dataclass(frozen=True)
class _Conv:
    """One convolution over time."""

    cin: int
    cout: int
    taps: int
    stride: int = 1
    groups: int = 1
    pad: int = 0

    def frames(self, length: int) -> int:
        """Length of its result."""
        return (length + 2 * self.pad - self.taps) // self.stride + 1


def _conv(name: str, c: _Conv, length: int, *, bias: bool, input_high: bool = False) -> Op:
    """A convolution with a gradient of its input.

    The first convolution computes that gradient too (Wav2Vec2FeatureEncoder sets requires_grad for
    checkpoints).
    """
    return ops.conv(
        name, (length,), (c.frames(length),), c.cin, c.cout, c.taps, stride=c.stride,
        groups=c.groups, bias=bias, input_high=input_high,
    )  # fmt: skip


def _ears(convs: tuple[_Conv, ...], samples: int, norm: str, bias: bool) -> Block:
    """The feature encoder: convolutions and GELU, with a norm of channels or one after each."""
    body, length, high = Body(in_layer=False), samples, False
    for i, c in enumerate(convs):
        name = f"conv{i}"
        body.add(_conv(name, c, length, bias=bias, input_high=high))
        body.param(f"{name}.weight", c.cout * c.cin * c.taps)
        if bias:
            body.param(f"{name}.bias", c.cout)
        length = c.frames(length)
        elems = float(length * c.cout)
        high = norm == "layer" or i == 0
        if norm == "layer":  # over channels, which are strided: rows are copied
            body.add(ops.copy(f"{name}.rows", elems, high=True))
            body.norm(f"{name}.norm", length, c.cout, "layernorm")
        elif i == 0:  # one group per channel
            body.add(ops.group_norm(f"{name}.norm", elems, c.cout))
            body.param(f"{name}.norm.weight", c.cout)
            body.param(f"{name}.norm.bias", c.cout)
        body.add(ops.activation(f"{name}.gelu", elems, high=high))
    return body.block("feature encoder")


def _forward_only(block: Block, peak: float) -> Frozen:
    """The feature encoder as a frozen network."""
    run = tuple(Op(name=op.name, fwd=op.fwd) for op in block.ops)
    return Frozen(name=block.name, resident_numel=block.numel, ops=run, transient_low=peak)


def _positions(body: Body, t: Tower, taps: int, groups: int) -> None:
    """Add a grouped convolution under weight norm, GELU, and the sum with its input."""
    c = _Conv(t.hidden, t.hidden, taps, groups=groups, pad=taps // 2)
    weight, cut = float(t.hidden * t.hidden // groups * taps), c.frames(t.rows) - t.rows
    padded = float(c.frames(t.rows) * t.hidden)
    body.add(
        Op(
            name="positions.weight_norm",
            fwd=(Kernel(kind="norm", weight=2 * weight),),
            bwd=(Kernel(kind="norm", weight=4 * weight),),
        ),
        ops.copy("positions.channels", t.elems),  # channels first
        _conv("positions", c, t.rows, bias=True),
    )
    if cut:  # the last frame is dropped
        body.add(ops.grad_only("positions.cut", padded + 2 * t.elems, launches=2, kind="copy"))
    body.add(
        ops.activation("positions.gelu", t.elems, saves="none"),
        ops.keep("positions.padded", padded),
        ops.binary("positions.sum", t.elems, grads=0),
        ops.accumulate("positions.fork", t.elems),
    )
    body.param("positions.bias", t.hidden)
    body.param("positions.weight_g", taps)
    body.param("positions.weight_v", int(weight))


def _spec_augment(body: Body, t: Tower) -> None:
    """Add the masking: frames are overwritten in place; backward splits their gradients off."""
    masked = _MASKED_SHARE * t.elems
    put = Kernel(kind="gather", low=2 * masked, raw_bytes=2.0 * t.rows, launches=3.0)
    back = Kernel(kind="copy", low=2 * t.elems + 3 * masked, launches=4.0)
    # Rows and columns of the masked frames.
    indices = Saved(raw_bytes=2 * INT64_BYTES * _MASKED_SHARE * t.rows)
    body.add(Op(name="spec_augment", fwd=(put,), bwd=(back,), saved=indices))
    body.param("masked_spec_embed", t.hidden)


def _projected(
    t: Tower, width: int, taps: int, groups: int, masked: bool, drop: bool
) -> Block:  # fmt: skip
    body = Body(in_layer=False)
    # The channels-first tensor is copied by rows.
    body.add(ops.copy("rows", float(t.rows * width), high=True))
    body.norm("features.norm", t.rows, width, "layernorm")
    body.linear("projection", t.rows, width, t.hidden, bias=True, reads="features.norm")
    if drop:
        body.add(ops.dropout("projection.dropout", t.elems))
    if masked:
        _spec_augment(body, t)
    _positions(body, t, taps, groups)
    if not t.norm_first:
        body.norm("norm", t.rows, t.hidden, "layernorm")
    if t.drop:
        body.add(ops.dropout("dropout", t.elems, high=not t.norm_first))
    return body.block("projection")


def _ctc(name: str, frames: int, vocab: int, target_len: int) -> tuple[Op, ...]:
    """Log-probabilities in fp32 and the sum over alignments (ATen, native/cuda/LossCTC.cu).

    Forward writes a state for each frame and each of the labels and the blanks between them;
    backward does the same from the end, and writes one gradient per element. A thread block handles
    a sequence, frame by frame; only the traffic of this is counted, not the time of the chain.
    """
    elems, states = float(frames * vocab), float(frames * (2 * target_len + 1))
    cast = ops.cast(elems, narrow=True)
    soft = Kernel(kind="softmax", raw_bytes=2 * FP32_BYTES * elems)
    label_bytes = float(INT64_BYTES * target_len)
    return (
        Op(
            name=f"{name}.log_softmax",
            fwd=(cast, soft),
            bwd=(Kernel(kind="softmax", raw_bytes=3 * FP32_BYTES * elems), cast),
            saved=Saved(raw_bytes=FP32_BYTES * elems),
        ),
        # Lengths and labels without their padding.
        Op(name=f"{name}.labels", fwd=(Kernel(kind="elementwise", raw_bytes=3 * label_bytes,
                                              launches=16.0),),
           saved=Saved(raw_bytes=label_bytes)),
        Op(
            name=name,
            fwd=(Kernel(kind="elementwise", raw_bytes=2 * FP32_BYTES * states, launches=2.0),),
            bwd=(Kernel(kind="elementwise", launches=3.0,
                        raw_bytes=FP32_BYTES * (4 * states + 2 * elems)),),
            saved=Saved(raw_bytes=FP32_BYTES * states),
        ),
        ops.loss_seed(),
    )  # fmt: skip


def _head(t: Tower, vocab: int, target_len: int, drop: bool) -> Block:
    body = Body(in_layer=False)
    body.high.add("last")
    reads = "last"
    if t.norm_first:
        body.norm("norm", t.rows, t.hidden, "layernorm")
        reads = "norm"
    if drop:
        body.add(ops.dropout("dropout", t.elems, high=True))
        reads = "dropped"
        body.high.add(reads)
    body.linear("head", t.rows, t.hidden, vocab, bias=True, reads=reads)
    # the training step holds the logits
    body.add(ops.keep("logits", float(t.rows * vocab)), *_ctc("ctc", t.rows, vocab, target_len))
    return body.block("head")


def _numbers(text: str, what: str) -> tuple[int, ...]:
    """The numbers of a setting like ``10-3-3``. Raises ValueError."""
    parts = text.split("-")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"{what} {text!r} is not a list of numbers like 10-3-2")
    return tuple(map(int, parts))


@ARCHS.register("wav2vec2")
def build(
    *,
    name: str,
    sample_unit: str = "clip",
    layers: int,
    hidden: int,
    heads: int,
    ffn: int = 0,
    vocab: int = 32,
    samples: int = 250_000,
    target_len: int = 200,
    conv_dim: str = "512-512-512-512-512-512-512",
    conv_kernel: str = "10-3-3-3-3-2-2",
    conv_stride: str = "5-2-2-2-2-2-2",
    conv_bias: bool = False,
    conv_norm: str = "group",
    position_taps: int = 128,
    position_groups: int = 16,
    norm_first: bool = False,
    spec_augment: bool = True,
    frozen_features: bool = False,
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    activation_dropout: float = 0.1,
    projection_dropout: float = 0.0,
    final_dropout: float = 0.1,
    attention: str = "sdpa",
) -> Workload:
    """wav2vec 2.0 or HuBERT on clips of ``samples`` (16,000 per second), ``target_len`` letters.

    - ``conv_norm``: group (of the first convolution's channels) or layer (after each convolution).
    - ``norm_first``: the layers of the large models.
    - ``frozen_features``: convolutions of the wave only run forward, as after
      ``freeze_feature_encoder()``.
    - ``spec_augment``: some frames are masked.
    - ``attention``: sdpa (or flash), transformers' own choice, or eager (or math).
    """
    check_names(
        attention=(attention, tuple(CORES)),
        conv_norm=(conv_norm, ("group", "layer")),
    )
    if hidden % position_groups:
        raise ValueError(f"position_groups {position_groups} does not divide hidden {hidden}")
    dims, kernels, strides = (
        _numbers(conv_dim, "conv_dim"), _numbers(conv_kernel, "conv_kernel"),
        _numbers(conv_stride, "conv_stride"),
    )  # fmt: skip
    if not len(dims) == len(kernels) == len(strides):
        raise ValueError("conv_dim, conv_kernel and conv_stride must be of one length")
    convs = tuple(
        _Conv(cin, cout, taps, stride)
        for cin, cout, taps, stride in zip((1, *dims), dims, kernels, strides, strict=False)
    )
    frames = samples
    for c in convs:
        frames = c.frames(frames)
    if frames < 1:
        raise ValueError(f"samples {samples} leave no frame")
    t = Tower(
        rows=frames, hidden=hidden, heads=heads, head_dim=head_width(hidden, heads),
        ffn=ffn or 4 * hidden, norm_first=norm_first, attention=CORES[attention], drop=dropout > 0,
        drop_mlp=dropout > 0, drop_inner=activation_dropout > 0, drop_scores=attention_dropout > 0,
    )  # fmt: skip
    ears = _ears(convs, samples, conv_norm, conv_bias)
    blocks = (
        _projected(t, dims[-1], position_taps, position_groups, spec_augment,
                   projection_dropout > 0),
        layer(t, "layer"),
        _head(t, vocab, target_len, final_dropout > 0),
    )  # fmt: skip
    order: tuple[int, ...] = (0, *[1] * layers, 2)
    frozen: tuple[Frozen, ...] = ()
    if frozen_features:
        # The first convolution's result and its norm's are live together.
        frozen = (_forward_only(ears, 2.0 * convs[0].frames(samples) * dims[0]),)
    else:
        blocks, order = (ears, *blocks), (0, *(i + 1 for i in order))  # type: ignore[assignment]
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=blocks,
        order=order,
        frozen=frozen,
        input_bytes=FP32_BYTES * samples + INT64_BYTES * target_len,
        tokens_per_sample=frames,
    )
