"""Options under the heading "Expert": details of the training loop that few jobs change."""

from __future__ import annotations

from simcore.base.units import GIGA, TERA
from simcore.strategy.options.option import Control, Made, Option, Switch, Whole

DECLARED = (
    Option(
        name="bucket_numel", heading="Expert", kind=Whole(), unit="elements", in_launch=True,
        help="Size of a gradient bucket in elements.",
        more="Default: as the training program sets it (DDP: 25 MiB, DeepSpeed: 5e8 elements).",
        control=Control(label="Gradient bucket, elements", most=int(TERA), example=500_000_000),
        launch_keys={"megatron": "ddp-bucket-size"},
    ),
    Option(
        name="prefetch_blocks", heading="Expert", kind=Whole(least=0), unit="blocks",
        help="How many blocks ahead of compute ZeRO-3 gathers parameters (default 1).",
        resolved="strategy.prefetch_blocks",
        control=Control(label="ZeRO-3 prefetch, blocks", example=1),
    ),
    Option(
        name="gather_tensors", heading="Expert", kind=Switch(), unsaid=False,
        help="ZeRO-3 gathers each tensor in a separate collective, as DeepSpeed before 2022.",
        resolved="strategy.gather_tensors",
        control=Control(label="ZeRO-3 gathers tensor by tensor", unsaid="as the library does",
                        example="on"),
    ),
    Option(
        name="reuse_numel", heading="Expert", kind=Whole(least=0), unit="elements",
        help="ZeRO-3 keeps a gathered tensor if it is used again within this many elements of "
             "other parameters, and releases it otherwise.",
        more="DeepSpeed's stage3_max_reuse_distance.", resolved="strategy.reuse_numel",
        control=Control(label="ZeRO-3 reuse distance, elements", most=int(TERA),
                        example=int(GIGA)),
    ),
    Option(
        name="eager_kernels", heading="Expert", kind=Switch(), unsaid=False,
        help="CUDA libraries load all their kernels into GPU memory at start, as before CUDA 11.7.",
        resolved="eager_kernels",
        control=Control(label="Load all kernels at start", unsaid="off", example="on"),
    ),
    Option(
        name="profile", heading="Expert",
        kind=Made("simcore.hardware.profile:Profile", made_by="read_calibration"),
        help="A calibration as a Python object, made by read_calibration. Only in Python; "
             "elsewhere use --calibration FILE.",
    ),
)  # fmt: skip
