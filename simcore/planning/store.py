"""Points of a sweep on disk: parts while it runs, one CSV, JSON or Parquet file when it is done.

``sweep.parquet`` grows as the folder ``sweep.parquet.parts``: one file a part, each complete and
named by the units it covers, so that an interrupted sweep goes on where it stopped. The parts are
then streamed into the output and removed. Memory holds one part.
"""

from __future__ import annotations

import csv
import json
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from simcore import __version__
from simcore.base.arrays import NDArray
from simcore.base.errors import DataError, InvalidConfig, UsageError
from simcore.hardware.cluster import ClusterSpec
from simcore.planning.evaluator import piece_points
from simcore.planning.points import Batch, FormWords
from simcore.planning.ranking import network_of
from simcore.planning.space import Space

FORMATS = (".parquet", ".csv", ".json")
#: Points that make a part; also what is lost at most when a sweep is killed.
PART_POINTS = 100_000

#: Output columns, in order; those of a form or cluster are one value for many rows.
COLUMNS = (
    "model", "cluster", "n_gpus", "n_nodes", "network", "strategy", "precision", "optimizer",
    "recompute", "offload", "seq_len", "tp", "pp", "vpp", "cp", "ep", "more", "micro_batch",
    "grad_accum", "global_batch", "step_time_s", "samples_per_s", "samples_per_s_per_gpu",
    "memory_bytes", "capacity_bytes", "fits",
)  # fmt: skip


def output_problems(path: Path) -> list[str]:
    """What is wrong with an output file, before anything is computed."""
    if path.suffix.lower() not in FORMATS:
        return [f"-o {path.name!r} must end in {', '.join(FORMATS)}"]
    if path.is_dir():
        return [f"-o {str(path)!r} is a folder: name a file"]
    if not path.parent.is_dir():
        return [f"-o: folder {str(path.parent)!r} does not exist"]
    if path.suffix.lower() == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            return ["Parquet needs pyarrow: pip install 'simcore[parquet]', or write .csv or .json"]
    return []


@dataclass
class Store:
    """The parts of one sweep. Raises UsageError where another sweep's parts lie in the way."""

    path: Path
    space: Space
    resume: bool = False
    _pending: list[Batch] = field(default_factory=list)
    _points: int = 0
    _written: int = 0

    def __post_init__(self) -> None:
        if problems := output_problems(self.path):
            raise InvalidConfig(problems)
        mark = self.folder / "space.txt"
        told = f"{self.space.fingerprint()} {piece_points(self.space)} {__version__}"
        if self.folder.exists() and not self.resume:
            raise UsageError(
                f"{self.folder.name} holds an unfinished sweep: go on with --resume, or remove it"
            )
        if not self.folder.exists():
            if self.resume and self.path.exists():
                raise UsageError(f"{self.path.name} is complete: nothing to resume")
            self.folder.mkdir()
            mark.write_text(told + "\n", encoding="utf-8")
        elif not mark.exists() or mark.read_text("utf-8").strip() != told:
            raise UsageError(
                f"{self.folder.name} is of another sweep, or of another version of simcore: "
                "give its options, or remove it"
            )
        self._written = len(self._files())

    @property
    def folder(self) -> Path:
        """Where the parts lie."""
        return self.path.with_name(self.path.name + ".parts")

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("part-*.npz"))

    @property
    def next(self) -> tuple[int, int]:
        """The unit and piece to go on with."""
        files = self._files()
        if not files:
            return 0, 0
        last = _read_part(files[-1])[-1]
        return last.unit, last.piece + 1

    def parts(self) -> Iterator[list[Batch]]:
        """The batches of every part on disk, one part at a time."""
        for file in self._files():
            yield _read_part(file)

    def add(self, batch: Batch) -> None:
        """Take in a batch; a part is written when there is enough."""
        self._pending.append(batch)
        self._points += len(batch)
        if self._points >= PART_POINTS:
            self.flush()

    def flush(self) -> None:
        """Write what is pending as a part; it appears complete or not at all."""
        if not self._pending:
            return
        file = self.folder / f"part-{self._written:06d}.npz"
        partial = file.with_suffix(".partial")
        with partial.open("wb") as stream:
            _write_part(stream, self._pending)
        partial.replace(file)
        self._pending, self._points = [], 0
        self._written += 1

    def suspend(self) -> None:
        """Write what is pending, to go on later; nothing stays of a sweep that has nothing."""
        self.flush()
        if not self._written:
            shutil.rmtree(self.folder)

    def finish(self) -> None:
        """Stream all parts into the output file and remove them."""
        self.flush()
        partial = self.path.with_name(self.path.name + ".partial")
        _WRITERS[self.path.suffix.lower()](partial, self.parts(), self.space.clusters)
        partial.replace(self.path)
        shutil.rmtree(self.folder)


