"""A fabric with a job on it as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from simcore.answer.fabric_groups import FabricView, GroupShare
from simcore.base.units import GIGA, format_si
from simcore.report.formatting import WIDTH
from simcore.report.tables import table


def render_fabric(view: FabricView) -> str:
    """The text of ``simcore show fabric``."""
    return "\n".join(_lines(view)) + "\n"


def _lines(view: FabricView) -> Iterator[str]:
    record, topology = view.record, view.shares.topology
    yield f"{record.name}: {record.full_name or record.in_words()}"
    if record.full_name:
        yield f"  {record.in_words()}"
    yield ""
    others = f", {view.other_nodes} of other jobs" if record.jobs else ""
    facts = [("nodes", f"{topology.n_nodes}: {view.cluster.n_nodes} of {view.job}{others}")]
    for name, count, rate in view.tiers:
        facts.append(("", f"{count:,} x {name}, {format_si(rate, 'B/s')} each way"))
    facts[1] = ("links", facts[1][1])
    has_tiers = record.kind in ("fat-tree", "rail-optimised")
    tiers = f"oversubscribed {record.oversubscription:g}:1 in all tiers together, " * has_tiers
    facts += [
        ("bisection", f"{format_si(view.bisection_bytes_per_s, 'B/s')} from half of the nodes to "
         f"the others, {view.bisection_frac:.3g} of what these send"),
        ("above nodes", f"{tiers}routing {record.routing}"),
    ]  # fmt: skip
    for job in record.jobs:
        often = "all the time" if job.busy == 1.0 else f"{100 * job.busy:.0f} % of the time"
        name = job.name or "other job"
        facts.append(("beside", f"{name} on nodes {job.nodes}: {job.sends}, {often}"))
    if record.source:
        facts.append(("source", record.source))
    for key, text in facts:
        yield from textwrap.wrap(f"{key:<13}{text}", WIDTH, subsequent_indent=" " * 13)
    yield ""
    yield "share of its nodes' network that each group gets while all of its kind send"
    if not view.groups:
        yield "  no group has ranks in several nodes"
        return
    header = ("group", "sends", "ranks", "nodes", "apart", "NICs", "share", "GB/s a GPU",
              "limited by")  # fmt: skip
    yield table(header, [_row(g) for g in view.groups], right=(2, 3, 4, 6, 7))


def _row(group: GroupShare) -> tuple[str, ...]:
    nics = " ".join(map(str, group.nics))
    if len(group.nics) > 1 and group.nics == tuple(range(len(group.nics))):
        nics = f"0-{group.nics[-1]}"
    return (
        group.name, group.sends, str(group.n_ranks), str(group.n_nodes), str(group.apart), nics,
        f"{group.share:.3f}", f"{group.gpu_bytes_per_s / GIGA:.1f}", group.link or "own network",
    )  # fmt: skip
