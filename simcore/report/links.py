"""Networks as text: links fitted from logs of nccl-tests, logs against predictions, a fabric."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from simcore.answer.fabric_groups import FabricView, GroupShare
from simcore.base.units import GIB, GIGA, KIB, MIB, MICRO, format_si
from simcore.report.formatting import WIDTH, figure, percent, wrapped
from simcore.report.tables import table

#: Message sizes that the text shows of a run unless the caller names a number.
_SIZES: Final = 6
#: Reasons for skipped lines that the text lists.
_SKIPS_SHOWN: Final = 12
_WIDTH: Final = 78


def _bus(value: float) -> str:
    return f"{figure(value / GIGA)} GB/s"


def _skipped(result: Mapping[str, Any]) -> list[str]:
    skips = list(result["skipped"].items())
    lines = [
        f"skipped {n}: {why}" if n > 1 else f"skipped {why}" for why, n in skips[:_SKIPS_SHOWN]
    ]
    if len(skips) > _SKIPS_SHOWN:
        lines.append(f"and {len(skips) - _SKIPS_SHOWN} more: --json has them all")
    for note in result["notes"]:
        lines += wrapped(f"note: {note}", _WIDTH)
    return lines


def render_links(fit: Mapping[str, Any]) -> str:
    """The result of ``api.calibrate_from`` on a log of nccl-tests: fitted links and networks.

    A fitted ring shows latency and bus bandwidth, each with its standard deviation of the natural
    logarithm, and its error on sizes left out of the fit.
    """
    lines = [*wrapped(f"{fit['name']}: {fit['origin']}", _WIDTH), ""]
    rings = [link for link in fit["links"] if "bus_bytes_per_s" in link]
    if rings:
        cells = [
            [
                f"{x['collective']} {x['cluster']}",
                f"{x['latency_s'] / MICRO:.3g} us", f"{x['hop_sd_log']:.2f}",
                _bus(x["bus_bytes_per_s"]), f"{x['bus_sd_log']:.2f}",
                f"{x['ramp']:.2g}" if x["ramp"] else "-",
                percent(e) if (e := x["leave_one_out_mape_frac"]) is not None else "-",
            ]
            for x in rings
        ]  # fmt: skip
        head = ["fitted", "latency", "sd", "bus", "sd", "ramp", "left out"]
        lines.append(table(head, cells, right=range(1, 7)))
    for x in fit["links"]:
        if "multiplier" in x:
            lines += wrapped(
                f"network {x['network']} ({x['cluster']}): x {x['multiplier']:.3g} of the blind "
                f"assumption, sd {x['sd_log']:.2f} (before: {x['prior_sd_log']:.2f}), from "
                f"{x['sizes']} sizes of {x['collective']}, MAPE {percent(x['mape_frac'])}",
                _WIDTH,
            )  # fmt: skip
    lines += _skipped(fit)
    if fit["written"]:
        lines += ["", f"written to {fit['written']}: simcore predict ... "
                  f"--calibration {fit['written']}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def render_runs(judged: Mapping[str, Any], sizes: int | None) -> str:
    """The result of ``api.validate_nccl``: each run with its errors and ``sizes`` message sizes."""
    lines = [
        *wrapped(f"{judged['rows']} rows, {judged['simulated']} predicted: {judged['profile']}",
                 _WIDTH), *_skipped(judged),
    ]  # fmt: skip
    for run in judged["runs"]:
        large = run["large"]
        large_sizes = (
            f"; {large['n']} of {format_size(64 * MIB)} and more: {percent(large['mape_frac'])}, "
            f"bias {percent(large['median_bias_frac'], signed=True)}" if large["n"] else ""
        )  # fmt: skip
        where = f"node {run['node']}" + (f", network {run['network']}" if run["network"] else "")
        lines += [
            "", f"{run['collective']} on {run['cluster']} ({where}), {run['where']}",
            f"{run['n']} sizes: MAPE {percent(run['mape_frac'])}, bias "
            f"{percent(run['median_bias_frac'], signed=True)}{large_sizes}", "",
        ]  # fmt: skip
        cells = [
            [
                format_size(p["bytes"]), f"{figure(p['measured_s'] / MICRO)} us",
                f"{figure(p['predicted_s'] / MICRO)} us",
                percent(p["predicted_s"] / p["measured_s"] - 1.0, signed=True),
                _bus(p["measured_busbw_bytes_per_s"]), _bus(p["predicted_busbw_bytes_per_s"]),
            ]
            for p in reversed(_picked(run["points"], sizes))
        ]  # fmt: skip
        head = ["size", "measured", "predicted", "error", "bus measured", "predicted"]
        lines.append(table(head, cells, right=range(6)))
    return "\n".join(lines) + "\n"


def _picked(points: list[Any], sizes: int | None) -> list[Any]:
    """``sizes`` points, evenly spread over the message sizes, with the largest and the smallest.

    Without a number: all points of a short run, otherwise ``_SIZES`` of them.
    """
    n = len(points) if sizes is None and len(points) <= 2 * _SIZES else sizes or _SIZES
    if n >= len(points):
        return points
    step = (len(points) - 1) / max(n - 1, 1)
    return [points[len(points) - 1 - round(i * step)] for i in reversed(range(n))]


def format_size(n_bytes: float) -> str:
    """A message size as text: in binary units if it is a whole number of them, else decimal."""
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if n_bytes >= size and n_bytes % size == 0:
            return f"{n_bytes / size:.0f} {unit}"
    return format_si(n_bytes, "B")


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
