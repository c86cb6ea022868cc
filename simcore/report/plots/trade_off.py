"""A plan's options: time to train against cost, and the Pareto front of what meets all limits."""

from __future__ import annotations

from simcore.base.units import DAY, KILO
from simcore.planning.planner import Option, Plan
from simcore.report.plots.canvas import (
    BLUE,
    INK,
    SMALL,
    VERMILION,
    Drawing,
    canvas,
    finish,
    nothing,
    single,
)


def draw(plan: Plan) -> Drawing:
    """One mark per option over time and cost, or GPUs if a price is missing; limits are dashed."""
    shown = [*plan.front, *plan.best]
    if not shown:
        return nothing(canvas(), "nothing meets all limits")
    figure, axes = single()
    priced = all(o.cost_usd is not None for o in shown)

    def at(o: Option) -> tuple[float, float]:
        other = o.cost_usd / KILO if priced and o.cost_usd is not None else float(o.n_gpus)
        return o.time_s / DAY, other

    front = [at(o) for o in plan.front]
    axes.step([x for x, _ in front], [y for _, y in front], where="post", color="black",
              linewidth=1.6, zorder=3, label="Pareto front of what meets all limits")  # fmt: skip
    axes.plot([x for x, _ in front], [y for _, y in front], "o", markersize=5,
              markerfacecolor="white", markeredgecolor=INK, zorder=4)  # fmt: skip
    best = [at(o) for o in plan.best]
    axes.plot([x for x, _ in best], [y for _, y in best], "o", markersize=7, markerfacecolor=BLUE,
              markeredgecolor=INK, zorder=5,
              label=f"the least {plan.objective} of a cluster")  # fmt: skip
    for o in plan.best[:1]:
        axes.annotate(
            f"{o.cluster}, {o.form.strategy}", at(o), xytext=(10, 8), textcoords="offset points",
            fontsize=SMALL, zorder=7,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
        )  # fmt: skip
    goal = plan.goal
    if goal.deadline_s is not None:
        axes.axvline(goal.deadline_s / DAY, label="deadline", linestyle="--", color=VERMILION)
    if goal.budget_usd is not None and priced:
        axes.axhline(goal.budget_usd / KILO, label="budget", linestyle=":", color=VERMILION)
    axes.margins(x=0.12, y=0.16)
    title = f"{plan.model}: {plan.n_feasible:,} of {plan.n_points:,} points meet all limits"
    spent = "cost [1,000 $]" if priced else "GPUs"
    finish(axes, title, "time to train [days]", spent, legend="best")
    return figure
