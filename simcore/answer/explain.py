"""Explanations of the terms of a prediction: formula, inputs and source of each.

A term is computed only when it is requested, so that a prediction does not pay for explanations.
"""

from __future__ import annotations

from simcore.answer.collective_choice import Chosen, chosen_collectives
from simcore.answer.explain_facts import Derivation, Explainer, Facts
from simcore.answer.explain_memory import MEMORY_TERMS
from simcore.answer.explain_time import TIME_TERMS
from simcore.answer.predict import N_SAMPLES, RESOURCES
from simcore.answer.residual import step_residual
from simcore.answer.result import Explanation, Prediction
from simcore.base.errors import UsageError, nearest
from simcore.base.units import GIGA, PERCENT, TERA, format_seconds, format_si
from simcore.memory.result import HOLES
from simcore.request.resolved import Request
from simcore.timing.peaks import product_peak_for
from simcore.timing.rates import knob_spread_of

#: What each part of the residual (``answer.residual.PARTS``) stands for.
RESIDUAL_WORDS = {
    "any": "any step",
    "unlayered": "work outside equal layers",
    "timed": "a step of kernels that were all timed",
    "unnamed": "training program not named",
    "assumed": "training library of the layout assumed",
    "foreign": "no measured kernels of the GPU's family",
    "old_libraries": "libraries before CUDA 11.7",
    "routed": "routed experts",
}


def _step_time(f: Facts) -> Derivation:
    t = f.result.time_s
    shown = sorted(
        ((k, v) for k, v in t.items() if k not in ("compute", "communication_hidden") and v > 0),
        key=lambda item: -item[1],
    )
    return Derivation(
        "end of the last task, where every task starts as soon as its stream is free and the tasks "
        "that it depends on are done; or the time to load the data, if that is longer",
        tuple((k, format_seconds(v)) for k, v in shown[:8]),
        f.result.step_time_s.origin,
    )


def _interval(f: Facts) -> Derivation:
    profile, cluster, workload = f.request.profile, f.request.cluster, f.request.workload
    spread = knob_spread_of(profile, cluster, f.request.strategy.precision, workload)
    residual = step_residual(f.request)
    return Derivation(
        f"10th and 90th percentile of {N_SAMPLES} predictions (Latin hypercube) that draw each "
        "uncertain figure from a log-normal distribution, added in quadrature to the residual "
        "error of whole steps (log-normal too)",
        (
            *((f"sd of ln({k})", f"{v:.3g}") for k, v in spread.items() if v),
            ("residual", f"{residual.sd_log:.3g}"),
            *((f"residual, {RESIDUAL_WORDS[k]}", f"{v:.3g}") for k, v in residual.parts),
        ),
        f"{f.result.step_time_s.origin}; residual: {f.cite(residual.estimate)}",
    )


def _speedup(f: Facts) -> Derivation:
    p = f.result
    if p.is_sharded:
        waits = ("communication_exposed", "pipeline_bubble")
        return Derivation(
            "efficiency = 1 - (exposed communication + pipeline bubble) / step: a rank without "
            "these has the same shards' work; speed-up = efficiency x GPUs",
            (
                *((k, format_seconds(p.time_s[k])) for k in waits if k in p.time_s),
                ("step", format_seconds(p.step_time_s.value)),
                ("GPUs", f"{p.n_gpus:,}"),
                ("efficiency", f"{p.scaling_efficiency_frac * PERCENT:.1f} %"),
                (
                    f"over one {p.single_gpu}, which would hold everything",
                    f"{p.speedup_vs_1gpu:.4g}",
                ),
            ),
            "definition",
        )
    return Derivation(
        "samples/s of the job / samples/s of one GPU of the fastest type with the same batch; "
        "efficiency = samples/s of the job / sum of the samples/s of every GPU alone",
        (
            ("job", f"{p.samples_per_s:.4g} {p.sample_unit}/s"),
            (f"one {p.single_gpu}", f"{p.samples_per_s / p.speedup_vs_1gpu:.4g} {p.sample_unit}/s"),
            ("GPUs", f"{p.n_gpus:,}"),
            ("efficiency", f"{p.scaling_efficiency_frac * PERCENT:.1f} %"),
        ),
        "definition",
    )


#: Why MFU may exceed one.
_WINOGRAD = "; convolutions count all products, of which Winograd's kernels in fp32 need fewer"


