"""Goodput, and a queue of jobs, as labelled facts: the same ones in the text and in a card."""

from __future__ import annotations

from simcore.base.units import GIGA, HOUR, format_seconds
from simcore.planning.fleet import Fleet
from simcore.planning.goodput import Goodput
from simcore.report.formatting import Facts, counted, figure, labelled, nearly_all, percent
from simcore.report.text_of import text_of


def goodput_facts(g: Goodput, simulated: dict[str, float] | None = None) -> Facts:
    """Goodput, failures, checkpoint interval and run time.

    ``simulated`` holds the run times of a simulation of the failures: runs, mean_s, p10_s, p90_s.
    """
    facts = [
        (
            "goodput",
            f"{nearly_all(g.goodput_frac)} of the time on {g.cluster} ({g.n_gpus:,} GPUs) is "
            f"useful training; writing checkpoints {percent(g.saving_frac)}, work done again after "
            f"failures {percent(g.lost_frac)}, restarts {percent(g.restart_frac)}"
            + (f", stragglers x{g.straggler_factor:.3f}" if g.straggler_factor > 1.0 else ""),
        ),
        ("failures", f"one every {format_seconds(g.mtbf_s)}"),
        (
            "checkpoint",
            f"{figure(g.checkpoint_bytes / GIGA)} GB in {format_seconds(g.save_s)}, every "
            f"{format_seconds(g.interval_s)} (exact optimum {format_seconds(g.exact_s)}, Young "
            f"{format_seconds(g.young_s)}, Daly {format_seconds(g.daly_s)})",
        ),
    ]
    if g.run_s is not None and g.run_low_high_s is not None:
        low, high = map(format_seconds, g.run_low_high_s)
        facts.append((
            "run",
            f"{format_seconds(g.run_s)}, 80 % between {low} and {high} (failures alone), "
            f"{g.failures or 0:,.0f} failures",
        ))  # fmt: skip
    if simulated is not None:
        mean, p10, p90 = (format_seconds(simulated[k]) for k in ("mean_s", "p10_s", "p90_s"))
        runs = f"{simulated['runs']:.0f} runs: mean {mean}, 10 to 90 % {p10} to {p90}"
        facts.append(("simulated", runs))
    return facts


@text_of.register
def render_goodput(g: Goodput, simulated: dict[str, float] | None = None) -> str:
    """The facts and their sources as text of 80 columns; ``simulated`` as in ``goodput_facts``."""
    lines = [x for k, text in goodput_facts(g, simulated) for x in labelled(k.upper(), text)]
    sources = [x for name, source in g.sources for x in labelled("source", f"{name}: {source}")]
    return "\n".join([*lines, *sources]) + "\n"


def fleet_facts(f: Fleet) -> Facts:
    """Jobs, utilisation, waiting times and preemptions of a fleet."""
    waits = ", ".join(f"p{q} {format_seconds(f.wait_s(q / 100))}" for q in (50, 90, 95, 99))
    end = format_seconds(f.makespan_s)
    facts = [
        (
            "fleet",
            f"{counted(len(f.done), 'job')} on {f.gpus:,} GPUs, {f.policy}, {end} until the last "
            "ends",
        ),
        ("used", f"{percent(f.utilisation_frac)} of all GPU time"),
        ("wait", f"mean {format_seconds(f.mean_wait_s)}, {waits}"),
    ]
    if f.preemptions:
        lost = f"{figure(f.lost_gpu_s / HOUR)} GPU-hours lost"
        facts.append(("preempted", f"{f.preemptions:,} times, {lost}"))
    return facts


@text_of.register
def render_fleet(f: Fleet) -> str:
    """The facts as text of 80 columns."""
    return "\n".join(x for k, text in fleet_facts(f) for x in labelled(k.upper(), text)) + "\n"
