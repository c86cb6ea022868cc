"""How long users of the web page wait, in a real browser: ``python -m benchmarks.page [--json]``.

The page measures two times itself: from opening it to the first painted answer, and from the move
of a slider (eight moves a second) to the painted answer. Their medians are printed next to the
required times; nothing is asserted. Needs playwright and Debian's ``chromium``, or the browser in
``SIMCORE_CHROMIUM``. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from typing import Any

from benchmarks.served import served

FIRST_ASKED_MS, UPDATE_ASKED_MS = 1000.0, 150.0
SEED = "?model=latte-xl&gpus=4x8xA6000ada"
SLIDERS = ("Nodes, slider", "Micro-batch, samples a GPU, slider")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WAIT_MS, BETWEEN_MOVES_MS = 10_000, 120


def times_ms(page: Any, name: str) -> list[float]:
    """The times [ms] that the page measured under one name."""
    found = page.evaluate(f"performance.getEntriesByName({name!r}).map(e => e.duration)")
    return [float(f) for f in found]


def opened(browser: Any, address: str) -> Any:
    """A new page in the browser, returned after its first answer is painted."""
    page = browser.new_context().new_page()
    page.goto(address)
    for _ in range(WAIT_MS // 10):
        if times_ms(page, "first-answer"):
            return page
        page.wait_for_timeout(10)
    raise RuntimeError("the page has shown no answer")


def measured(browser: Any, address: str, openings: int) -> dict[str, float]:
    """Median times of first answers and of updates [ms]."""
    first = [times_ms(opened(browser, address), "first-answer")[0] for _ in range(openings)]
    page = opened(browser, address + "/" + SEED)
    for label in SLIDERS:
        slider = page.get_by_label(label)
        for key in ["ArrowRight"] * 6 + ["ArrowLeft"] * 6:
            slider.press(key)
            page.wait_for_timeout(BETWEEN_MOVES_MS)
    updates = times_ms(page, "update")
    return {
        "first_answer_ms": statistics.median(first), "first_answer_asked_ms": FIRST_ASKED_MS,
        "update_ms": statistics.median(updates), "update_asked_ms": UPDATE_ASKED_MS,
        "updates": len(updates),
    }  # fmt: skip


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--openings", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    path = os.environ.get("SIMCORE_CHROMIUM") or shutil.which("chromium")
    if path is None:
        sys.stderr.write("error: no Chromium to drive the page with: apt-get install chromium\n")
        return 2
    from playwright.sync_api import sync_playwright

    with served("--rate", "100000") as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        found = measured(browser, server.address, asked.openings)
        browser.close()
    if asked.json:
        sys.stdout.write(json.dumps(found) + "\n")
        return 0
    for name in ("first_answer", "update"):
        figures = f"asked {found[name + '_asked_ms']:6.0f} ms, found {found[name + '_ms']:6.0f} ms"
        sys.stdout.write(f"{name.replace('_', ' '):14}{figures}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