def _mfu(f: Facts) -> Derivation:
    p, w = f.result, f.request.workload
    name, peak = product_peak_for(f.rates.gpu, f.request.strategy.precision)
    gpu, own = f.rates.gpu, f.conv_peak
    mixed = own != f.peak and w.cudnn_frac > 0
    return Derivation(
        "samples/s x (3 x forward FLOP + frozen FLOP) a sample / sum of the dense peaks"
        + ("; experts: FLOP of the routed tokens, without padding" if w.uneven_flop else "")
        + (_WINOGRAD if w.conv_frac and own[0] == "fp32" else ""),
        (
            ("samples/s", f"{p.samples_per_s:.4g}"),
            ("forward", f"{format_si(w.forward_flop - w.uneven_flop, 'FLOP')} a sample"),
            ("frozen", f"{format_si(w.frozen_flop, 'FLOP')} a sample"),
            *(
                [
                    (
                        "frozen weights",
                        f"{format_si(w.frozen_weight_flop, 'FLOP')} less: they have no gradients",
                    )
                ]
                if w.frozen_weight_flop
                else []
            ),
            (f"peak {name}", f"{format_si(peak, 'FLOP/s')} ({gpu.name})"),
            *(
                [
                    (
                        f"peak {own[0]}",
                        f"{format_si(own[1], 'FLOP/s')}, for what cuDNN computes: "
                        f"{w.cudnn_frac:.1%} of the FLOP; both together "
                        f"{f.rates.peak_of(w.cudnn_frac) / TERA:.4g} TFLOP/s",
                    )
                ]
                if mixed
                else []
            ),
            ("GPUs", f"{p.n_gpus:,}"),
        ),
        f"PaLM (Chowdhery et al. 2022, appendix B); {f.datasheet(gpu.peak_flop_per_s[name])}",
    )


def _bound_by(f: Facts) -> Derivation:
    return Derivation(
        "the resource whose doubling shortens the step most; two resources where doubling both "
        "gains at least three times as much as doubling either one; fixed costs where no doubling "
        "gains 1 %; the pipeline bubble where it is the longest term of the step",
        tuple(
            (w.resource, f"{format_seconds(w.step_time_s)}, {w.gain_frac * PERCENT:.1f} % less")
            for w in f.result.what_if
        ),
        f"the step with each of {len(RESOURCES)} resources, and each pair, doubled",
    )


def _collectives(f: Facts) -> Derivation:
    found = chosen_collectives(f.request)
    s = f.request.strategy
    held = [str(words) for words in (s.nccl.algorithms, s.nccl.protocols) if words]
    return Derivation(
        "for each message the fastest of NCCL's algorithms and protocols: latency + bytes / rate "
        "+ ramp x sqrt(latency x bytes / rate)"
        + (f"; restricted to {', '.join(held)}" if held else ""),
        tuple(
            row
            for c in found
            for row in ((f"{c.dimension} {c.op}", _choice(c)), ("  gets", c.limit))
            if row[1]
        ),
        "NCCL 2.30, src/graph/tuning.cc (physics/collectives/nccl.py); docs/model.md, Collectives",
    )


def _choice(c: Chosen) -> str:
    """Such as ``26.2 MB 2x8: NVLSTree Simple 245 us; Ring x1.5``, the next algorithm last."""
    algorithm, protocol, seconds = c.ways[0]
    name = " ".join(filter(None, (algorithm, protocol)))
    where = f"{c.n_nodes}x{c.n_ranks // c.n_nodes}"
    text = f"{format_si(c.n_bytes, 'B')} {where}: {name} {format_seconds(seconds)}"
    others = [w for w in c.ways[1:] if w[0] != algorithm]
    if others:
        text += f"; {others[0][0]} x{others[0][2] / seconds:.3g}"
    return text


HEADLINES: dict[str, Explainer] = {
    "step_time": _step_time,
    "interval": _interval,
    "speedup": _speedup,
    "mfu": _mfu,
    "bound_by": _bound_by,
    "collectives": _collectives,
}
#: Every term that can be explained, by its full name.
TERMS: dict[str, Explainer] = {
    **HEADLINES,
    **{f"time.{k}": teller for k, teller in TIME_TERMS.items()},
    **{f"memory.{k}": teller for k, teller in MEMORY_TERMS.items()},
}
#: Seconds below which a difference of step times is rounding.
_NOISE_S = 1e-12
#: Other names of terms that users type: those of the report and of the JSON.
ALIASES = {
    "step": "step_time",
    "scaling": "speedup",
    "speed_up": "speedup",
    "scaling_efficiency": "speedup",
    "scaling_efficiency_frac": "speedup",
    "speedup_vs_1gpu": "speedup",
    "step_time_s": "step_time",
    "mfu_frac": "mfu",
    "memory": "memory.device",
    "fits": "memory.device",
    "fragmentation": "memory.device",
    "throughput": "step_time",
    "samples_per_s": "step_time",
    "tokens_per_s": "step_time",
    "data_loading": "time.loader",
    "bubble": "time.pipeline_bubble",
    "comm._exposed": "time.communication_exposed",
    "comm._hidden": "time.communication_hidden",
}


