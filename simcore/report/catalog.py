"""Database records as tables, text and JSON, with the source of every figure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from simcore.base.database import Database, fold_name
from simcore.base.errors import UnknownName, UsageError
from simcore.base.figures import Figure, Sourced
from simcore.base.names import by_size, has
from simcore.base.record import dataclass
from simcore.base.units import (
    GIB,
    GIGA,
    MEGA,
    TERA,
    format_count,
    format_gib,
    format_seconds,
    format_si,
)
from simcore.hardware.calibrations import CALIBRATIONS, calibration_names
from simcore.hardware.machines import CLOUDS
from simcore.hardware.prices import PRICES
from simcore.hardware.spec import GPUS, LINKS, NODES, GpuSpec, NodeSpec
from simcore.report.formatting import WIDTH
from simcore.report.tables import Table, cut_table
from simcore.strategy.optimizers import OPTIMIZERS, implementations
from simcore.strategy.options import OPTIONS
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.programs import PROGRAMS
from simcore.strategy.programs.mechanisms import PLAIN
from simcore.strategy.strategy import HYBRID, SINGLE
from simcore.workload.archs import KINDS, kind_of
from simcore.workload.models import MODELS, ZOO_LISTS

DATABASES: dict[str, Database[Any]] = {"gpu": GPUS, "model": MODELS, "node": NODES, "link": LINKS}


def unit_of(key: str) -> str:
    """The SI unit suffix of the figure at a dotted key of a record; "" for counts and shares."""
    group, _, last = key.rpartition(".")
    last = last.partition("[")[0]
    if group == "peak_flop_per_s":
        return "flop_per_s"
    if last == "bw" or last.endswith("_bw") or "bw_per" in last:
        return "bytes_per_s"
    if last.endswith(("_size", "_visible", "_traffic")):
        return "bytes"
    if last in ("latency", "sample_load"):
        return "s"
    return {"boost_clock": "hertz", "base_clock": "hertz", "tdp": "w"}.get(last, "")


def figure_text(key: str, value: float) -> str:
    """A figure with its unit as text; device memory and caches in binary units, as vendors do.

    ``key`` is the figure's dotted key, ``value`` its value in SI units.
    """
    unit = unit_of(key)
    if unit == "bytes":
        return format_gib(value) if value >= GIB else f"{value / MEGA:.4g} MB"
    if unit == "s":
        return format_seconds(value, padded=False)
    if unit == "flop_per_s":
        return format_si(value, "OP/s" if "int" in key else "FLOP/s", 4)
    if unit:
        return format_si(value, {"bytes_per_s": "B/s", "hertz": "Hz", "w": "W"}[unit], 4)
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


# -- lists --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Listing(Table):
    """One kind of record: a row for each as text, and the same as data."""

    data: Sequence[dict[str, Any]] = ()

    def fitted(self, width: int) -> str:
        """The text in ``width`` columns: names in one line each with texts cut, meanings wrapped.

        JSON has the whole texts.
        """
        if self.caption in _OF_NAMES:
            return cut_table(self.head, self.rows, width, right=self.right) + _UNITS.get(
                self.caption, ""
            )
        return self.text(width)


#: One entry of a listing: its row as text, and the same as data.
Entry = tuple[Sequence[str], dict[str, Any]]


def _gpus() -> Iterator[Entry]:
    for g in sorted(GPUS.all(), key=lambda g: g.name.lower()):
        half = g.peak("bf16") or g.peak("fp16")
        link = g.nvlink_bw.value if g.nvlink_bw else None
        row = [
            g.name, g.full_name, f"{g.memory_size.value / GIB:.0f}",
            f"{g.memory_bw.value / GIGA:.0f}", f"{half / TERA:.0f}" if half else "-",
            f"{(g.peak('fp32') or 0.0) / TERA:.1f}", f"{link / GIGA:.0f}" if link else "-",
        ]  # fmt: skip
        yield (
            row,
            {
                "name": g.name,
                "full_name": g.full_name,
                "aliases": list(g.aliases),
                "memory_bytes": g.memory_size.value,
                "memory_bw_bytes_per_s": g.memory_bw.value,
                "peak_flop_per_s": {k: f.value for k, f in g.peak_flop_per_s.items()},
                "nvlink_bw_bytes_per_s": link,
                "peer_to_peer": g.peer_to_peer,
            },
        )


def _by_kind(arch: str) -> int:
    """Sort key of an architecture: the place of its kind of model."""
    order = list(KINDS)
    return order.index(kind) if (kind := kind_of(arch)) in order else len(order)


def _models() -> Iterator[Entry]:
    for m in sorted(MODELS.all(), key=lambda m: (_by_kind(m.arch), by_size(m.name), m.name)):
        t, kind = m.training, kind_of(m.arch)
        full_name = textwrap.shorten(m.full_name, 46, placeholder=" ...")
        yield [m.name, kind, format_count(m.params.value), full_name, m.sample_unit], {
            "name": m.name, "kind": kind, "full_name": m.full_name, "aliases": list(m.aliases),
            "n_params": int(m.params.value), "sample_unit": m.sample_unit,
            "micro_batch": t.micro_batch, "precision": t.precision, "optimizer": t.optimizer,
            "strategy": t.strategy,
        }  # fmt: skip


def _architectures() -> Iterator[Entry]:
    from simcore.workload.models import setting_kinds
    from simcore.workload.settings import needed_settings, settable_archs

    for name in sorted(settable_archs(), key=lambda name: (_by_kind(name), name)):
        needed = needed_settings(name)
        others = [key for key in setting_kinds(name) if key not in needed]
        row = [f"arch:{name}", kind_of(name), " ".join(needed) or "-", " ".join(others) or "-"]
        data = {"name": f"arch:{name}", "kind": kind_of(name)}
        yield row, {**data, "needed_settings": needed, "other_settings": others}


def _nodes() -> Iterator[Entry]:
    for n in sorted(NODES.all(), key=lambda n: n.name):
        types = textwrap.shorten(" ".join(n.gpu_types) or "any", 32, placeholder=" ...")
        yield [n.name, n.full_name, str(n.max_gpus), types, n.fabric, _nics(n)], {
            "name": n.name, "full_name": n.full_name, "aliases": list(n.aliases),
            "max_gpus": n.max_gpus, "gpu_types": list(n.gpu_types), "fabric": n.fabric,
            "network": [f"{x.count} x {x.link}" for x in n.nics],
        }  # fmt: skip


def _nics(node: NodeSpec) -> str:
    """A node's ports as --network takes them, such as ``8xib-ndr``."""
    return "+".join(x.link if x.count == 1 else f"{x.count}x{x.link}" for x in node.nics) or "-"


