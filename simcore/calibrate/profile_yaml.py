"""The profile as YAML text: one leaf a line, a comment above each section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simcore.calibrate.assumed import SOURCES

Profile = dict[str, Any]

COMMENTS: Final[Mapping[str, str]] = {
    "": """The shipped profile: what devices reach of their datasheets, from published op tables.
Written by `python -m simcore.calibrate.op_fit`: change the tables or that module, not this file.
Whole training steps fed nothing here.
A value comes with sd_log, the standard deviation of its logarithm; n counts rows in by_gpu, devices
in by_family and pooled. Look a figure up by GPU, then by family, then pooled. Families are
architectures, but Ampere-GA100 and Blackwell (GB100) stand apart from the graphics chips, and
half-rate (GeForce: fp16_acc16 above fp16) goes before the architecture.
Left out: vLLM's products (uninitialised weights) where another source exists, grouped products.""",
    "compute_efficiency": """Share of the dense datasheet peak at burst clocks, in
start + sqrt(tc^2 + tm^2), tc = flop / (value * peak * fill), tm = bytes / (memory * bandwidth);
fill from tiles, with the last wave counted by `wave` and the depth ramp k / (k + depth)
(simcore/physics/fill.py). A pooled limit_j_per_flop (of 16 nm, 1.5 GHz) makes pooled values shares
of what power leaves, `held` of a family's devices (simcore/hardware/power.py). by_kin: all whose
matrix instructions take operands from registers (mma.sync; attention's follows power there alone)
or asynchronously (wgmma, tcgen05).
`rates_only`: rates published over many shapes at once; no table has the family.
`ramp` is the fixed time of a tile of attention, which `depth` counts in keys on one device.
  gemm_tensor16  bf16 and fp16, fp32 accumulate    gemm_tensor8, _block8, _tensor4  fp8, blockwise
  fp8 and nvfp4, after kernels that cast the input  gemm_simt32  fp32 on vector units, CDNA's on
  its matrix units (TF32: as gemm_tensor16); bmm_simt32 the same of activations alone, batched
  conv_simt32    3x3 stride 1, of what is multiplied as products or after Winograd's transforms
  (simcore/physics/winograd.py)    conv_tensor16, conv_tf32  no table
  attention      flash, forward; causal FLOP halved; against the 16-bit peak
  attention_serving, _encoder, _encoder_odd  an inference library's: copies of its inputs into a
  cache included, an encoder's, the same with head dimensions that 16 does not divide""",
    "memory_efficiency": """Share of the datasheet bandwidth: tm = bytes / (value * bandwidth), with
the traffic of unfused kernels, after start; in an eager loop no sooner than `floor`, the host's.
Of norms a row takes an SM `row` clocks at least (simcore/physics/rows.py).
Families and all devices: without the ECC that GDDR keeps in itself (simcore/hardware/ecc.py). Of
fp32 eager kernels, or of plain streams (gpu-benches) times what a class reaches of them elsewhere;
softmax_short: rows to 1024; gemm's and attention's from the fits above; _serving: kernels of
inference servers.""",
    "backward_over_forward_time": """Measured ratios of time, not of FLOP or bytes.""",
    "power": """Error of ln(eff) when each family is predicted from the others, by a constant and by
the share of the peak that power leaves (simcore/hardware/power.py).""",
    "clocks": """Time of kernels repeated for seconds over the same kernels in short bursts
(training runs sustained), of kernels under a profiler, and of a training simulator's table
(derived). tensor: matrix units; simt: vector units.""",
    "host": """Launch path: what the device and the host spend on a kernel beside its work.""",
    "collectives": """Inside one node, for groups that were not measured: latency + S/B + ramp *
sqrt(latency * S/B), S = message bytes (all-gather: the gathered output), B = value * link / bus
factor, the factor 2(n-1)/n for all_reduce and (n-1)/n for the others; keys below the collective are
ranks. link is one way: the device's NVLink or its PCIe port. Above 1 the switch itself reduces.""",
    "curves": """Measured message bytes and microseconds; between sizes a line in bytes.""",
}


def _scalar(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_scalar, value)) + "]"
    if isinstance(value, str):
        plain = value and not set(value) & set(":#{}[],&*'\"|>%@`") and not value[0].isspace()
        return value if plain else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _flow(leaf: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{k}: {_scalar(v)}" for k, v in leaf.items()) + "}"


def to_yaml(profile: Profile, sources: Mapping[str, str], name: str = "blind") -> str:
    """YAML 1.2 text: one leaf a line, a comment above each section."""
    lines = [f"# {text}" for text in COMMENTS[""].splitlines()] if name == "blind" else []
    lines += [f"name: {name}", "sources:"]
    lines += [f"  {key}: {_scalar(text)}" for key, text in sources.items()]

    def walk(node: Mapping[Any, Any], depth: int) -> None:
        pad = "  " * depth
        for key, item in node.items():
            if isinstance(item, list):
                lines.append(f"{pad}{key}:")
                lines.extend(f"{pad}  - {_flow(row)}" for row in item)
            elif isinstance(item, dict) and any(isinstance(v, dict | list) for v in item.values()):
                lines.append(f"{pad}{key}:")
                walk(item, depth + 1)
            else:
                lines.append(f"{pad}{key}: {_flow(item)}")

    for section, item in profile.items():
        lines.append("")
        lines += [f"# {text}" for text in COMMENTS.get(section, "").splitlines()]
        walk({section: item}, 0)
    return "\n".join(lines) + "\n"


def used_sources(profile: Profile) -> dict[str, str]:
    """The citations that the profile's leaves name; joined keys cite each part."""
    keys: set[str] = set()

    def walk(node: object) -> None:
        if isinstance(node, dict):
            if isinstance(node.get("source"), str):
                keys.add(node["source"])
            for item in node.values():
                walk(item)
        elif isinstance(node, list):
            for item in node:
                walk(item)

    walk(profile)
    plain = {k: SOURCES[k] for k in SOURCES if any(k in key.split("+") for key in keys)}
    joined = {k: "all of: " + ", ".join(k.split("+")) for k in sorted(keys) if "+" in k}
    return plain | joined