_ARRAYS = (
    "cluster", "micro_batch", "grad_accum", "step_time_s", "samples_per_s", "memory_bytes",
    "needed_bytes", "capacity_bytes",
)  # fmt: skip


def _write_part(stream: IO[bytes], batches: Sequence[Batch]) -> None:
    """Arrays of all batches end to end, and a JSON text that says which rows are whose."""
    full = [b for b in batches if len(b)]
    heads = [
        {
            "unit": b.unit,
            "piece": b.piece,
            "n_points": b.n_points,
            "invalid": b.invalid,
            "rows": len(b),
            "form": b.form.to_dict() if b.form is not None else None,
        }
        for b in batches
    ]
    arrays: dict[str, Any] = {
        name: np.concatenate([np.broadcast_to(getattr(b, name), len(b)) for b in full])
        if full
        else np.array([])
        for name in _ARRAYS
    }
    np.savez(stream, heads=np.array(json.dumps(heads)), **arrays)


def _read_part(file: Path) -> list[Batch]:
    """What ``_write_part`` wrote. Raises DataError for a damaged file."""
    try:
        with np.load(file, allow_pickle=False) as held:
            heads = json.loads(str(held["heads"]))
            arrays = {name: held[name] for name in _ARRAYS}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as err:
        raise DataError(f"not a part of a sweep ({err}): remove it", file=file) from None
    out, at = [], 0
    for head in heads:
        rows, form = head.pop("rows"), head.pop("form")
        columns = {k: v[at : at + rows] for k, v in arrays.items()} if rows else {}
        out.append(Batch(**head, **columns, form=FormWords.from_dict(form) if form else None))
        at += rows
    return out


@dataclass(frozen=True)
class Coded:
    """A column of words that repeat: ``words[codes]``, an array [C]."""

    words: tuple[str, ...]
    codes: NDArray[np.intp]


#: One value for all rows, an array [C] of numbers, or words.
Values = str | int | float | None | NDArray[Any] | Coded


