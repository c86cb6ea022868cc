"""Options under the heading "Expert": details of a program's own loop that few jobs change."""

from __future__ import annotations

from simcore.base.units import GIGA, TERA
from simcore.strategy.options.option import Control, Made, Option, Switch, Whole

DECLARED = (
    Option(
        name="bucket_numel", heading="Expert", kind=Whole(), unit="elements", in_launch=True,
        help="Elements of a gradient bucket.",
        more="Default: the program's own (DDP: 25 MiB, DeepSpeed: 5e8 elements).",
        control=Control(label="Elements of a gradient bucket", most=int(TERA), example=500_000_000),
        launch_keys={"megatron": "ddp-bucket-size"},
    ),
    Option(
        name="prefetch_blocks", heading="Expert", kind=Whole(least=0), unit="blocks",
        help="Blocks ahead that ZeRO-3 gathers parameters (default 1).",
        resolved="strategy.prefetch_blocks",
        control=Control(label="Blocks that ZeRO-3 gathers ahead", example=1),
    ),
    Option(
        name="gather_tensors", heading="Expert", kind=Switch(), unsaid=False,
        help="ZeRO-3 gathers each tensor on its own, as DeepSpeed before 2022.",
        resolved="strategy.gather_tensors",
        control=Control(label="ZeRO-3 gathers tensor by tensor", unsaid="as the library has it",
                        example="on"),
    ),
    Option(
        name="reuse_numel", heading="Expert", kind=Whole(least=0), unit="elements",
        help="Elements between two uses of a tensor beyond which ZeRO-3 lets go of it.",
        more="DeepSpeed's stage3_max_reuse_distance.", resolved="strategy.reuse_numel",
        control=Control(label="Elements over which ZeRO-3 keeps a tensor", most=int(TERA),
                        example=int(GIGA)),
    ),
    Option(
        name="eager_kernels", heading="Expert", kind=Switch(), unsaid=False,
        help="Libraries load all their kernels at start, as CUDA before 11.7.",
        resolved="eager_kernels",
        control=Control(label="All kernels loaded at start", unsaid="off", example="on"),
    ),
    Option(
        name="profile", heading="Expert",
        kind=Made("simcore.hardware.profile:Profile", made_by="read_calibration"),
        help="A calibration that is not a file: what read_calibration made. Python only; elsewhere "
             "--calibration FILE says the same.",
    ),
)  # fmt: skip