def find_terms(text: str) -> list[str]:
    """Full names of the terms that ``text`` may mean, best match first.

    ``text``: a full name, the name within its group (``activations``), or the beginning of either
    (``comm``, ``memory.act``). Raises UsageError with the nearest name, or with all known terms.
    """
    if not isinstance(text, str):
        raise UsageError(f"term must be text such as step_time or comm, not {text!r:.60}")
    wanted = text.strip().lower().replace("-", "_").replace(" ", "_")
    for prefix, meant in (("step.", "time."), ("time_s.", "time."), ("memory_bytes.", "memory."),
                          ("memory.terms.", "memory.")):  # fmt: skip
        if wanted.startswith(prefix):
            wanted = meant + wanted.removeprefix(prefix)
    wanted = ALIASES.get(wanted, wanted)
    if wanted in TERMS:
        return [wanted]
    tail = {name: name.partition(".")[2] or name for name in TERMS}
    exact = [name for name in TERMS if tail[name] == wanted]
    begins = [n for n in TERMS if wanted and (n.startswith(wanted) or tail[n].startswith(wanted))]
    found = list(dict.fromkeys([*exact, *begins]))
    if found:
        return found
    groups = [name.partition(".")[0] for name in TERMS]
    names = list(dict.fromkeys([*groups, *TERMS, *tail.values()]))
    near = nearest(wanted, names, 1) if wanted else []
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(TERMS)}"
    raise UsageError(f"unknown term {text!r}: {hint}")


def _value(term: str, facts: Facts) -> str:
    group, _, key = term.partition(".")
    p = facts.result
    step = p.step_time_s
    if group == "time":
        seconds = p.time_s.get(key, 0.0)
        seconds = seconds if seconds > _NOISE_S else 0.0
        return f"{format_seconds(seconds)}, {seconds / step.value * PERCENT:.1f} % of the step"
    if group == "memory":
        device = p.memory.device_bytes
        terms = p.memory.shown_terms if key == HOLES else p.memory.terms
        n_bytes = device if key == "device" else terms.get(key, 0.0)
        return f"{n_bytes / GIGA:.3f} GB, {n_bytes / device * PERCENT:.1f} % of the peak"
    if term == "step_time":
        return format_seconds(step.value)
    if term == "collectives":
        return f"{format_seconds(facts.collectives_s)} a step, hidden time included"
    if term == "interval":
        return f"{format_seconds(step.low)} to {format_seconds(step.high)} (80 %)"
    if term == "speedup":
        return f"{p.speedup:.4g}"
    return f"{p.mfu_frac * PERCENT:.1f} %" if term == "mfu" else p.bound_by


def listed(request: Request, result: Prediction) -> list[tuple[str, str]]:
    """(term, value) of the terms that this job has, in order: those of time and memory above zero.

    Communication that computation hides is the last of time.
    """
    facts = Facts(request, result)
    has = {
        **{f"time.{k}": v > _NOISE_S for k, v in result.time_s.items()},
        **{f"memory.{k}": v > 0 for k, v in result.memory.shown_terms.items()},
        "memory.device": True,
        **dict.fromkeys(HEADLINES, True),
        "collectives": result.n_gpus > 1,
        "speedup": result.n_gpus > 1,
    }
    return [(term, _value(term, facts)) for term in TERMS if has.get(term)]


def explain(request: Request, result: Prediction, term: str) -> Explanation:
    """The explanation of the best match of ``term``. Raises UsageError for an unknown term."""
    name = find_terms(term)[0]
    facts = Facts(request, result)
    derivation = TERMS[name](facts)
    return Explanation(
        term=name,
        value=_value(name, facts),
        formula=derivation.formula,
        inputs=derivation.inputs,
        source=derivation.source,
    )