def _fabrics() -> Iterator[Entry]:
    from simcore.hardware.fabrics.record import FABRICS

    for f in FABRICS.all():
        yield [f.name, f.full_name, f.kind, f.in_words()], {
            "name": f.name, "full_name": f.full_name, "aliases": list(f.aliases), "kind": f.kind,
            "is": f.in_words(), "source": f.source, "oversubscription": f.oversubscription,
        }  # fmt: skip


def _links() -> Iterator[Entry]:
    for x in sorted(LINKS.all(), key=lambda x: (x.kind, x.bw.value)):
        row = [x.name, x.full_name, f"{x.bw.value / GIGA:.4g}", f"{x.payload_frac.value:g}",
               format_seconds(x.latency.value, padded=False)]  # fmt: skip
        yield row, {
            "name": x.name, "full_name": x.full_name, "aliases": list(x.aliases), "kind": x.kind,
            "bw_bytes_per_s": x.bw.value, "payload_frac": x.payload_frac.value,
            "latency_s": x.latency.value,
        }  # fmt: skip


def _first_line(thing: object) -> str:
    return (getattr(thing, "__doc__", None) or "").strip().splitlines()[0]


_HYBRID = "zero3 within each node, replicated across nodes; --shard-ranks N: groups of N ranks."
_SINGLE = "One process on one GPU without DDP: no gradient buckets."


def _strategies() -> Iterator[Entry]:
    from simcore.step.parallel import PARALLELISMS

    step = ""
    for name in PARALLELISMS:
        meaning, step = _first_line(PARALLELISMS[name]), _first_line(PARALLELISMS[name].build)
        yield [name, meaning], {"name": name, "meaning": meaning, "step": step}
    yield [HYBRID, _HYBRID], {"name": HYBRID, "meaning": _HYBRID, "step": step}
    yield [SINGLE, _SINGLE], {
        "name": SINGLE, "meaning": _SINGLE, "step": "Forward, backward, update.",
    }  # fmt: skip


