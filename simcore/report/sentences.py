"""The sentences of a prediction's report, shared by the terminal and the HTML pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from simcore.answer.result import MeasuredRow, Prediction
from simcore.base.units import GIB, GIGA, KILO, format_count, format_seconds
from simcore.hardware.spec import GPUS
from simcore.memory.result import MemoryResult
from simcore.report.formatting import (
    counted,
    days,
    energy,
    figure,
    gigabytes,
    money,
    odds,
    percent,
    plural,
)
from simcore.report.terms import COMPUTE_PARTS, HIDDEN, memory_label, time_label

#: A resource is mentioned if doubling it saves at least this share of the step time.
WORTH_FRAC = 0.005


class Line(NamedTuple):
    """One term of time or memory: its name, value and share as text, and the share as a number.

    ``part`` is true for a part of ``compute``, which is a line above it.
    """

    key: str
    label: str
    text: str
    share: str
    frac: float
    part: bool = False


def what(p: Prediction) -> str:
    """The model and its size: ``Latte-XL/2, 674 M parameters``."""
    return f"{p.model_full_name}, {parameters(p)}"


def parameters(p: Prediction) -> str:
    """The number of parameters: ``674 M parameters``; with frozen ones, how many are trained."""
    trained = format_count(p.n_params)
    if not p.n_frozen_params:
        return f"{trained} parameters"
    return f"{format_count(p.n_params + p.n_frozen_params)} parameters, {trained} of them trained"


def settings(p: Prediction) -> list[str]:
    """Layout, strategy, precision, optimizer, recompute and offload; defaults are marked as such.

    An entry of ``p.defaults`` begins with the flag that it is the default of.
    """
    shown = _marker(p)
    parts = [
        *([p.layout] if p.layout else []),
        shown("strategy", "one process" if p.unwrapped else strategy(p)),
        shown("precision", p.precision),
        shown("optimizer", p.optimizer),
        shown("recompute", "no recompute" if p.recompute == "none" else "recompute " + p.recompute),
    ]
    if p.offload != "none":
        parts.append(f"offload {p.offload}")
    if rank := p.options.get("lora_rank"):
        base = p.options.get("quantised_base") or "none"
        parts.append(f"LoRA rank {rank}" + (f" on a base in {base}" if base != "none" else ""))
    return parts


def strategy(p: Prediction) -> str:
    """The strategy, and the size of its groups if it does not shard over all ranks.

    For example ``zero3 in groups of 8``.
    """
    return f"{p.strategy} in groups of {p.shard_ranks}" if p.shard_ranks else p.strategy


def _marker(p: Prediction) -> Callable[[str, str], str]:
    default = {d.split()[0] for d in p.defaults}
    return lambda flag, text: f"{text} (default)" if flag in default else text


def batch(p: Prediction) -> str:
    """The global batch as micro-batch x accumulation x GPUs (replicas, with model parallelism)."""
    shown = _marker(p)
    product = " x ".join(
        [
            shown("micro-batch", f"micro-batch {p.micro_batch:,}"),
            shown("grad-accum", f"accum {p.grad_accum:,}"),
            counted(p.data_ranks, "replica" if p.layout else noun(p)),
        ]
    )
    length = shown("seq-len", f" of {p.tokens_per_sample:,.0f} tokens") if p.tokens_per_s else ""
    of = length if "(default)" in length else ""
    return f"{product} = {counted(p.global_batch, p.sample_unit)} a step{of}"


#: Fragmentation below this share of the capacity is not mentioned.
_FRAGMENTATION_FRAC = 0.01


def noun(p: Prediction) -> str:
    """What one of a job's devices is called, such as GPU."""
    return GPUS[p.single_gpu].noun if GPUS.path(p.single_gpu) else "GPU"


def verdict(m: MemoryResult, device: str = "GPU") -> tuple[str, str]:
    """(FITS, TIGHT or NO, a sentence on how much of the device's memory the job needs).

    ``device``: what it is called. TIGHT: everything that the job holds fits, but not with the usual
    fragmentation beside it, or not with the longest of sequences whose lengths vary.
    """
    decimal = f"{gigabytes(m.device_bytes)} of {gigabytes(m.capacity_bytes)} GB a {device}"
    binary = f"({figure(m.device_bytes / GIB)} of {figure(m.capacity_bytes / GIB)} GiB)"
    lost = fragmentation(m)
    if m.tight and m.device_bytes > m.capacity_bytes:
        return "TIGHT", f"{decimal}{lost}: fits with sequences of mean length, not with the longest"
    if m.tight:
        return "TIGHT", f"{decimal}{lost}: may run out of memory (expandable segments avoid that)"
    if not m.fits:
        over = gigabytes(m.least_bytes - m.capacity_bytes)
        return "NO", f"needs {decimal} {binary}{lost}: {over} GB too much"
    text = f"{decimal} {binary}{lost}, {percent(m.margin_frac)} left"
    most = m.high_bytes + lost_bytes(m)
    if most > m.capacity_bytes:
        text += f"; tight: may need {gigabytes(most)} GB (80 % interval)"
    return "FITS", text


