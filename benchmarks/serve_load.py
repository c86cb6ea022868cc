"""``simcore serve`` under load: python -m benchmarks.serve_load (needs Debian's wrk).

Sixteen clients of ten connections offer 200 requests a second, while a hostile one asks the most
expensive questions, eight at a time. Every answer must be 200, 422 or 429, and none may be missing;
the server and its processes stay below 1 GB. Afterwards the server must still answer. Exit code 1
if one of these fails.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.served import Served, family, served

CONNECTIONS, HOSTILE = 16 * 10, 8
#: Largest memory of the server and its processes together [bytes].
MOST_BYTES = 1e9
PATHS = (
    "/api/v1/answer?model=latte-xl&gpus=4x8xA6000ada",
    "/api/v1/answer?model=latte-xl&gpus=%dx8xA6000ada&strategy=zero2",
    "/api/v1/answer?model=gpt3-175b&gpus=16x8xH100&tp=8&pp=8&micro_batch=%d",
    "/api/v1/scaling?model=bert-large&gpus=%dx8xA100",
    "/api/v1/predict?model=resnet-50&gpus=8xA100&micro_batch=%d",
    "/api/v1/answer?model=nothing&gpus=%d",
    "/",
    "/static/app.js",
)
#: What takes longest: a schedule of 250,000 pieces, searches in mixtures, plans and reports.
#: The number in it is a multiple of the one beside it, so that its layout is a valid one.
EXPENSIVE = (
    (
        "/api/v1/trace?model=deepseek-v3&gpus=2048x8xH100&pp=16&ep=64&micro_batch=1&grad_accum=%d",
        100,
    ),
    ("/api/v1/answer?model=kimi-k2&gpus=%dx8xB200&tp=4&pp=8&micro_batch=max", 4),
    ("/api/v1/answer?model=deepseek-v3&gpus=%dx8xH100&tp=8&pp=2&seq_len=131072&stages=auto", 100),
    ("/api/v1/scaling?model=deepseek-v3&gpus=%dx8xH100&pp=16&ep=64", 128),
    ("/api/v1/plan?model=deepseek-v3&gpus=H100,B200,H200&max_gpus=4096&tokens=%d", 10**11),
    ("/api/v1/report?model=deepseek-v3&gpus=%dx8xH100&pp=4&ep=64", 32),
)
#: Statuses are counted in each thread and added up at the end. 422 is the right answer to the
#: sixth path and to no other.
SCRIPT = """
local paths = {%(paths)s}
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init(args)
  counts = ""; seen = {}; at = 0; asked = {}
  math.randomseed(os.time())
end
function delay() return math.random(0.4 * %(delay_ms)d, 1.3 * %(delay_ms)d) end
function request()
  at = at + 1
  return wrk.format("GET", string.format(paths[at %% #paths + 1], at %% 64 + 1))
end
function response(status)
  seen[status] = (seen[status] or 0) + 1
  local parts = {}
  for k, v in pairs(seen) do table.insert(parts, '"' .. k .. '":' .. v) end
  counts = table.concat(parts, ",")
end
function done(summary, latency)
  local all = {}
  for _, thread in ipairs(threads) do table.insert(all, "{" .. thread:get("counts") .. "}") end
  io.write(string.format(
    'RESULT {"threads":[%%s],"requests":%%d,"seconds":%%.3f,"connect":%%d,"read":%%d,' ..
    '"write":%%d,"timeout":%%d,"p50_ms":%%.2f,"p99_ms":%%.2f}\\n',
    table.concat(all, ","), summary.requests, summary.duration / 1e6, summary.errors.connect,
    summary.errors.read, summary.errors.write, summary.errors.timeout,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
"""
ALLOWED = {"200", "422", "429"}


def load(address: str, seconds: int, rate: int) -> dict[str, object]:
    """Send requests; returns answers by status, connection errors and latencies [ms]."""
    paths = ", ".join(json.dumps(p) for p in PATHS)
    text = SCRIPT % {"paths": paths, "delay_ms": 1000 * CONNECTIONS // rate}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "paced.lua"
        script.write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["wrk", "-t2", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "30s",
             "-s", str(script), address],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    line = next(x for x in done.stdout.splitlines() if x.startswith("RESULT "))
    found: dict[str, object] = json.loads(line.removeprefix("RESULT "))
    statuses: dict[str, int] = {}
    for thread in found.pop("threads"):  # type: ignore[attr-defined]
        for status, n in thread.items():
            statuses[status] = statuses.get(status, 0) + n
    per_s = found["requests"] / found["seconds"]  # type: ignore[operator]
    return {"statuses": dict(sorted(statuses.items())), "per_s": round(per_s, 1), **found}


def harass(address: str, number: int, end: float, found: Counter[str]) -> None:
    """Ask the most expensive questions one after the other, and count the answers by status."""
    for n in itertools.count(number):
        if time.monotonic() > end:
            return
        path, multiple = EXPENSIVE[n % len(EXPENSIVE)]
        path %= multiple * (n % 60 + 1)
        try:
            with urllib.request.urlopen(address + path, timeout=120) as answer:
                found[str(answer.status)] += 1
        except urllib.error.HTTPError as err:
            found[str(err.code)] += 1
        except OSError as err:
            found[type(err).__name__] += 1


def own_bytes(pid: int) -> float:
    """Memory of a process and those that it began; a page that several share counts once."""
    total = 0.0
    for one in family(pid):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended
            continue
        total += 1024.0 * sum(int(x.split()[1]) for x in lines if x.startswith("Pss:"))
    return total


@contextmanager
def harassed(server: Served, seconds: float) -> Iterator[dict[str, Any]]:
    """A hostile client beside whatever else is done: its answers, and the server's memory."""
    found: dict[str, Any] = {"hostile": Counter(), "most_bytes": 0.0}
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=harass, args=(server.address, n, end, found["hostile"]))
               for n in range(HOSTILE)]  # fmt: skip

    def watch() -> None:
        while time.monotonic() < end:
            found["most_bytes"] = max(found["most_bytes"], own_bytes(server.pid))
            time.sleep(0.5)

    threads.append(threading.Thread(target=watch))
    for thread in threads:
        thread.start()
    yield found
    for thread in threads:
        thread.join()


def main() -> int:
    """Start a server, send it requests, check that it still answers, and stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=200, help="requests a second")
    asked = parser.parse_args()
    if shutil.which("wrk") is None:
        print("wrk is not installed: apt-get install wrk", file=sys.stderr)  # noqa: T201
        return 2
    with served() as server:
        with harassed(server, asked.seconds) as beside:
            found = load(server.address, asked.seconds, asked.rate)
        found |= beside
        time.sleep(1.1)
        started = time.monotonic()
        with urllib.request.urlopen(server.address + PATHS[0], timeout=30) as answer:
            found["after_ms"] = round(1000 * (time.monotonic() - started), 1)
            found["after_status"] = answer.status
    print(json.dumps(found, indent=2))  # noqa: T201
    statuses: dict[str, int] = found["statuses"]  # type: ignore[assignment]
    broken = sum(int(found[k]) for k in ("connect", "read", "write", "timeout"))  # type: ignore[call-overload]
    wrong = {
        "an answer other than 200, 422 and 429": {*statuses, *found["hostile"]} - ALLOWED,  # type: ignore[misc]
        "requests without an answer": broken,
        "more than 1 GB": found["most_bytes"] > MOST_BYTES,  # type: ignore[operator]
    }
    for what, happened in wrong.items():
        if happened:
            print(f"FAILED: {what}: {happened}", file=sys.stderr)  # noqa: T201
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main())