def _calibrations() -> Iterator[Entry]:
    blind = ["blind", "any GPU; used by a job that names none", "datasheets and op benchmarks"]
    yield [*blind, "-", "-"], dict(zip(("name", "for", "origin"), blind, strict=True))
    for c in (CALIBRATIONS[name] for name in calibration_names()):
        measured = [c.measured.gpu] if c.measured else []
        gpus = dict.fromkeys([*measured, *(k.gpu for k in c.knobs if k.gpu)])
        made_for, error = ", ".join(gpus) or "any GPU", c.leave_one_out_mape_frac
        row = [c.name, made_for, c.origin, str(c.rows), "-" if error is None else f"{error:.1%}"]
        yield row, {**c.model_dump(), "for": made_for}


def _collectives() -> Iterator[Entry]:
    from simcore.physics.collectives import ALGORITHMS

    for name in ALGORITHMS:
        meaning = _first_line(type(ALGORITHMS[name]))
        yield [name, meaning], {"name": name, "meaning": meaning}


def _software() -> Iterator[Entry]:
    plain = {"name": PLAIN.name, "aliases": [], "meaning": PLAIN.meaning, "releases": {}}
    programs: list[dict[str, Any]] = [
        {"name": p.name, "aliases": list(p.aliases), "meaning": p.meaning,
         "releases": {r: {"aliases": list(v.aliases), "meaning": v.meaning}
                      for r, v in p.releases.items()}}
        for p in PROGRAMS.all()
    ]  # fmt: skip
    for data in sorted([*programs, plain], key=lambda p: str(p["name"])):
        also, releases = ", ".join(data["aliases"]) or "-", ", ".join(data["releases"]) or "-"
        yield [data["name"], also, releases, data["meaning"]], data


def _dialects() -> Iterator[Entry]:
    from simcore.strategy.dialects import DIALECTS, LINES, line_programs

    dialects = {name: DIALECTS[name] for name in DIALECTS} | {n: LINES[n] for n in line_programs()}
    for d in (dialects[name] for name in sorted(dialects)):
        data = {"name": d.name, "title": d.title, "summary": d.summary}
        yield [d.name, d.title, d.summary], data


def _options() -> Iterator[Entry]:
    for o in OPTIONS.options().values():
        yield [o.name, o.kind.metavar or "-", o.heading, o.help_text], {
            "name": o.name, "heading": o.heading, "unit": o.unit, "help": o.help_text,
            "names": list(o.names()),
        }  # fmt: skip


def _precisions() -> Iterator[Entry]:
    for p in (PRECISIONS[name] for name in PRECISIONS):
        yield [p.name, str(p.param_bytes), str(p.grad_bytes), p.meaning], {
            "name": p.name, "param_bytes": p.param_bytes, "grad_bytes": p.grad_bytes,
            "master_bytes": p.master_bytes, "meaning": p.meaning,
        }  # fmt: skip


def _optimizers() -> Iterator[Entry]:
    others = implementations()
    for o in (OPTIMIZERS[name] for name in OPTIMIZERS):
        size = "by shape" if o.by_shape else f"{o.state_bytes:.3g}"
        kinds = list(others.get(o.name, ()))
        yield [o.name, size, ", ".join(kinds) or "-", o.meaning], {
            "name": o.name, "state_bytes": o.state_bytes, "implementations": kinds,
            "meaning": o.meaning,
        }  # fmt: skip


def _prices() -> Iterator[Entry]:
    for p in sorted(PRICES.all(), key=lambda p: (p.rank, p.name)):
        for gpu, price in p.prices.items():
            read_on = price.date.isoformat()
            yield [gpu, f"{price.value:.2f}", p.name, read_on], {
                "name": gpu, "usd_per_gpu_hour": price.value, "list": p.name, "terms": p.terms,
                "date": read_on, "source": p.sources[price.source],
            }  # fmt: skip