def fragmentation(m: MemoryResult) -> str:
    """The fragmentation of a job that fits, as in `` + 3.31 GB fragmentation``.

    Empty below ``_FRAGMENTATION_FRAC`` of the capacity.
    """
    lost = lost_bytes(m)
    is_large = lost >= _FRAGMENTATION_FRAC * m.capacity_bytes
    return f" + {gigabytes(lost)} GB fragmentation" if is_large else ""


def lost_bytes(m: MemoryResult) -> float:
    """Bytes of fragmentation: memory that the allocator reserves and can neither use nor free."""
    return m.least_bytes - m.device_bytes


def fixes(p: Prediction) -> str:
    """The changes that make a job fit, with the throughput of each; empty if it fits already."""
    if p.fits:
        return ""
    if not p.fixes:
        return "what makes it fit: nothing that was tried"
    return f"what makes it fit ({plural(p.sample_unit)}/s then): {'; '.join(p.fixes)}"


def why_none(p: Prediction) -> str:
    """Why no number of the same GPUs makes the job fit; empty if one was found."""
    if not p.why_none:
        return ""
    return f"no number of these GPUs that fits was found; nearest: {p.why_none}"


def instead(p: Prediction) -> str:
    """Ways of training adapters instead that fit, named as another kind of training; else empty."""
    if not p.instead:
        return ""
    return (
        "training adapters on frozen weights, another kind of training, fits on these GPUs"
        f" ({plural(p.sample_unit)}/s): {'; '.join(p.instead)}"
    )


def faster(p: Prediction) -> str:
    """Other strategies and batches that fit and are faster; empty if none was found."""
    units = plural(p.sample_unit)
    return "; ".join(
        f"{f.change}: {figure(f.samples_per_s)} {units}/s ({more(f.gain_frac)})" for f in p.faster
    )


def more(gain_frac: float) -> str:
    """A gain as text: ``+24 %``; from a doubling on as a factor, ``12.3 x``."""
    if gain_frac < 1.0:
        return percent(gain_frac, signed=True)
    return f"{figure(1.0 + gain_frac)} x"


def elsewhere(p: Prediction) -> str:
    """Host memory and NVMe space that the job uses per GPU; empty if it uses neither.

    Also says how much host memory a node is short of.
    """
    m = p.memory
    offloaded = [
        f"{gigabytes(n)} GB of {where}"
        for n, where in ((m.host_bytes, "host memory"), (m.nvme_bytes, "NVMe"))
        if n > 0
    ]
    if not offloaded:
        return ""
    text = f"and a {noun(p)} keeps {' and '.join(offloaded)}"
    if m.host_lack_bytes:
        text += (
            f"; its node's {gigabytes(m.host_capacity_bytes)} GB of host memory are"
            f" {gigabytes(m.host_lack_bytes)} GB too little for all of its {noun(p)}s"
        )
    return text


def interval(p: Prediction) -> str:
    """The interval of the step time: ``80 % between 830 ms and 1.71 s``."""
    t = p.step_time_s
    return f"80 % between {format_seconds(t.low)} and {format_seconds(t.high)}"


def step(p: Prediction) -> str:
    """The step time, its interval and the origin of the interval."""
    t = p.step_time_s
    return f"{format_seconds(t.value)}, {interval(p)} ({t.origin})"


def throughput(p: Prediction) -> str:
    """Samples, tokens (for text) and steps per second, and the MFU."""
    rate = f"{figure(p.samples_per_s)} {plural(p.sample_unit)}/s"
    if p.tokens_per_s is not None:
        rate += f" x {p.tokens_per_sample:,.0f} = {figure(p.tokens_per_s)} tokens/s"
    return f"{rate}, {figure(p.iter_per_s)} iter/s, MFU {percent(p.mfu_frac)}"


def work_unit(p: Prediction) -> str:
    """The unit of ``work_per_s``: tokens/s for text, else samples a second."""
    return f"{plural(p.sample_unit)}/s" if p.tokens_per_s is None else "tokens/s"


