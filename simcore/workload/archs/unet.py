"""U-Net (Ronneberger et al. 2015): unpadded 3x3 convolutions, crops and concatenations."""

from __future__ import annotations

from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.tape import T, Tape
from simcore.workload.graph import Kernel, Op, Workload


def _double(tape: Tape, x: T, width: int) -> T:
    for i in (1, 2):
        x = tape.act("relu", tape.conv(f"conv{i}", x, width, 3, pad=0, bias=True), "relu")
    return x


@ARCHS.register("unet")
def build(
    *,
    name: str,
    sample_unit: str = "image",
    image: int = 572,
    channels: int = 1,
    width: int = 64,
    depth: int = 4,
    classes: int = 2,
) -> Workload:
    """U-Net of ``depth`` poolings on square images; 572 x 572 pixels give 388 x 388 labels.

    Each level doubles ``width``. There is no BatchNorm, as published.
    """
    tape = Tape()
    x, skips = tape.input(channels, (image, image)), []
    for level in range(depth):
        x = _double(tape, x, width << level)
        skips.append(x)
        if min(x.grid) < 2 or x.grid[0] % 2:
            raise ValueError(f"image {image} leaves an odd or empty map at level {level}")
        x = tape.max_pool("pool", x, 2, 2)
        tape.block(f"down{level}")
    x = _double(tape, x, width << depth)
    tape.block("bottom")
    for level in reversed(range(depth)):
        up = tape.conv("up", x, width << level, 2, stride=2, transposed=True, bias=True)
        # The crop is a strided view; both halves are copied into one tensor, which the convolution
        # saves. Backward writes the crop's gradient into zeros.
        both = T(2 * up.c, up.grid)
        cat = Kernel(kind="copy", low=2.0 * both.elems, indexed=both.elems)
        crop = Kernel(
            kind="copy", low=up.elems + 2.0 * skips[level].elems, launches=2.0, indexed=up.elems
        )
        tape.op(Op(name="concat", fwd=(cat,), bwd=(crop,)))
        x = _double(tape, both, width << level)
        tape.block(f"up{level}")
    x = tape.conv("classes", x, classes, 1, bias=True)
    tape.op(ops.cross_entropy("loss", x.points, classes))
    tape.op(ops.loss_seed())
    tape.block("head")
    return tape.workload(
        name, sample_unit, input_bytes=FP32_BYTES * channels * image**2 + 8 * x.points
    )
