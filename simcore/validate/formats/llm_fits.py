"""Configurations of language models published as out of memory (``steps/llm_fits_or_not.csv``).

Rows have the columns of ``steps/llm.csv`` that describe a run, under the same names but for
``kernel`` (there ``variant``), and no measurement: they failed. What their sources have in common
is read as there.
"""

from __future__ import annotations

from dataclasses import replace

from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row
from simcore.validate.formats.llm import FORMAT as STEPS

#: Architectures and GPUs a node of the sources, which the table does not repeat.
_ARCHS = {"aleph-alpha": "llama"}
_PER_NODE = {"V100-SXM2-32GB": "4", "V100-SXM2-16GB": "4"}


def _read(name: str, row: Row) -> Case | Skipped:
    label = row["label"].strip().lower()
    if label not in ("oom", "fits"):
        return Skipped(name, f"label {row['label']!r} is neither OOM nor fits")
    full = {
        "model": f"{row['source']} {row['layers']} layers",
        "arch": _ARCHS.get(row["source"], "dense_gpt"),
        "gpus_per_node": _PER_NODE.get(row["gpu_type"], "8"),
        "sharding": "zero1",
        "variant": row["kernel"],
        "quality": "A",
        **row,
    }
    made = STEPS.read(name, full)
    if isinstance(made, Skipped):
        return made
    return replace(made, table="llm_fits", measured={"ran": float(label == "fits")}, columns=row)


FORMAT = Format("llm_fits", frozenset({"label", "kernel", "tp", "pp", "micro_batch"}), _read)
