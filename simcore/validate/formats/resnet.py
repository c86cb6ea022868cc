"""ResNet-152 on CIFAR-10: set-ups whose measured figures are lost; every row is one to fill."""

from __future__ import annotations

from simcore.engine.options import Options
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row, number

#: Both virtual machines' pages show 2.5 Gbps; the row without a figure is of the same cluster.
NETWORK = "eth-2.5"


def _read(name: str, row: Row) -> Case | Skipped:
    gbps = number(row, "network_gbps")
    options: Options = {"strategy": "manual" if row["strategy"].startswith("manual") else "ddp"}
    if "+" in row["cluster"] or not row["cluster"].startswith("1x"):
        options["network"] = f"eth-{gbps:g}" if gbps else NETWORK
    return Case(
        id=name,
        table="resnet152",
        model="resnet-152-cifar",
        gpus=row["cluster"],
        options=options,
        columns=row,
        notes=row.get("software", ""),
    )


FORMAT = Format("resnet152", frozenset({"cluster", "strategy", "network_gbps"}), _read)
