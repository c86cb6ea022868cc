"""The output file of a finished sweep: its columns, and the CSV, JSON and Parquet writers.

The bytes of the file depend only on the points, not on how they were divided into batches.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import dataclass
from simcore.hardware.cluster import ClusterSpec
from simcore.planning.points import COLUMNS, WORDS, Batch
from simcore.planning.ranking import network_of

FORMATS = (".parquet", ".csv", ".json")
#: Least rows of a Parquet row group: batches are joined until they have as many.
GROUP_ROWS = 100_000


def output_problems(path: Path) -> list[str]:
    """Error messages about the name of an output file, to check before anything is computed."""
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
            return ["Parquet needs pyarrow: pip install '.[parquet]', or write .csv or .json"]
    return []


@dataclass(frozen=True)
class Coded:
    """A column of texts that repeat, as an array [C]: ``words[codes]``."""

    words: tuple[str, ...]
    codes: NDArray[np.integer[Any]]


#: A column: one value for all rows, an array [C] of numbers, or texts.
Values = str | int | float | None | NDArray[Any] | Coded


def columns_of(batch: Batch, clusters: Sequence[ClusterSpec]) -> dict[str, Values]:
    """The columns of a batch, by name."""
    assert batch.form is not None
    form, layout = batch.form, batch.form.layout
    used, where = np.unique(batch.cluster, return_inverse=True)
    specs = [clusters[int(i)] for i in used]

    def of_cluster(values: Sequence[int]) -> NDArray[np.int64]:
        return np.array(values, dtype=np.int64)[where]

    n_gpus = of_cluster([c.n_gpus for c in specs])
    ranks = of_cluster([layout.data_ranks(c.n_gpus) for c in specs])
    micro, accum = batch.micro_batch.astype(np.int64), batch.grad_accum.astype(np.int64)
    return {
        **form.columns(),
        "cluster": Coded(tuple(str(c) for c in specs), where),
        "n_gpus": n_gpus,
        "n_nodes": of_cluster([c.n_nodes for c in specs]),
        "network": Coded(tuple(network_of(c) for c in specs), where),
        "micro_batch": micro,
        "grad_accum": accum,
        "global_batch": micro * accum * ranks,
        "step_time_s": batch.step_time_s,
        "samples_per_s": batch.samples_per_s,
        "samples_per_s_per_gpu": batch.samples_per_s / n_gpus,
        "tokens_per_s": batch.work_per_s if form.tokens_per_sample else None,
        "memory_bytes": batch.memory_bytes,
        "capacity_bytes": batch.capacity_bytes,
        "fits": batch.fits,
    }


def as_array(values: Values, n: int) -> NDArray[Any]:
    """A column as an array of ``n`` rows; equal texts share one object."""
    if isinstance(values, Coded):
        return np.array(values.words, dtype=object)[values.codes]
    if isinstance(values, np.ndarray):
        return values
    kind = object if values is None or isinstance(values, str) else None
    return np.full(n, values, dtype=kind)


def rows_of(batch: Batch, clusters: Sequence[ClusterSpec]) -> Iterator[tuple[Any, ...]]:
    """The rows of a batch, with values in the order of ``COLUMNS``."""
    if len(batch):
        found = columns_of(batch, clusters)
        yield from zip(*(as_array(found[c], len(batch)).tolist() for c in COLUMNS), strict=True)


def _write_csv(path: Path, batches: Iterator[Batch], clusters: Sequence[ClusterSpec]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for batch in batches:
            writer.writerows(rows_of(batch, clusters))


def _write_json(path: Path, batches: Iterator[Batch], clusters: Sequence[ClusterSpec]) -> None:
    """Write one object: ``points``, a list with one object per line, and ``invalid``, counts of
    invalid points by reason.
    """
    invalid: dict[str, int] = {}
    with path.open("w", encoding="utf-8") as stream:
        stream.write('{"points": [')
        separator = "\n"
        for batch in batches:
            for reason, n in batch.invalid.items():
                invalid[reason] = invalid.get(reason, 0) + n
            for row in rows_of(batch, clusters):
                line = json.dumps(dict(zip(COLUMNS, row, strict=True)), allow_nan=False)
                stream.write(separator + line)
                separator = ",\n"
        stream.write(f'\n], "invalid": {json.dumps(invalid)}}}\n')


def _write_parquet(path: Path, batches: Iterator[Batch], clusters: Sequence[ClusterSpec]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.dictionary(pa.int32(), pa.string())
    kinds = {
        **dict.fromkeys(WORDS, text),
        **dict.fromkeys(("n_gpus", "n_nodes", "seq_len", "tp", "pp", "vpp", "cp", "ep",
                         "micro_batch", "grad_accum", "global_batch"), pa.int64()),
        "fits": pa.bool_(),
    }  # fmt: skip
    schema = pa.schema([(c, kinds.get(c, pa.float64())) for c in COLUMNS])
    with pq.ParquetWriter(path, schema) as writer:
        for group in _row_groups(batches):
            full = [(columns_of(b, clusters), len(b)) for b in group]
            columns = {c: [(found[c], n) for found, n in full] for c in COLUMNS}
            arrays = [
                _words_array(columns[f.name])
                if f.type == text
                else pa.array(np.concatenate([as_array(v, n) for v, n in columns[f.name]]), f.type)
                for f in schema
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _row_groups(batches: Iterator[Batch]) -> Iterator[list[Batch]]:
    """Groups of batches with at least ``GROUP_ROWS`` rows each, but for the last group."""
    group: list[Batch] = []
    rows = 0
    for batch in batches:
        if len(batch):
            group.append(batch)
            rows += len(batch)
        if rows >= GROUP_ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group


def _words_array(columns: Sequence[tuple[Values, int]]) -> Any:
    """Texts of several batches as one dictionary array of pyarrow."""
    import pyarrow as pa

    found = joined_words(columns)
    return pa.DictionaryArray.from_arrays(found.codes, pa.array(list(found.words), pa.string()))


def joined_words(columns: Sequence[tuple[Values, int]]) -> Coded:
    """A column of text of several batches, concatenated; each comes with its number of rows."""
    known: dict[Any, int] = {}
    codes: list[NDArray[np.int32]] = []
    for values, n in columns:
        coded = values if isinstance(values, Coded) else None
        words = coded.words if coded else (values,)
        own = np.array([known.setdefault(w, len(known)) for w in words], dtype=np.int32)
        codes.append(own[coded.codes] if coded else np.full(n, own[0]))
    return Coded(tuple(known), np.concatenate(codes))


_WRITERS = {".csv": _write_csv, ".json": _write_json, ".parquet": _write_parquet}


def write_points(
    path: Path, suffix: str, batches: Iterable[Batch], clusters: Sequence[ClusterSpec]
) -> None:
    """Write all points to ``path`` in the format that ``suffix`` names. Raises OSError."""
    _WRITERS[suffix](path, iter(batches), clusters)