def _instances() -> Iterator[Entry]:
    for cloud in CLOUDS.all():
        for name, i in cloud.instances.items():
            network = i.network or _nics(NODES[i.node])
            row = [name, cloud.name, f"{i.gpus}x{i.gpu}", network]
            yield row, {
                "name": name, "full_name": f"{cloud.full_name}, {i.gpus} {i.gpu}",
                "aliases": i.called, "cloud": cloud.name, "gpu": i.gpu,
                "gpus": i.gpus, "node": i.node, "network": i.network,
                "source": cloud.sources[i.source],
            }  # fmt: skip


def _configs() -> Iterator[Entry]:
    from simcore.workload.huggingface import class_names, model_types

    types = [(kind, "model_type") for kind in model_types()]
    types += [(kind, "_class_name") for kind in class_names()]
    for kind, key in sorted(types, key=lambda f: f[0].lower()):
        yield [kind, key], {"name": kind, "key": key}


#: Listings of names to choose from, one line each.
_OF_NAMES = ("gpus", "models", "nodes", "links", "instances", "prices", "configs")
#: Units of headings that have none.
_UNITS = {"gpus": "\n\nbf16 (or fp16), fp32: dense TFLOP/s; NVLink: GB/s per direction"}
#: Kind -> its entries, the headings of its columns, and the columns of numbers.
_LISTINGS: dict[str, tuple[Callable[[], Iterator[Entry]], Sequence[str], Sequence[int]]] = {
    "gpus": (
        _gpus, ("GPU", "full name", "GiB", "GB/s", "bf16", "fp32", "NVLink"),
        range(2, 7),
    ),
    "models": (_models, ("model", "kind", "parameters", "full name", "sample"), (2,)),
    "architectures": (_architectures, ("model", "kind", "needs --set", "other settings"), ()),
    "configs": (_configs, ("config.json of", "its key"), ()),
    "nodes": (_nodes, ("node", "full name", "GPUs", "of type", "fabric", "network"), (2,)),
    "links": (_links, ("link", "full name", "GB/s", "payload", "latency"), (2, 3, 4)),
    "strategies": (_strategies, ("strategy", "meaning"), ()),
    "precisions": (
        _precisions, ("precision", "weight bytes", "gradient bytes", "meaning"), (1, 2)
    ),
    "optimizers": (
        _optimizers, ("optimizer", "state bytes", "--optimizer-impl", "meaning"), (1,)
    ),
    "collectives": (_collectives, ("algorithm", "meaning"), ()),
    "software": (_software, ("software", "also", "releases", "meaning"), ()),
    "dialects": (_dialects, ("dialect", "program", "launch file"), ()),
    "options": (_options, ("option", "value", "heading", "meaning"), ()),
    "calibrations": (_calibrations, ("calibration", "for", "origin", "rows", "left out"), ()),
    "fabrics": (_fabrics, ("fabric", "full name", "kind", "what it is"), ()),
    "instances": (_instances, ("instance", "cloud", "GPUs", "network"), ()),
    "prices": (_prices, ("gpu", "$ a GPU-hour", "list", "read on"), (1,)),
}  # fmt: skip


def listing(kind: str, only: str = "") -> Listing:
    """The listing of one kind of record.

    ``kind`` is a plural such as ``gpus``. ``only`` keeps the records whose name, full name, kind
    or alias has its words; if no record has them as whole words, those that have them as part of
    a word. Raises UnknownName if none matches, and UsageError if ``only`` is a model library such
    as ``torchvision:``, whose models are not in the database.
    """
    entries, header, right = _LISTINGS[kind]
    listed = list(entries())
    if only:
        whole_words = [e for e in listed if any(has(s, only) for s in _searchable(e[1]))]
        part = fold_name(only)
        found_by_part = (e for e in listed if any(part in fold_name(s) for s in _searchable(e[1])))
        matches = whole_words or list(found_by_part)
        if not matches:
            raise _nothing_found(kind, only, [data["name"] for _, data in listed])
        listed = matches
    return Listing(kind, header, [row for row, _ in listed], right, [data for _, data in listed])


def _nothing_found(kind: str, only: str, known: Sequence[str]) -> UsageError:
    library = only.partition(":")[0].lower()
    if kind == "models" and library in ZOO_LISTS:
        return UsageError(
            f"models of {library} are not in the database: --model {library}:NAME, names by "
            f"{ZOO_LISTS[library]}"
        )
    singular = next((k for k in DATABASES if k + "s" == kind), kind)
    return UnknownName(singular, only, known, f"(`simcore list {kind}`)")


