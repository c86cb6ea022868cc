"""Writes one plot of each kind: ``python docs/_ext/gallery.py docs/plots``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from simcore.cli.output import complain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODEL, GPUS = "latte-xl", "4x8xA6000ada"
#: Dots per inch: sharp on a page, with each file below 150 kB.
DPI = 120


def pictures() -> Iterator[tuple[str, Figure]]:
    """(name of the file without its ending, plot) of each kind, one at a time."""
    from simcore import api
    from simcore.answer.fabric_groups import fabric_view
    from simcore.answer.request import tables_folder
    from simcore.hardware.fabrics.record import fabric_named
    from simcore.report.plots import draw

    answer = api.predict(MODEL, GPUS)
    for kind in answer.plots:
        yield kind, answer.plot(kind)
    yield "comparison", api.compare(MODEL, (GPUS, "4x8xL40S", "2x8xH100")).plot("time")
    swept = api.sweep(
        "gpt2-xl",
        [f"1x{n}xA100-PCIe-40GB" for n in (1, 2, 4, 8)] + ["2x8xA100-PCIe-40GB"],
        strategy=("ddp", "zero1", "zero3"),
        micro_batch=(1, 2, 4, 8, 16),
        precision="amp-bf16",
    )
    yield "pareto", swept.plot()
    run = api.plan(
        "llama2-7b", "H100,A100,H200", tokens=2e11, deadline="6d", budget=25e3, max_gpus=256
    )
    yield "trade-off", run.plot()
    yield "goodput", api.goodput("llama3.1-405b", "2048x8xH100").plot()
    fabric = fabric_named("docs/examples/neighbour.yaml")
    yield "fabric", draw("fabric", fabric_view(fabric, "16x8xH100 ep64 pp2"))
    judged = api.validate(sorted(tables_folder().glob("*.csv")))
    for kind in ("measured", "errors"):
        yield kind, draw(kind, judged)


def main(folder: Path) -> None:
    """Write every plot into ``folder`` as KIND.png."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in pictures():
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=DPI)
        complain(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