def speedup(p: Prediction) -> str:
    """The speed-up over one GPU and the scaling efficiency; empty for a job on one GPU.

    A sharded job is compared with its own ranks without communication: one GPU alone would hold and
    update all parameters.
    """
    if p.n_gpus < 2:
        return ""
    share = f"{percent(p.scaling_efficiency_frac)} scaling efficiency"
    if p.is_sharded:
        rest = "communication" + (" and bubble" if p.time_s.get("pipeline_bubble") else "")
        return f"{figure(p.speedup)} of {p.n_gpus:,} {noun(p)}s, {share} (the rest is {rest})"
    one = f"one {p.single_gpu}" + (" (the fastest)" if len(p.rank_classes) > 1 else "")
    return f"{figure(p.speedup)} x {one}, {share}"


def slowest(p: Prediction) -> str:
    """Which GPU type of a mixed cluster is slowest, and what another split of the batch would gain.

    Empty if all GPUs are of one type.
    """
    if len(p.rank_classes) < 2:
        return ""
    slow = max(p.rank_classes, key=lambda c: c.compute_s)
    fast = min(p.rank_classes, key=lambda c: c.compute_s)
    busy = (
        f"{slow.gpu} ({slow.n_gpus:,} of {p.n_gpus:,}): {format_seconds(slow.compute_s)} of "
        f"compute a step, {fast.gpu} {format_seconds(fast.compute_s)}"
    )
    if p.uneven:
        deal = p.uneven[0]
        return (
            f"{busy}; {deal.resource}: {format_seconds(deal.step_time_s)} "
            f"({percent(-deal.gain_frac, signed=True)})"
        )
    if len({c.micro_batch for c in p.rank_classes}) > 1:
        dealt = ", ".join(f"{c.gpu} {c.micro_batch}" for c in p.rank_classes)
        return f"{busy}; samples a GPU: {dealt}"
    gain = f"{busy}; an uneven split would gain {percent(p.uneven_split_gain_frac)}"
    # With one sample per GPU no uneven split is possible.
    return f"{gain} (from micro-batch 2 on)" if p.micro_batch == 1 else gain


def stages(p: Prediction) -> str:
    """The slowest and the fullest pipeline stage; empty unless the layers per stage were chosen."""
    if "stages" not in p.layout:
        return ""
    slow = max(p.stages, key=lambda s: s.micro_step_s)
    fast = min(p.stages, key=lambda s: s.micro_step_s)
    full = max(p.stages, key=lambda s: s.memory_bytes)
    return (
        f"slowest is stage {slow.first} with {slow.layers} layers: "
        f"{format_seconds(slow.micro_step_s)} a micro-batch (fastest "
        f"{format_seconds(fast.micro_step_s)}); fullest is stage {full.first}: "
        f"{gigabytes(full.memory_bytes)} GB"
    )


def run(p: Prediction) -> str:
    """Time, cost and energy of the whole run; empty unless its length was given."""
    r = p.run
    if r is None:
        return ""
    t = r.time_s
    tokens = f"{format_count(r.tokens)} tokens = " if r.tokens else ""
    parts = [
        f"{days(t.value)} for {tokens}{r.steps:,.0f} steps "
        f"(80 %: {days(t.low)} to {days(t.high)})",
        "price unknown (--price GPU=DOLLARS)" if r.cost_usd is None else
        f"{money(r.cost_usd)} ({money(r.cost_usd * t.low / t.value)} to "
        f"{money(r.cost_usd * t.high / t.value)})",
        *([energy(r.energy_kwh)] if r.energy_kwh is not None else []),
    ]  # fmt: skip
    if r.deadline_prob is not None and r.deadline_s is not None:
        parts.append(f"{odds(r.deadline_prob)} likely to end within {days(r.deadline_s)}")
    return f"{', '.join(parts)}; without failures (simcore goodput)"


def cost(p: Prediction) -> str:
    """Dollars an hour, and dollars and energy for a million tokens or samples; "" if not asked."""
    c = p.cost
    if c is None:
        return ""
    units = plural(c.unit)
    if c.usd_per_h is None or c.usd_per_million is None:
        return f"price unknown: give --price {p.single_gpu}=DOLLARS"
    used = "" if c.kwh_per_million is None else f" and {energy(c.kwh_per_million)}"
    return (
        f"{money(c.usd_per_h)} an hour, {money(c.usd_per_million)}{used} a million {units}"
        f" ({'; '.join(c.sources)})"
    )


