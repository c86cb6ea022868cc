"""Database records as tables, text and JSON, with the source of every figure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from simcore.base.database import Database, fold_name
from simcore.base.errors import UnknownName, UsageError
from simcore.base.figures import Figure, Sourced
from simcore.base.names import by_size, has
from simcore.base.units import (
    GIB,
    GIGA,
    MEGA,
    TERA,
    format_bytes,
    format_count,
    format_seconds,
    format_si,
)
from simcore.hardware.calibrations import CALIBRATIONS, Calibration, calibration_names
from simcore.hardware.spec import GPUS, LINKS, NODES, GpuSpec
from simcore.report.formatting import WIDTH
from simcore.strategy.strategy import HYBRID, SINGLE
from simcore.workload.archs import KINDS, kind_of
from simcore.workload.models import MODELS, ZOO_LISTS, ModelRecord

DATABASES: dict[str, Database[Any]] = {"gpu": GPUS, "model": MODELS, "node": NODES, "link": LINKS}
#: Indices of the columns that hold numbers and are aligned to the right, by kind of listing.
NUMERIC: dict[str, Sequence[int]] = {
    "gpus": range(2, 7), "models": (2,), "nodes": (2,), "links": (2, 3, 4), "precisions": (1, 2),
    "optimizers": (1,), "prices": (1,),
}  # fmt: skip
#: The header, the rows as text and the rows as data of one listing.
Listing = tuple[list[str], list[list[str]], list[dict[str, Any]]]


def unit_of(key: str) -> str:
    """The SI unit suffix of the figure at a dotted key of a record; "" for counts and shares."""
    group, _, last = key.rpartition(".")
    last = last.partition("[")[0]
    if group == "peak_flop_per_s":
        return "flop_per_s"
    if last == "bw" or last.endswith("_bw") or "bw_per" in last:
        return "bytes_per_s"
    if last.endswith(("_size", "_visible")):
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
        return format_bytes(value, unit="GiB") if value >= GIB else f"{value / MEGA:.4g} MB"
    if unit == "s":
        return format_seconds(value, padded=False)
    if unit == "flop_per_s":
        return format_si(value, "OP/s" if "int" in key else "FLOP/s", 4)
    if unit:
        return format_si(value, {"bytes_per_s": "B/s", "hertz": "Hz", "w": "W"}[unit], 4)
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


# -- lists --------------------------------------------------------------------------------------


def _gpu_rows() -> Listing:
    header = ["GPU", "full name", "GiB", "GB/s", "16-bit TFLOP/s", "fp32", "NVLink GB/s"]
    rows, data = [], []
    for g in sorted(GPUS.all(), key=lambda g: g.name.lower()):
        half = g.peak("bf16") or g.peak("fp16")
        link = g.nvlink_bw.value if g.nvlink_bw else None
        rows.append(
            [
                g.name,
                g.full_name,
                f"{g.memory_size.value / GIB:.0f}",
                f"{g.memory_bw.value / GIGA:.0f}",
                f"{half / TERA:.0f}" if half else "-",
                f"{(g.peak('fp32') or 0.0) / TERA:.1f}",
                f"{link / GIGA:.0f}" if link else "-",
            ]
        )
        data.append(
            {
                "name": g.name,
                "full_name": g.full_name,
                "aliases": list(g.aliases),
                "memory_bytes": g.memory_size.value,
                "memory_bw_bytes_per_s": g.memory_bw.value,
                "peak_flop_per_s": {k: f.value for k, f in g.peak_flop_per_s.items()},
                "nvlink_bw_bytes_per_s": link,
                "peer_to_peer": g.peer_to_peer,
            }
        )
    return header, rows, data


def _model_rows() -> Listing:
    header = ["model", "kind", "parameters", "full name", "sample"]
    rows, data = [], []
    order = list(KINDS)

    def place(m: ModelRecord) -> tuple[Any, ...]:
        kind = kind_of(m.arch)
        return order.index(kind) if kind in order else len(order), by_size(m.name), m.name

    for m in sorted(MODELS.all(), key=place):
        t, kind = m.training, kind_of(m.arch)
        full_name = textwrap.shorten(m.full_name, 46, placeholder=" ...")
        rows.append([m.name, kind, format_count(m.params.value), full_name, m.sample_unit])
        data.append({"name": m.name, "kind": kind, "full_name": m.full_name,
                     "aliases": list(m.aliases),
                     "n_params": int(m.params.value), "sample_unit": m.sample_unit,
                     "micro_batch": t.micro_batch, "precision": t.precision,
                     "optimizer": t.optimizer, "strategy": t.strategy})  # fmt: skip
    return header, rows, data


def _node_rows() -> Listing:
    header = ["node", "full name", "GPUs", "of type", "fabric", "network"]
    rows, data = [], []
    for n in sorted(NODES.all(), key=lambda n: n.name):
        nics = [f"{x.count} x {x.link}" for x in n.nics]
        types = textwrap.shorten(" ".join(n.gpu_types) or "any", 32, placeholder=" ...")
        rows.append([n.name, n.full_name, str(n.max_gpus), types, n.fabric,
                     " + ".join(nics) or "-"])  # fmt: skip
        data.append({"name": n.name, "full_name": n.full_name, "aliases": list(n.aliases),
                     "max_gpus": n.max_gpus, "gpu_types": list(n.gpu_types), "fabric": n.fabric,
                     "network": nics})  # fmt: skip
    return header, rows, data


def _link_rows() -> Listing:
    header = ["link", "full name", "GB/s", "payload", "latency"]
    rows, data = [], []
    for x in sorted(LINKS.all(), key=lambda x: (x.kind, x.bw.value)):
        rows.append([x.name, x.full_name, f"{x.bw.value / GIGA:.4g}", f"{x.payload_frac.value:g}",
                     format_seconds(x.latency.value, padded=False)])  # fmt: skip
        data.append({"name": x.name, "full_name": x.full_name, "aliases": list(x.aliases),
                     "kind": x.kind, "bw_bytes_per_s": x.bw.value,
                     "payload_frac": x.payload_frac.value,
                     "latency_s": x.latency.value})  # fmt: skip
    return header, rows, data


def _first_line(thing: object) -> str:
    return (getattr(thing, "__doc__", None) or "").strip().splitlines()[0]


_HYBRID = "zero3 within each node, replicated across nodes; --shard-ranks N: groups of N ranks."
_SINGLE = "One process on one GPU without DDP: no gradient buckets."


def _strategy_rows() -> Listing:
    from simcore.step.parallel import PARALLELISMS

    entries = {name: PARALLELISMS[name] for name in PARALLELISMS}
    rows = [[name, _first_line(entry)] for name, entry in entries.items()]
    data = [{"name": name, "meaning": _first_line(entry), "step": _first_line(entry.build)}
            for name, entry in entries.items()]  # fmt: skip
    rows += [[HYBRID, _HYBRID], [SINGLE, _SINGLE]]
    data.append({"name": HYBRID, "meaning": _HYBRID, "step": data[-1]["step"]})
    data.append({"name": SINGLE, "meaning": _SINGLE, "step": "Forward, backward, update."})
    return ["strategy", "meaning"], rows, data


def _calibration_rows() -> Listing:
    calibrations = [CALIBRATIONS[n] for n in calibration_names()]
    rows = [
        ["blind", "any GPU; used by a job that names none", "datasheets and op benchmarks", "-",
         "-"],
        *([c.name, _made_for(c), c.origin, str(c.rows),
           "-" if c.leave_one_out_mape_frac is None else f"{c.leave_one_out_mape_frac:.1%}"]
          for c in calibrations),
    ]  # fmt: skip
    data = [{"name": "blind", "for": rows[0][1], "origin": rows[0][2]}]
    data += [{**c.model_dump(), "for": _made_for(c)} for c in calibrations]
    return ["calibration", "for", "origin", "rows", "left out"], rows, data


def _made_for(c: Calibration) -> str:
    """Names of the GPUs for which a calibration holds specific figures, else "any GPU"."""
    measured = [c.measured.gpu] if c.measured else []
    gpus = dict.fromkeys([*measured, *(k.gpu for k in c.knobs if k.gpu)])
    return ", ".join(gpus) or "any GPU"


def _collective_rows() -> Listing:
    from simcore.physics.collectives import ALGORITHMS

    rows = [[name, _first_line(type(ALGORITHMS[name]))] for name in ALGORITHMS]
    return ["algorithm", "meaning"], rows, [{"name": n, "meaning": m} for n, m in rows]


def _software_rows() -> Listing:
    from simcore.strategy.programs import PLAIN, PROGRAMS

    data: list[dict[str, Any]] = [
        {"name": p.name, "aliases": list(p.aliases), "meaning": p.meaning,
         "releases": {r: {"aliases": list(v.aliases), "meaning": v.meaning}
                      for r, v in p.releases.items()}}
        for p in PROGRAMS.all()
    ]  # fmt: skip
    plain = {"name": PLAIN.name, "aliases": [], "meaning": PLAIN.meaning, "releases": {}}
    data = sorted((*data, plain), key=lambda p: str(p["name"]))
    rows = [
        [p["name"], ", ".join(p["aliases"]) or "-", ", ".join(p["releases"]) or "-", p["meaning"]]
        for p in data
    ]
    return ["software", "also", "releases", "meaning"], rows, data


def _dialect_rows() -> Listing:
    from simcore.strategy.dialects import DIALECTS

    found = [DIALECTS[name] for name in sorted(DIALECTS)]
    rows = [[d.name, d.title, d.summary] for d in found]
    data = [{"name": d.name, "title": d.title, "summary": d.summary} for d in found]
    return ["dialect", "program", "launch file"], rows, data


def _option_rows() -> Listing:
    from simcore.strategy.options import OPTIONS

    found = OPTIONS.options().values()
    rows = [[o.name, o.kind.metavar or "-", o.heading, o.help] for o in found]
    data = [{"name": o.name, "heading": o.heading, "unit": o.unit, "help": o.help,
             "names": list(o.names())} for o in found]  # fmt: skip
    return ["option", "value", "heading", "meaning"], rows, data


def _precision_rows() -> Listing:
    from simcore.strategy.precision import PRECISIONS

    found = [PRECISIONS[name] for name in PRECISIONS]
    rows = [[p.name, str(p.param_bytes), str(p.grad_bytes), p.meaning] for p in found]
    data = [{"name": p.name, "param_bytes": p.param_bytes, "grad_bytes": p.grad_bytes,
             "master_bytes": p.master_bytes, "meaning": p.meaning} for p in found]  # fmt: skip
    return ["precision", "weight bytes", "gradient bytes", "meaning"], rows, data


def _optimizer_rows() -> Listing:
    from simcore.strategy.optimizers import OPTIMIZERS, implementations

    others = implementations()
    found = [OPTIMIZERS[name] for name in OPTIMIZERS]
    rows = [
        [
            o.name,
            "by shape" if o.by_shape else f"{o.state_bytes:.3g}",
            ", ".join(others.get(o.name, ())) or "-",
            o.meaning,
        ]
        for o in found
    ]
    data = [
        {"name": o.name, "state_bytes": o.state_bytes,
         "implementations": list(others.get(o.name, ())), "meaning": o.meaning}
        for o in found
    ]  # fmt: skip
    return ["optimizer", "state bytes", "--optimizer-impl", "meaning"], rows, data


def _price_rows() -> Listing:
    from simcore.hardware.prices import PRICES

    lists = sorted(PRICES.all(), key=lambda p: (p.rank, p.name))
    found = [(p, gpu, price) for p in lists for gpu, price in p.prices.items()]
    rows = [[gpu, f"{price.value:.2f}", p.name, price.date.isoformat()] for p, gpu, price in found]
    data = [
        {"name": gpu, "usd_per_gpu_hour": price.value, "list": p.name, "terms": p.terms,
         "date": price.date.isoformat(), "source": p.sources[price.source]}
        for p, gpu, price in found
    ]  # fmt: skip
    return ["gpu", "$ a GPU-hour", "list", "read on"], rows, data


def _config_rows() -> Listing:
    from simcore.workload.huggingface.registry import CLASSES, FILES

    found = [(kind, "model_type") for kind in FILES] + [(kind, "_class_name") for kind in CLASSES]
    rows = [[kind, key] for kind, key in sorted(found, key=lambda f: f[0].lower())]
    return ["config.json of", "its key"], rows, [{"name": n, "key": k} for n, k in rows]


_LISTINGS = {
    "gpus": _gpu_rows, "models": _model_rows, "configs": _config_rows,
    "nodes": _node_rows, "links": _link_rows,
    "strategies": _strategy_rows, "precisions": _precision_rows, "optimizers": _optimizer_rows,
    "collectives": _collective_rows, "software": _software_rows, "dialects": _dialect_rows,
    "options": _option_rows,
    "calibrations": _calibration_rows, "prices": _price_rows,
}  # fmt: skip


def listing(kind: str, only: str = "") -> Listing:
    """The listing of one kind of record: header, rows as text, rows as data.

    ``kind`` is a plural such as ``gpus``. ``only`` keeps the records whose name, full name, kind
    or alias has its words; if no record has them as whole words, those that have them as part of
    a word. Raises UnknownName if none matches, and UsageError if ``only`` is a model library such
    as ``torchvision:``, whose models are not in the database.
    """
    header, rows, data = _LISTINGS[kind]()
    if not only:
        return header, rows, data
    part = fold_name(only)
    matches = [i for i, entry in enumerate(data) if any(has(s, only) for s in _searchable(entry))]
    matches = matches or [
        i for i, entry in enumerate(data) if any(part in fold_name(s) for s in _searchable(entry))
    ]
    if not matches:
        if kind == "models" and only.partition(":")[0].lower() in ZOO_LISTS:
            library = only.partition(":")[0].lower()
            raise UsageError(
                f"models of {library} are not in the database: --model {library}:NAME, names by "
                f"{ZOO_LISTS[library]}"
            )
        singular = next((k for k in DATABASES if k + "s" == kind), kind)
        raise UnknownName(singular, only, [d["name"] for d in data], f"(`simcore list {kind}`)")
    return header, [rows[i] for i in matches], [data[i] for i in matches]


def _searchable(entry: dict[str, Any]) -> list[str]:
    """The texts of an entry that a search looks at: name, full name, kind and aliases."""
    words = [str(entry[key]) for key in ("name", "full_name", "kind") if key in entry]
    releases = entry.get("releases", {})
    words += [a for r in releases.values() for a in r["aliases"]]
    return [*words, *releases, *map(str, entry.get("aliases", ()))]


# -- one record ---------------------------------------------------------------------------------


def _plain(record: Sourced) -> list[tuple[str, str]]:
    """(key, text) of every field of a record that is not a sourced figure: kinds, settings."""
    found: list[tuple[str, str]] = []

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
                found.append((prefix, ", ".join(map(str, value))))
        elif value not in (None, ""):
            found.append((prefix, str(value)))

    # "traced" is a whole traced module, too long to show.
    skip = {"sources", "notes", "name", "full_name", "traced"}
    walk("", {k: v for k, v in record.model_dump().items() if k not in skip})
    return found


def _notes(record: Any) -> list[str]:
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
        usable = format_bytes(record.usable_memory_bytes, unit="GiB")
        lines.append(f"  {'usable memory':<{width}}  {usable:>{right}}")
    lines += ["", "sources"]
    for key, citation in record.sources.items():
        lines += _wrapped(f"[{key}] {citation}", 6)
    for note in _notes(record):
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


def notes_of(record: Any) -> list[str]:
    """The notes of a record; empty if it has none."""
    return _notes(record)


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
        "notes": _notes(record),
    }