def columns_of(batch: Batch, clusters: Sequence[ClusterSpec]) -> dict[str, Values]:
    """The columns of a batch."""
    assert batch.form is not None and batch.cluster is not None
    assert batch.micro_batch is not None and batch.grad_accum is not None
    assert batch.samples_per_s is not None
    form, layout = batch.form, batch.form.layout
    used, where = np.unique(batch.cluster, return_inverse=True)
    specs = [clusters[int(i)] for i in used]

    def of_cluster(values: Sequence[int]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = np.array(values, dtype=np.int64)[where]
        return found

    n_gpus = of_cluster([c.n_gpus for c in specs])
    ranks = of_cluster([layout.data_ranks(c.n_gpus) for c in specs])
    micro, accum = batch.micro_batch.astype(np.int64), batch.grad_accum.astype(np.int64)
    return {
        "model": form.model,
        "cluster": Coded(tuple(str(c) for c in specs), where),
        "n_gpus": n_gpus,
        "n_nodes": of_cluster([c.n_nodes for c in specs]),
        "network": Coded(tuple(network_of(c) for c in specs), where),
        "strategy": form.strategy,
        "precision": form.precision,
        "optimizer": form.optimizer,
        "recompute": form.recompute,
        "offload": form.offload,
        "seq_len": form.seq_len,
        "tp": layout.tp,
        "pp": layout.pp,
        "vpp": layout.vpp,
        "cp": layout.cp,
        "ep": layout.ep,
        "more": form.more,
        "micro_batch": micro,
        "grad_accum": accum,
        "global_batch": micro * accum * ranks,
        "step_time_s": batch.step_time_s,
        "samples_per_s": batch.samples_per_s,
        "samples_per_s_per_gpu": batch.samples_per_s / n_gpus,
        "memory_bytes": batch.memory_bytes,
        "capacity_bytes": batch.capacity_bytes,
        "fits": batch.fits,
    }


def as_array(values: Values, n: int) -> NDArray[Any]:
    """``n`` rows of a column; words as objects, of which equal ones are one."""
    if isinstance(values, Coded):
        words: NDArray[Any] = np.array(values.words, dtype=object)[values.codes]
        return words
    if isinstance(values, np.ndarray):
        return values
    kind = object if values is None or isinstance(values, str) else None
    return np.full(n, values, dtype=kind)


def rows_of(batch: Batch, clusters: Sequence[ClusterSpec]) -> Iterator[tuple[Any, ...]]:
    """The rows of a batch in the order of COLUMNS."""
    if len(batch):
        found = columns_of(batch, clusters)
        yield from zip(*(as_array(found[c], len(batch)).tolist() for c in COLUMNS), strict=True)


def _write_csv(path: Path, parts: Iterator[list[Batch]], clusters: Sequence[ClusterSpec]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for batch in (b for part in parts for b in part):
            writer.writerows(rows_of(batch, clusters))


def _write_json(path: Path, parts: Iterator[list[Batch]], clusters: Sequence[ClusterSpec]) -> None:
    """One object: ``points``, a list with an object a line, and ``invalid``, counts by reason."""
    invalid: dict[str, int] = {}
    with path.open("w", encoding="utf-8") as stream:
        stream.write('{"points": [')
        separator = "\n"
        for batch in (b for part in parts for b in part):
            for reason, n in batch.invalid.items():
                invalid[reason] = invalid.get(reason, 0) + n
            for row in rows_of(batch, clusters):
                stream.write(separator + _line(dict(zip(COLUMNS, row, strict=True))))
                separator = ",\n"
        stream.write(f'\n], "invalid": {json.dumps(invalid)}}}\n')


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, allow_nan=False)


def _write_parquet(
    path: Path, parts: Iterator[list[Batch]], clusters: Sequence[ClusterSpec]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.dictionary(pa.int32(), pa.string())
    kinds = {
        **dict.fromkeys(("model", "cluster", "network", "strategy", "precision", "optimizer",
                         "recompute", "offload", "more"), text),
        **dict.fromkeys(("n_gpus", "n_nodes", "seq_len", "tp", "pp", "vpp", "cp", "ep",
                         "micro_batch", "grad_accum", "global_batch"), pa.int64()),
        "fits": pa.bool_(),
    }  # fmt: skip
    schema = pa.schema([(c, kinds.get(c, pa.float64())) for c in COLUMNS])
    with pq.ParquetWriter(path, schema) as writer:
        for part in parts:
            full = [(columns_of(b, clusters), len(b)) for b in part if len(b)]
            if full:
                columns = {c: [(found[c], n) for found, n in full] for c in COLUMNS}
                arrays = [
                    _words_array(columns[f.name])
                    if f.type == text
                    else pa.array(
                        np.concatenate([as_array(v, n) for v, n in columns[f.name]]), f.type
                    )
                    for f in schema
                ]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _words_array(columns: Sequence[tuple[Values, int]]) -> Any:
    """Words of several batches as one dictionary array of pyarrow."""
    import pyarrow as pa

    known: dict[Any, int] = {}
    codes: list[NDArray[np.int32]] = []
    for values, n in columns:
        coded = values if isinstance(values, Coded) else None
        words = coded.words if coded else (values,)
        own = np.array([known.setdefault(w, len(known)) for w in words], dtype=np.int32)
        codes.append(own[coded.codes] if coded else np.full(n, own[0]))
    return pa.DictionaryArray.from_arrays(np.concatenate(codes), pa.array(list(known), pa.string()))


_WRITERS = {".csv": _write_csv, ".json": _write_json, ".parquet": _write_parquet}

__all__ = ["COLUMNS", "FORMATS", "Store", "as_array", "columns_of", "output_problems"]
