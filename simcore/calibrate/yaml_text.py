"""Profiles, calibrations and records as YAML text: blocks of mappings, one figure on each line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from simcore.base.atomic import write_text
from simcore.base.figures import Part
from simcore.base.units import MIB, MICRO
from simcore.calibrate.ops.assumed import SOURCES
from simcore.hardware.calibrations import Calibration, FittedBytes, FittedTime

#: Characters that have a meaning in YAML, and words that YAML does not read as text.
_MARKS: Final = frozenset(":#{}[],&*'\"|>%@`")
_WORDS: Final = ("true", "false", "yes", "no", "on", "off", "null", "~")
_NUMBER_OR_DATE: Final = re.compile(r"[-+.\d][-+.:\de]*")


def yaml_text(data: Mapping[Any, Any], comments: Mapping[str, str] | None = None) -> str:
    """The data as YAML 1.2, numbers with four digits.

    ``comments``: key -> text above it, which also gets a blank line before; "" at the top.
    """
    notes = comments or {}
    lines = _comment(notes.get("", ""))
    for key, item in data.items():
        if comments is not None and _nested(item) and key != "sources":
            lines += ["", *_comment(notes.get(key, ""))]
        lines += _entry(key, item, "", block=key == "sources")
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in text.splitlines()]


def _entry(key: object, item: Any, pad: str, *, block: bool = False) -> Iterator[str]:
    """The lines of one key: a mapping of figures as a block, as is a list of mappings."""
    if isinstance(item, Mapping) and (block or any(_nested(v) for v in item.values())):
        yield f"{pad}{key}:"
        for name, value in item.items():
            yield from _entry(name, value, pad + "  ")
    elif isinstance(item, list) and any(isinstance(v, Mapping) for v in item):
        yield f"{pad}{key}:"
        yield from (f"{pad}  - {_flow(row)}" for row in item)
    else:
        yield f"{pad}{key}: {_flow(item)}"


def _nested(value: Any) -> bool:
    return isinstance(value, Mapping | list)


def _flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str):
        return value if _needs_no_quotes(value) else json.dumps(value, ensure_ascii=False)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _needs_no_quotes(text: str) -> bool:
    starts_well = bool(text) and text[0] not in " \t-?!"
    return starts_well and not (
        _MARKS & set(text) or text.lower() in _WORDS or _NUMBER_OR_DATE.fullmatch(text)
    )


HEAD: Final = """\
# The measured figures of one machine, from `simcore calibrate` (docs/calibration.md).
# ..._over_blind: measured rate over that of the shipped profile (of the start: time over time).
# ..._efficiency: share of the peak in the device's record; others are times with their unit.
# sd_log: standard deviation of the logarithm. rows: measurements in the fit, over the range
# `valid`. leave_one_out_mape_frac: mean error of rows left out of the fit. knobs: multipliers
# fitted to whole steps. checked: steps that the fit had not seen. residual_sd_log: standard
# deviation of ln(step time) for another network; residual_over_blind: the same over the shipped.
# pulses_s: seconds of short benchmarks that tell the device's speed at which the figures hold.
"""


#: The fields of a calibration in the order of the file.
_FIELDS: Final = ("name", "origin", "rows", "residual_sd_log", "residual_over_blind",
                  "leave_one_out_mape_frac", "conditions", "pulses_s", "notes", "checked", "knobs",
                  "measured")  # fmt: skip


def _plain(value: Any) -> Any:
    """Records as mappings without blank fields; floats in four digits, quantities as text."""
    if isinstance(value, Part):
        found = {k: _plain(v) for k, v in vars(value).items()
                 if v is not None and (k == "knobs" or v not in ("", (), {}))}  # fmt: skip
        if isinstance(value, FittedTime):
            found["value"] = f"{value.value / MICRO:.4g} us"
        if isinstance(value, FittedBytes):
            found["value"] = f"{value.value / MIB:.4g} MiB"
        return found
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def profile_data(record: Calibration) -> dict[str, Any]:
    """The record as plain data, in the order of the file."""
    plain = _plain(record)
    return {name: plain[name] for name in _FIELDS if name in plain}


def write_profile(path: Path, record: Calibration, head: str = HEAD) -> None:
    """Write the record to ``path`` atomically, making its folder if needed. Raises OSError.

    The first line says it if predictions are worse with the calibration than without.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if record.warning:
        head = f"# {record.warning}.\n{head}"
    write_text(path, head + yaml_text(profile_data(record)))


Profile = dict[str, Any]