def _searchable(entry: dict[str, Any]) -> list[str]:
    """The texts of an entry that a search looks at: name, full name, kind and aliases."""
    words = [str(entry[key]) for key in ("name", "full_name", "kind") if key in entry]
    releases = entry.get("releases", {})
    words += [a for r in releases.values() for a in r["aliases"]]
    return [*words, *releases, *map(str, entry.get("aliases", ()))]


# -- one record ---------------------------------------------------------------------------------


def _plain(record: Sourced) -> list[tuple[str, str]]:
    """(key, text) of every field of a record that is not a sourced figure: kinds, settings."""
    fields: list[tuple[str, str]] = []

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            if {"value", "source"} <= value.keys():
                return
            for key, item in value.items():
                walk(f"{prefix}.{key}".lstrip("."), item)
        elif isinstance(value, (list, tuple)):
            if any(isinstance(v, dict) for v in value):
                for i, item in enumerate(value):
                    walk(f"{prefix}[{i}]", item)
            elif value:
                fields.append((prefix, ", ".join(map(str, value))))
        elif value not in (None, ""):
            fields.append((prefix, str(value)))

    # "traced" is a whole traced module, too long to show.
    skip = {"sources", "notes", "name", "full_name", "traced"}
    walk("", {k: v for k, v in record.model_dump().items() if k not in skip})
    return fields


def notes_of(record: Any) -> list[str]:
    """The notes of a record; empty if it has none."""
    notes = getattr(record, "notes", ())
    return [notes] if isinstance(notes, str) and notes else list(notes)


def render_record(record: Any) -> str:
    """A record as text: settings, figures with the key of their source, sources, notes."""
    figures: dict[str, Figure] = record.figures()
    lines = textwrap.wrap(f"{record.name}: {record.full_name}", WIDTH, subsequent_indent="  ")
    plain = _plain(record)
    width = max(len(k) for k in (*figures, *(k for k, _ in plain)))
    for key, text in plain:
        lines += _wrapped(f"{key:<{width}}  {text}", width + 4)
    lines.append("")
    values = {key: figure_text(key, f.value) for key, f in figures.items()}
    right = max(map(len, values.values()), default=0)
    for key, f in figures.items():
        note = f" ({f.note})" if f.note else ""
        text = f"{key:<{width}}  {values[key]:>{right}}  [{f.source}]{note}"
        lines += _wrapped(text, min(width + right + 6, WIDTH // 2))
    if isinstance(record, GpuSpec):
        usable = format_gib(record.usable_memory_bytes)
        lines.append(f"  {'usable memory':<{width}}  {usable:>{right}}")
    lines += ["", "sources"]
    for key, citation in record.sources.items():
        lines += _wrapped(f"[{key}] {citation}", 6)
    for note in notes_of(record):
        lines += _wrapped(f"note: {note}", 6)
    return "\n".join(lines) + "\n"


def _wrapped(text: str, indent: int) -> list[str]:
    """``text`` in lines of 80 columns, continuation lines indented by ``indent`` columns.

    A text with a web address is not broken inside a word.
    """
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent=" " * indent,
                         break_long_words="://" not in text, break_on_hyphens=False)  # fmt: skip


def sourced(record: Any) -> list[tuple[str, str, str]]:
    """(name, value with unit, citation) of every figure of a record."""
    return [
        (
            key.replace("_", " "),
            figure_text(key, f.value),
            record.sources[f.source] + (f" ({f.note})" if f.note else ""),
        )
        for key, f in record.figures().items()
    ]


def record_dict(record: Any) -> dict[str, Any]:
    """A record as plain data; a figure's key ends in its unit, its source is the full citation."""

    def named(key: str) -> str:
        unit = "" if key.startswith("peak_flop_per_s") else unit_of(key)
        return f"{key}_{unit}" if unit else key

    figures = {
        named(key): {"value": f.value, "source": record.sources[f.source], "note": f.note}
        for key, f in record.figures().items()
    }
    return {
        "name": record.name,
        "full_name": record.full_name,
        "aliases": list(record.aliases),
        "settings": {k: v for k, v in _plain(record) if k != "aliases"},
        "figures": figures,
        "notes": notes_of(record),
    }
