"""How long users of the web page wait: ``python -m benchmarks.page [--json] [--server-only]``.

Of the server: medians of answers to one client, and answers a second to four clients. In a real
browser the page measures two times itself: from opening it to the first painted answer, and from
the move of a slider (eight moves a second) to the painted answer. All are printed next to the
required figures; nothing is asserted. The browser is playwright's with Debian's ``chromium``, or
the one in ``SIMCORE_CHROMIUM``. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.served import Served, processor_s, served

FIRST_ASKED_MS, UPDATE_ASKED_MS = 800.0, 100.0
SEED = "?model=latte-xl&gpus=4x8xA6000ada"
SLIDERS = ("Nodes, slider", "Micro-batch, samples per GPU, slider")
#: Set-up of an answer, and the time that it may take [ms].
ANSWERS = {
    "answer, one GPU type": ("model=latte-xl&gpus=4x8xA6000ada", 5.0),
    "answer, pipeline": ("model=gpt3-175b&gpus=16x8xH100&tp=8&pp=8&micro_batch=1", 15.0),
    "answer, does not fit": ("model=llama3-70b&gpus=1x8xA100", 40.0),
}
CLIENTS, RATE_ASKED_PER_S, CALLS = 4, 300.0, 100
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WAIT_MS, BETWEEN_MOVES_MS = 10_000, 120


@dataclass(frozen=True)
class Figure:
    """A figure of the page, the required one, and what the server's processes worked for it."""

    name: str
    asked: float
    found: float
    unit: str = "ms"
    processor_ms: float | None = None  # of an answer


def ask(server: http.client.HTTPConnection, words: str) -> float:
    """Milliseconds of an answer. Raises RuntimeError where it is refused."""
    begun = time.perf_counter()
    server.request("GET", f"/api/v1/answer?{words}")
    answer = server.getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{words} was answered with {answer.status}")
    return (time.perf_counter() - begun) * 1e3


def of_server(server: Served) -> list[Figure]:
    """Times of answers to one client, and answers a second to several, without a browser."""
    host = server.address.removeprefix("http://")

    def client(words: str, calls: int) -> list[float]:
        connection = http.client.HTTPConnection(host, timeout=60)
        try:
            return [ask(connection, words) for _ in range(calls)]
        finally:
            connection.close()

    found = []
    for name, (words, asked_ms) in ANSWERS.items():
        client(words, 2)
        used_s = processor_s(server.pid)
        times = client(words, CALLS)
        each_ms = (processor_s(server.pid) - used_s) / CALLS * 1e3
        found.append(Figure(name, asked_ms, statistics.median(times), processor_ms=each_ms))
    words = SEED.removeprefix("?")
    with ThreadPoolExecutor(CLIENTS) as clients:
        for n in (10, CALLS):  # the first for the processes' caches
            begun, used_s = time.perf_counter(), processor_s(server.pid)
            list(clients.map(client, [words] * CLIENTS, [n] * CLIENTS))
    rate = CLIENTS * CALLS / (time.perf_counter() - begun)
    each_ms = (processor_s(server.pid) - used_s) / (CLIENTS * CALLS) * 1e3
    return [*found, Figure("answers, four clients", RATE_ASKED_PER_S, rate, "a second", each_ms)]


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


def in_browser(path: str, address: str, openings: int) -> list[Figure]:
    """Median times of first answers and of updates."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        first = [times_ms(opened(browser, address), "first-answer")[0] for _ in range(openings)]
        page = opened(browser, address + "/" + SEED)
        for label in SLIDERS:
            slider = page.get_by_label(label)
            for key in ["ArrowRight"] * 6 + ["ArrowLeft"] * 6:
                slider.press(key)
                page.wait_for_timeout(BETWEEN_MOVES_MS)
        updates = times_ms(page, "update")
        browser.close()
    return [
        Figure("first answer, browser", FIRST_ASKED_MS, statistics.median(first)),
        Figure("update, browser", UPDATE_ASKED_MS, statistics.median(updates)),
    ]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--openings", type=int, default=5)
    parser.add_argument("--server-only", action="store_true", help="no browser")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    path = os.environ.get("SIMCORE_CHROMIUM") or shutil.which("chromium")
    if path is None and not asked.server_only:
        sys.stderr.write("error: no Chromium to drive the page with: apt-get install chromium\n")
        return 2
    with served("--rate", "100000") as server:
        found = of_server(server)
        if path is not None and not asked.server_only:
            found += in_browser(path, server.address, asked.openings)
    if asked.json:
        sys.stdout.write(json.dumps([asdict(f) for f in found]) + "\n")
        return 0
    for f in found:
        worked = f" ({f.processor_ms:.1f} ms of processor each)" if f.processor_ms else ""
        sys.stdout.write(
            f"{f.name:24} asked {f.asked:6.0f}, found {f.found:6.1f} {f.unit}{worked}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
