"""A plan's options: time to train against cost, with intervals, limits and the Pareto front."""

from __future__ import annotations

from matplotlib.axes import Axes

from simcore.base.units import DAY, KILO
from simcore.planning.planner import Option, Plan
from simcore.report.plots.canvas import (
    INK,
    MARKS,
    SERIES,
    SMALL,
    VERMILION,
    Drawing,
    canvas,
    finish,
    nothing,
    readable_log,
    single,
)

#: A limit this many times beyond all options is named at the edge of the plot, not drawn to scale.
_FAR = 3.0


def draw(plan: Plan) -> Drawing:
    """One mark per option over time and cost, or GPUs if a price is missing; limits are dashed.

    The bar through a listed option is its 80 % interval: a longer run costs more in proportion.
    """
    shown = sorted({o.cluster: o for o in (*plan.front, *plan.best)}.values(),
                   key=lambda o: o.time_s)  # fmt: skip
    if not shown:
        return nothing(canvas(), "nothing meets all limits")
    figure, axes = single()
    priced = all(o.cost_usd is not None for o in shown)
    types = list(dict.fromkeys(_types(o) for o in shown))
    front = sorted(_at(o, priced) for o in plan.front)
    axes.step([x for x, _ in front], [y for _, y in front], where="post", color="black",
              linewidth=1.4, zorder=2, label="Pareto front of what meets all limits")  # fmt: skip
    taken = next((i for i, o in enumerate(shown) if o.cluster == plan.best[0].cluster), 0)
    for i, o in enumerate(shown):
        of = types.index(_types(o))
        x, y = _at(o, priced)
        if o.prediction is not None:
            step = o.prediction.step_time_s
            low, high = step.low / step.value, step.high / step.value
            tilt = (low, high) if priced else (1.0, 1.0)
            axes.plot([x * low, x * high], [y * tilt[0], y * tilt[1]], color=SERIES[of],
                      linewidth=2.0, alpha=0.6, zorder=3)  # fmt: skip
        axes.plot([x], [y], MARKS[of], color=SERIES[of], markeredgecolor=INK, markersize=8,
                  zorder=5)  # fmt: skip
        name, weight, offset = f"{o.n_gpus:,} GPUs", "normal", (12, -18)[(i - taken) % 2]
        if i == taken:
            name, weight, offset = f"TAKE {o.cluster}, {o.form.strategy}", "bold", 34
        axes.annotate(
            name, (x, y), xytext=(0, offset), textcoords="offset points", fontsize=SMALL,
            ha="center", weight=weight, zorder=7, arrowprops={"arrowstyle": "-", "color": INK},
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
        )  # fmt: skip
    for i, name in enumerate(types):
        axes.plot([], [], MARKS[i], color=SERIES[i], markeredgecolor=INK, label=name)
    axes.plot([], [], color=INK, linewidth=2.0, alpha=0.6, label="80 % interval of a listed option")
    axes.set(xscale="log", yscale="log" if priced else "linear")
    axes.margins(x=0.12, y=0.2)
    _limits(axes, plan, priced)
    readable_log(axes.xaxis)
    if priced:
        readable_log(axes.yaxis)
    title = f"{plan.model}: {plan.n_feasible:,} of {plan.n_points:,} points meet all limits"
    spent = "cost [1,000 $]" if priced else "GPUs"
    finish(axes, title, "time to train [days]", spent)
    figure.legend(loc="outside lower center", ncols=3, fontsize=SMALL, frameon=False)
    return figure


def _types(o: Option) -> str:
    """The GPU types of an option's cluster."""
    return "+".join(part.split("x", 2)[-1] for part in o.cluster.split("+"))


def _at(o: Option, priced: bool) -> tuple[float, float]:
    """Days, and thousands of dollars or GPUs."""
    other = o.cost_usd / KILO if priced and o.cost_usd is not None else float(o.n_gpus)
    return o.time_s / DAY, other


def _limits(axes: Axes, plan: Plan, priced: bool) -> None:
    """Deadline and budget: lines where they are near the options, else a word at the edge."""
    goal = plan.goal
    (_, right), (_, top) = axes.get_xlim(), axes.get_ylim()
    if goal.deadline_s is not None:
        days = goal.deadline_s / DAY
        if days <= _FAR * right:
            axes.axvline(days, linestyle="--", color=VERMILION, label=f"deadline, {days:.3g} days")
            axes.set_xlim(right=max(right, 1.2 * days))
        else:
            axes.plot(
                [], [], "--", color=VERMILION, label=f"deadline, {days:.3g} days, is far right"
            )
    if goal.budget_usd is not None and priced:
        budget = goal.budget_usd / KILO
        if budget <= _FAR * top:
            axes.axhline(budget, linestyle=":", color=VERMILION, label=f"budget, {budget:,.3g}k $")
            axes.set_ylim(top=max(top, 1.1 * budget))
        else:
            axes.plot([], [], ":", color=VERMILION, label=f"budget, {budget:,.3g}k $, is far above")