#: Section -> the comment above it; "" is the comment at the top of ``blind.yaml``.
COMMENTS: Final[Mapping[str, str]] = {
    "": """The shipped profile: shares of datasheets that devices reach, from published op tables.
Written by `python -m simcore.calibrate.ops.fit`: change the tables or that module, not this file.
No measurements of whole training steps are used.
sd_log is the standard deviation of a value's logarithm. n counts rows in by_gpu, devices in
by_family and pooled. A figure is looked up by GPU, then by family, then pooled. Families are
architectures, except that Ampere-GA100 and Blackwell (GB100) are separate from the graphics chips
of their architectures, and that half-rate (GeForce: fp16_acc16 above fp16) precedes the
architecture. Left out: vLLM's products (uninitialised weights) if another source exists, and
grouped products.""",
    "compute_efficiency": """Share of the dense datasheet peak at burst clocks. The time is
start + sqrt(tc^2 + tm^2), tc = flop / (value * peak * fill), tm = bytes / (memory * bandwidth).
fill is from tiles; `wave` weighs the last wave, and the depth k counts as k / (k + depth)
(simcore/physics/fill.py). With a pooled limit_j_per_flop (at 16 nm, 1.5 GHz), pooled values are
shares of the peak that the power limit allows; `held` is that peak's share of the datasheet's for
a family's measured devices (simcore/hardware/class_figures.py). by_kin: devices by their matrix
instructions, with operands from registers (mma.sync; the only ones on which attention follows the
power limit) or asynchronous (wgmma, tcgen05).
`rates_only`: from rates published over many shapes at once; the family is in no table.
`ramp` is the fixed time of a tile of attention; `depth` is that time as keys on one device.
  gemm_tensor16     bf16 and fp16, fp32 accumulation
  gemm_tensor8, gemm_block8, gemm_tensor4  fp8, block-scaled fp8 and nvfp4; kernels that cast the
                    input run before
  gemm_simt32       fp32 on vector units (on CDNA's matrix units); TF32 is as gemm_tensor16
  bmm_simt32        the same for batched products of activations
  conv_simt32       convolutions 3x3 of stride 1, as products or by Winograd's algorithm
                    (simcore/physics/fill.py)
  conv_tensor16, conv_tf32  in no table
  attention         flash attention, forward; causal FLOP halved; share of the 16-bit peak
  attention_serving, attention_encoder, attention_encoder_odd  of an inference library: attention of
                    a decoder with copies of its inputs into a cache, of an encoder, and of an
                    encoder with head dimensions that are no multiples of 16""",
    "memory_efficiency": """Share of the datasheet bandwidth. The time is start + bytes / (value *
bandwidth) with the traffic of unfused kernels; in an eager loop it is at least `floor`, which the
host sets. Norms take an SM at least `row` clocks per row (simcore/physics/kernel.py).
Figures of families and pooled ones are without inline ECC of GDDR
(simcore/hardware/class_figures.py). They are from fp32 eager kernels, or from plain streams
(gpu-benches) times the ratio of the class to streams on other devices. softmax_short: rows up to
1024; gemm and attention: from the fits above;
_serving: kernels of inference servers.""",
    "backward_over_forward_time": """Measured ratios of time, not of FLOP or bytes.""",
    "power": """Error of ln(eff) with each family predicted from the others, by a constant and by
the share of the peak that the power limit allows (simcore/hardware/class_figures.py).""",
    "clocks": """Time of kernels over that of the same kernels in short bursts: repeated for seconds
(sustained, as in training), under a profiler (profiled), and in a training simulator's table
(derived). tensor: matrix units; simt: vector units.""",
    "host": """Overhead of a kernel on the device and on the host, besides its work.""",
    "cards": """Rates that the project's own benchmarks of cards found over those above, at burst
clocks; of the start: time over time. `memory.` precedes kinds of kernel. For that GPU alone
(simcore/calibrate/ops/card_figures.py).""",
    "collectives": """Inside one node, for groups that were not measured: latency + S/B + ramp *
sqrt(latency * S/B). S is the message in bytes (all-gather: the gathered output), B = value * link
/ bus factor; the bus factor is 2(n-1)/n for all_reduce and (n-1)/n for the others. Keys below the
collective are ranks. link is one direction of the device's NVLink or PCIe port. A value above 1
means that the switch reduces.""",
    "expert_layers": """Forward expert layers of inference libraries at burst clocks, a class
for each kernel, library and dtype (simcore/calibrate/experts/rows.py); the formula is in
simcore/physics/expert_layer.py. value: share of the peak that the power limit allows; memory: share
of what the datasheet bandwidth and 64 bytes a clock of each SM give one after the other; loaded:
operands that an SM loads from the cache, over 64 bytes a clock times the SMs that share each load;
wave: weight of the last wave; moved_ps, token_ps: the instructions' picoseconds of a byte of rows
that are sorted, activated or summed, and of tokens that are quantised or summed, choice_ps of a
choice, row_ps of a row in each of those kernels: Triton's beside memory's, others' at the clocks of
a B200.
sd_log: of large layers. any: all kernels of a dtype.""",
    "curves": """Measured message sizes in bytes, times in microseconds; linear between sizes.""",
}


def to_yaml(profile: Profile, sources: Mapping[str, str], name: str = "blind") -> str:
    """The profile as YAML 1.2 text: one figure per line, a comment above each section.

    ``sources`` are the citations by key.
    """
    head = COMMENTS if name == "blind" else {**COMMENTS, "": ""}
    return yaml_text({"name": name, "sources": sources, **profile}, head)


def used_sources(profile: Profile) -> dict[str, str]:
    """Key -> citation of the sources that the profile's figures name.

    A joined key such as ``aic+vidur`` gets an entry that lists its parts.
    """
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
