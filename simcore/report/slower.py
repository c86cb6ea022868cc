"""A measured step beside its prediction as text: what alone would explain the difference."""

from __future__ import annotations

from simcore.answer.slower import Slower, Suspect
from simcore.base.units import format_seconds
from simcore.report.formatting import WIDTH, figure, labelled, percent, wrapped
from simcore.report.tables import table
from simcore.report.terms import HIDDEN, time_label

#: Bounds of the words for likelihood: a normal figure is within 1.28 standard deviations in four
#: cases of five, and beyond 2.58 in one of a hundred.
_LIKELY_SD, _UNLIKELY_SD = 1.28, 2.58
#: What to look at, by resource.
_CHECKS = {
    "compute": "clocks and power limit (nvidia-smi -q -d CLOCK,PERFORMANCE); the precision that "
               "runs",
    "memory": "kernels that are not fused (--compile, --attention, norms of the model)",
    "host": "processor time of the training loop: a profiler, .item() in the loop, other jobs",
    "intra": "nvidia-smi topo -m, NCCL_P2P_DISABLE; NCCL_DEBUG=INFO names the links in use",
    "inter": "nccl-tests between nodes; NCCL_DEBUG=INFO names adapters: all of them, and GDR",
    "loader": "time of next(loader); more workers, or data nearer to the host",
}  # fmt: skip


def render_slower(s: Slower) -> str:
    """The measured and the predicted step, the suspects and what to look at."""
    t = s.predicted
    word = "slower" if s.excess_frac >= 0 else "faster"
    place = "within" if s.is_inside else "outside"
    lines = wrapped(
        f"measured {format_seconds(s.measured_s)}, predicted {format_seconds(t.value)}: "
        f"{percent(abs(s.excess_frac))} {word}, {place} its 80 % interval "
        f"({format_seconds(t.low)} to {format_seconds(t.high)})",
        WIDTH,
    )
    if s.is_inside:
        lines.append("four measurements in five lie in it: nothing has to be wrong")
    rows = [
        [x.resource, "-" if x.rate_frac is None else f"x {figure(x.rate_frac)}", _odds_of(x)]
        for x in s.suspects
    ]
    head = ["would explain it, if it had", "of its rate", "how likely"]
    lines += ["", *table(head, rows, right=(1,)).splitlines(), ""]
    least = min((x.sd for x in s.suspects if x.sd is not None), default=0.0)
    if not s.is_inside and least >= _UNLIKELY_SD:
        lines += labelled(
            "FIRST",
            "no single rate is a likely cause: compare what ran with what was predicted (batch, "
            "sequence, precision, recompute, program; --explain assumed)",
        )
    for x in s.suspects[:3]:
        if x.rate_frac is not None:
            lines += labelled("LOOK AT", f"{x.resource}: {_CHECKS[x.knob]}")
    terms = ", ".join(
        f"{time_label(k)} {format_seconds(v)}" for k, v in s.time_s.items()
        if k not in ("compute", HIDDEN) and v >= 0.005 * t.value
    )  # fmt: skip
    lines += labelled("PREDICTED", terms)
    lines += labelled(
        "THEN",
        "simcore explain-trace TRACE.json --model ... compares a torch.profiler trace",
    )
    return "\n".join(lines) + "\n"


def _odds_of(x: Suspect) -> str:
    """How likely it is that a figure is so far from what is assumed, in words."""
    if x.rate_frac is None:
        return "no: it explains less than this"
    if x.sd is None:
        return "not known"
    word = "likely" if x.sd < _LIKELY_SD else "possible" if x.sd < _UNLIKELY_SD else "unlikely"
    return f"{word}: {x.sd:.1f} standard deviations"
