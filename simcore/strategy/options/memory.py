"""Options under the heading "Memory": recompute, offload, and the formats of what is held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from simcore.strategy.options.kinds import looked_up
from simcore.strategy.options.option import (
    LAYOUT_GROUP,
    Axis,
    Control,
    Name,
    NameList,
    Option,
    Switch,
    Text,
    Whole,
)


def offloads() -> Sequence[str]:
    """Common values of ``offload``: optimizer states alone, or parameters too, to each place."""
    places = [p for p in get_args(looked_up("simcore.strategy.precision:OffloadTarget"))
              if p != "none"]  # fmt: skip
    return (
        "none",
        *(f"optimizer:{p}" for p in places),
        *(f"optimizer:{p},params:{p}" for p in places),
        "activations:cpu",
    )


DECLARED = (
    Option(
        name="recompute_modules", heading="Memory", in_launch=True,
        kind=NameList("simcore.workload.recompute:MODULES",
                      judged=True),
        help="Modules that --recompute selective recomputes: core_attn (default), layernorm, mlp, "
             "moe_act, moe, shared_experts, mla_up_proj, operators (default of torchtitan).",
        control=Control(label="Modules to recompute", group=LAYOUT_GROUP, place=1,
                        hint="core_attn,mlp", example="core_attn,mlp"),
        messages=(r"^recompute modules?",),
    ),
    Option(
        name="reentrant", heading="Memory", kind=Switch(), in_launch=True,
        help="Checkpoints of --recompute full are torch's reentrant ones (use_reentrant).",
        more="Default: those of the training program. Reentrant ones run a layer again to its end, "
             "others stop once all that backward needs is there; beside adapters, FSDP 1 keeps the "
             "inputs of reentrant ones and their gradients until backward ends.",
        resolved="strategy.program.recompute.reentrant",
        control=Control(label="Reentrant checkpoints", unsaid="as the library sets it",
                        example="on"),
        called={"": "use-reentrant use-reentrant-gc gradient-checkpointing-use-reentrant"},
    ),
    Option(
        name="recompute_layers", heading="Memory", kind=Whole(least=0), unit="layers",
        help="Recompute only the first N layers.", more="0, the default: all layers.", unsaid=0,
        axis=Axis(), in_launch=True, resolved="strategy.recompute_layers",
        control=Control(label="Recomputed layers", group=LAYOUT_GROUP, place=1, example=20),
    ),
    Option(
        name="offload", heading="Memory", unsaid="none",
        kind=Text(check="simcore.strategy.strategy:parse_offload", names=offloads,
                  metavar="WHAT[:WHERE]"),
        help="What moves out of GPU memory, and where to: none, optimizer, optimizer:nvme, "
             "optimizer+params, activations; places: cpu, cpu-far, nvme (activations: cpu).",
        more="activations: what layers save for backward, with recompute full their inputs; "
             "blocks:18: so many blocks of a frozen base are swapped with the host.",
        axis=Axis(), in_launch=True, resolved="strategy.offload",
        control=Control(label="Offload", group="Strategy", kind="select", place=3, unsaid="none",
                        example="optimizer:cpu", values="none,optimizer:cpu"),
        called={"": "cpu-offload offload-optimizer zero-offload"},
        messages=(r"has no NVMe",),
    ),
    Option(
        name="offload_layers", heading="Memory", kind=Whole(least=0), unit="layers", unsaid=0,
        in_launch=True,
        help="Offload the activations of the first N layers to host memory.",
        axis=Axis(), resolved="strategy.offload_layers",
        control=Control(label="Layers with offloaded activations", example=8),
    ),
    Option(
        name="main_grads", heading="Memory", unsaid="weights",
        kind=Name("simcore.strategy.precision:MAIN_GRADS", metavar="WIDTH",
                  judged=True),
        help="How gradients are held and accumulated: weights (in the data type of the weights; "
             "default), fused (the same in one buffer), fp32.",
        more="weights: one tensor per parameter, in the data type of the weights; fused: one "
             "contiguous buffer of that type, to which the matrix products of the backward pass "
             "add; fp32: such a buffer in fp32, also reduced in fp32.",
        axis=Axis(), in_launch=True,
        control=Control(label="Main gradients", unsaid="as the library sets it", example="fp32"),
        messages=(r"main gradients",),
    ),
    Option(
        name="update_in_backward", heading="Memory", kind=Switch(), unsaid=False, in_launch=True,
        help="Update each parameter as soon as backward has made its gradient, and free that.",
        more="torchtune's optimizer_in_bwd, sd-scripts' --fused_backward_pass: the gradient of one "
             "tensor exists at a time. Not with accumulation, clipping or an offloaded optimizer; "
             "the update takes as long as after backward.",
        resolved="strategy.updates_in_backward",
        control=Control(label="Update within backward", unsaid="off", example="on"),
        called={"on": "optimizer-in-bwd fused-backward-pass early-step-in-backward"},
    ),
    Option(
        name="fp8_params", heading="Memory", kind=Switch(), unsaid=False, in_launch=True,
        help="Hold and gather the layers' weights in 8 bits, with fp32 master weights.",
        resolved="strategy.fp8_params",
        control=Control(label="Weights in 8 bits", unsaid="off", example="on"),
    ),
    Option(
        name="ema", heading="Memory", kind=Switch(), in_launch=True,
        help="Keep an exponential moving average of the parameters, a whole copy on each GPU.",
        more="Default: that of the model's record.",
        resolved="strategy.ema",
        control=Control(label="Moving average (EMA)", unsaid="as the model's training loop",
                        example="on"),
        called={"on": "use-ema ema-decay model-ema moving-average"},
    ),
    Option(
        name="growing_segments", heading="Memory", kind=Switch(), unsaid=False, in_launch=True,
        help="PyTorch's allocator runs with expandable_segments, which avoids fragmentation.",
        resolved="growing_segments",
        control=Control(label="Expandable segments", unsaid="as the library sets it",
                        example="on"),
    ),
    Option(
        name="software", common=True, heading="Memory", in_launch=True,
        kind=Text(check="simcore.request.training_library:check_library",
                  names="simcore.strategy.programs:program_names", metavar="NAME"),
        axis=Axis(metavar="NAMES"),
        help="Training library or program, or a release of it (NAME@RELEASE): megatron (default "
             "with tp, pp, cp, ep, fp8), transformers, torchtune, deepspeed@2022 ...: `simcore "
             "list software`.",
        more="It determines defaults, kernels and the copies of parameters and gradients. "
             "Default: megatron for language models with tp, pp, cp or ep, or in fp8, mxfp8, "
             "nvfp4 or mxfp4; else plain (PyTorch's own modules). auto: megatron for every "
             "language model.",
        resolved="strategy.software.name",
        control=Control(label="Library", kind="select", unsaid="as usual for the layout",
                        example="deepspeed"),
    ),
)  # fmt: skip