def gains(p: Prediction) -> list[str]:
    """The step time with twice of each resource that saves at least ``WORTH_FRAC``.

    At most three resources, in the order of ``p.what_if``, best first.
    """
    worth = [w for w in p.what_if if w.gain_frac >= WORTH_FRAC][:3]
    binding = "of both" if " and " in p.bound_by else "of it"
    return [
        f"x2 {binding if w.resource == p.bound_by else w.resource}: "
        f"{format_seconds(w.step_time_s)} ({percent(-w.gain_frac, signed=True)})"
        for w in worth
    ]


def bound(p: Prediction) -> str:
    """What binds, and what twice of the best resources would gain."""
    return "; ".join([p.bound_by, *gains(p)])


def advice(p: Prediction) -> list[str]:
    """The sentences on what makes a job fit; empty if it fits."""
    return [sentence for sentence in (fixes(p), why_none(p), instead(p)) if sentence]


def warning(p: Prediction) -> str:
    """What is predicted otherwise than it was given; empty if everything is as given."""
    return "; ".join(p.warnings)


#: What is said only of a prediction that was asked for it.
ASKED: tuple[tuple[str, Callable[[Prediction], str], int | None], ...] = (
    ("run", run, 4), ("cost", cost, 3),
)  # fmt: skip
#: What is said of a prediction: label, its sentence ("" if there is none), and the largest number
#: of lines that it takes in the terminal. First what stands above the breakdown, then what follows.
FACTS: tuple[tuple[str, Callable[[Prediction], str], int | None], ...] = (
    ("warning", warning, 5), ("step", step, 3), ("throughput", throughput, None),
    ("speed-up", speedup, 2), ("slowest", slowest, 2), ("stages", stages, 2), *ASKED,
)  # fmt: skip
LIMITS: tuple[tuple[str, Callable[[Prediction], str], int | None], ...] = (
    ("bound by", bound, 3), ("faster", faster, 2),
)  # fmt: skip


def time_lines(p: Prediction) -> list[Line]:
    """The terms of the step time in the order of the step, without those that round to zero."""
    total = p.step_time_s.value
    unit, scale = ("s", 1.0) if total >= 2.0 else ("ms", 1.0 / KILO)
    digits = 1 if total / scale >= 10 else 2
    least = 0.5 * scale / 10.0**digits
    terms = {k: v for k, v in p.time_s.items() if v >= least}
    if sum(k in terms for k in COMPUTE_PARTS) == 1:  # the sum would repeat its only part
        terms.pop("compute", None)
    return [
        Line(
            key,
            time_label(key),
            f"{seconds / scale:,.{digits}f} {unit}",
            "-" if key == HIDDEN else percent(seconds / total),
            seconds / total,
            key in COMPUTE_PARTS and "compute" in terms,
        )
        for key, seconds in terms.items()
    ]


def memory_lines(p: Prediction, limit: int | None = None) -> list[Line]:
    """The terms of the peak memory, largest first, without those that round to zero.

    With ``limit`` there are at most that many lines; the last one sums up the smaller terms.
    """
    total = p.memory.device_bytes
    digits = 1 if total >= 100 * GIGA else 2
    least = 0.5 * GIGA / 10.0**digits
    terms = sorted(((k, v) for k, v in p.memory.terms.items() if v >= least), key=lambda t: -t[1])
    shown = [(k, memory_label(k), v) for k, v in terms]
    if limit is not None and len(terms) > limit:
        rest = terms[limit - 1 :]
        smaller = ("rest", f"{len(rest)} smaller terms", sum(v for _, v in rest))
        shown = [*shown[: limit - 1], smaller]
    return [
        Line(key, name, f"{v / GIGA:,.{digits}f} GB", percent(v / total), v / total)
        for key, name, v in shown
    ]


def _measured_value(row: MeasuredRow, value: float) -> str:
    if "memory" in row.quantity or row.quantity.endswith("bytes"):
        return f"{gigabytes(value)} GB"
    if "time" in row.quantity or (row.quantity.endswith("_s") and "_per_" not in row.quantity):
        return format_seconds(value)
    return figure(value)


def measured(row: MeasuredRow) -> str:
    """One measurement of the same set-up, the predicted value, the error and the source."""
    name = row.quantity.removesuffix("_s").removesuffix("_bytes").replace("_", " ")
    return (
        f"{name} {_measured_value(row, row.measured)}, predicted "
        f"{_measured_value(row, row.predicted)} ({percent(row.error_frac, signed=True)}), "
        f"{row.source}{'; ' + row.note if row.note else ''}"
    )
