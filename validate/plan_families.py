"""Does the layout that simcore ranks first do well? ``python -m validate.plan_families llm.csv``.

A family is one model, batch, sequence length and precision on one cluster of one source, measured
with at least five layouts. Its regret is how much slower the layout ranked first was measured to
be than the best measured one. Nothing is fitted: the predictions are blind.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

#: What makes a family, and what is chosen within one.
SAME = ("source", "model", "gpu_type", "gpus", "seq_len", "global_batch", "precision")
CHOSEN = ("tp", "pp", "vpp", "cp", "ep", "sharding", "micro_batch", "recompute")
#: Layouts that a family has at least; regrets that count as good, and the shares of families that
#: are to have them.
LAYOUTS = 5
GOOD = {0.01: 0.6, 0.03: 0.8}


def families(
    rows: Iterable[Mapping[str, str]], judged: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Regret of each family, the worst first. ``judged``: ``per_row`` of ``api.validate``."""
    table = {r["id"]: r for r in rows}
    found: dict[tuple[str, ...], list[tuple[float, float, tuple[str, ...]]]] = defaultdict(list)
    for said in judged:
        row = table.get(said["id"])
        if row is None or said["quantity"] != "step_time" or not said["measured"]:
            continue
        layout = tuple(row[c] for c in CHOSEN)
        found[tuple(row[c] for c in SAME)].append((said["predicted"], said["measured"], layout))
    out = []
    for key, runs in found.items():
        if len({layout for _, _, layout in runs}) < LAYOUTS:
            continue
        first, best = min(runs), min(runs, key=lambda r: r[1])
        out.append({
            **dict(zip(SAME, key, strict=True)),
            "layouts": len(runs),
            "regret_frac": first[1] / best[1] - 1.0,
            "chosen": dict(zip(CHOSEN, first[2], strict=True)),
            "best": dict(zip(CHOSEN, best[2], strict=True)),
        })  # fmt: skip
    return sorted(out, key=lambda f: -f["regret_frac"])


def good(found: Iterable[Mapping[str, Any]], regret_frac: float) -> int:
    """Number of families whose regret is at most ``regret_frac``."""
    return sum(f["regret_frac"] <= regret_frac for f in found)


def main() -> None:
    """The command."""
    from simcore import api

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with asked.file.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    found = families(rows, api.validate([asked.file])["per_row"])
    if asked.json:
        within = {f"{regret_frac:.0%}": good(found, regret_frac) for regret_frac in GOOD}
        sys.stdout.write(json.dumps({"within": within, "families": found}, indent=2) + "\n")
        return
    for f in found:
        sys.stdout.write(
            f"{f['regret_frac']:7.1%}  {f['model']} on {f['gpus']} {f['gpu_type']}, batch "
            f"{f['global_batch']}, {f['layouts']} layouts\n"
        )
    for regret_frac in GOOD:
        sys.stdout.write(
            f"{good(found, regret_frac)} of {len(found)} families within {regret_frac:.0%} of the "
            "best\n"
        )


if __name__ == "__main__":
    main()
