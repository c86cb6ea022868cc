"""Options under the heading "Memory": what is recomputed, offloaded, held and in which width."""

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
    """Common values of ``offload``: the optimizer's states alone, or parameters too."""
    places = [p for p in get_args(looked_up("simcore.strategy.precision:OffloadTarget"))
              if p != "none"]  # fmt: skip
    return (
        "none",
        *(f"optimizer:{p}" for p in places),
        *(f"optimizer:{p},params:{p}" for p in places),
    )


DECLARED = (
    Option(
        name="recompute_modules", heading="Memory", in_launch=True,
        kind=NameList("simcore.workload.recompute:MODULES",
                      judged=True),
        help="Of selective: core_attn (default), layernorm, mlp, moe_act, moe, shared_experts, "
             "mla_up_proj, operators (default of torchtitan).",
        control=Control(label="Recomputed, of selective", group=LAYOUT_GROUP, place=1,
                        hint="core_attn,mlp", example="core_attn,mlp"),
        told_by=(r"^recompute modules?",),
    ),
    Option(
        name="recompute_layers", heading="Memory", kind=Whole(least=0), unit="layers",
        help="Recompute the first N layers only.", more="0, the default: all.", unsaid=0,
        axis=Axis(), in_launch=True, resolved="strategy.recompute_layers",
        control=Control(label="Recomputed layers", group=LAYOUT_GROUP, place=1, example=20),
    ),
    Option(
        name="offload", heading="Memory", unsaid="none",
        kind=Text(check="simcore.strategy.strategy:parse_offload", names=offloads,
                  metavar="WHAT[:WHERE]"),
        help="none, optimizer, optimizer:nvme, optimizer+params; cpu, cpu-far or nvme.",
        axis=Axis(), in_launch=True, resolved="strategy.offload",
        control=Control(label="Offload", group="Strategy", kind="select", place=3, unsaid="none",
                        example="optimizer:cpu"),
        called={"": "cpu-offload offload-optimizer zero-offload"},
        told_by=(r"has no NVMe",),
    ),
    Option(
        name="offload_layers", heading="Memory", kind=Whole(least=0), unit="layers", unsaid=0,
        help="Activations of the first N layers go to the host.",
        axis=Axis(), resolved="strategy.offload_layers",
        control=Control(label="Layers whose activations go to the host", example=8),
    ),
    Option(
        name="main_grads", heading="Memory", unsaid="weights",
        kind=Name("simcore.strategy.precision:MAIN_GRADS", metavar="WIDTH",
                  judged=True),
        help="Gradients as wide as weights (default), fused, fp32.",
        more="weights: in the weights' width; fused: and summed over micro-steps by their own "
             "products; fp32: accumulated so and reduced in fp32.",
        axis=Axis(), in_launch=True,
        control=Control(label="Main gradients", unsaid="as the library has it", example="fp32"),
        told_by=(r"main gradients",),
    ),
    Option(
        name="fp8_params", heading="Memory", kind=Switch(), unsaid=False,
        help="Layers' weights held and gathered in 8 bits.", resolved="strategy.fp8_params",
        more="Beside fp32 masters.",
        control=Control(label="Weights in 8 bits", unsaid="off", example="on"),
    ),
    Option(
        name="growing_segments", heading="Memory", kind=Switch(), unsaid=False,
        help="Allocator with expandable_segments: no fragmentation.", resolved="growing_segments",
        control=Control(label="Allocator's segments grow", unsaid="as the library has it",
                        example="on"),
    ),
    Option(
        name="software", heading="Memory", in_launch=True,
        kind=Name("simcore.strategy.programs:program_names",
                  judged=True),
        help="Training library or program: megatron (default with tp, pp, cp, ep, fp8), "
             "transformers, trl, axolotl, torchtune, deepspeed ...",
        more="Its copies, kernels and defaults. Default: megatron for language models cut by tp, "
             "pp, cp or ep, or in fp8, mxfp8 or nvfp4; else plain, PyTorch's own modules. auto: "
             "megatron for any language model.",
        resolved="strategy.software.name",
        control=Control(label="Library", unsaid="as usual for the layout", example="deepspeed"),
    ),
)  # fmt: skip
