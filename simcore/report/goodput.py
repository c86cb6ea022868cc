"""Goodput, the share of the wall time that is useful training, as text."""

from __future__ import annotations

from simcore.base.units import GIGA, format_seconds
from simcore.planning.goodput import Goodput
from simcore.report.formatting import figure, labelled, nearly_all, percent
from simcore.report.text_of import text_of


@text_of.register
def render_goodput(g: Goodput, simulated: dict[str, float] | None = None) -> str:
    """Goodput, failures, checkpoint interval and run time as text of 80 columns.

    ``simulated`` holds the run times of a simulation of the failures: runs, mean_s, p10_s, p90_s.
    """
    lines = labelled(
        "GOODPUT",
        f"{nearly_all(g.goodput_frac)} of the time on {g.cluster} ({g.n_gpus:,} GPUs) moves the "
        f"run forward: {percent(g.saving_frac)} saves, {percent(g.lost_frac)} is lost work, "
        f"{percent(g.restart_frac)} restarts"
        + (f", stragglers x{g.straggler_factor:.3f}" if g.straggler_factor > 1.0 else ""),
    )
    lines += labelled("FAILURES", f"one every {format_seconds(g.mtbf_s)}")
    lines += labelled(
        "CHECKPOINT",
        f"{figure(g.checkpoint_bytes / GIGA)} GB in {format_seconds(g.save_s)}, every "
        f"{format_seconds(g.interval_s)} (exact optimum {format_seconds(g.exact_s)}, Young "
        f"{format_seconds(g.young_s)}, Daly {format_seconds(g.daly_s)})",
    )
    if g.run_s is not None and g.run_low_high_s is not None:
        low, high = g.run_low_high_s
        lines += labelled(
            "RUN",
            f"{format_seconds(g.run_s)}, 80 % between {format_seconds(low)} and "
            f"{format_seconds(high)} (failures alone), {g.failures or 0:,.0f} failures",
        )
    if simulated is not None:
        lines += labelled(
            "SIMULATED",
            f"{simulated['runs']:.0f} runs: mean {format_seconds(simulated['mean_s'])}, "
            f"10 to 90 % {format_seconds(simulated['p10_s'])} to "
            f"{format_seconds(simulated['p90_s'])}",
        )
    for name, source in g.sources:
        lines += labelled("source", f"{name}: {source}")
    return "\n".join(lines) + "\n"
