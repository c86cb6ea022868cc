"""``simcore serve`` under load: python -m benchmarks.serve_load (needs Debian's wrk).

Two hundred connections, each waiting about a second between requests: 200 requests a second.
Every answer must be 200 or 429, none may be missing. Afterwards the server must still answer.
Exit code 1 if one of these fails.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from benchmarks.served import served

CONNECTIONS = 200
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
            ["wrk", "-t2", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "5s",
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


def main() -> int:
    """Start a server, send it requests, check that it still answers, and stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--rate", type=int, default=200, help="requests a second")
    asked = parser.parse_args()
    if shutil.which("wrk") is None:
        print("wrk is not installed: apt-get install wrk", file=sys.stderr)  # noqa: T201
        return 2
    with served() as address:
        found = load(address, asked.seconds, asked.rate)
        time.sleep(1.1)
        started = time.monotonic()
        with urllib.request.urlopen(address + PATHS[0], timeout=5) as answer:
            found["after_ms"] = round(1000 * (time.monotonic() - started), 1)
            found["after_status"] = answer.status
    print(json.dumps(found, indent=2))  # noqa: T201
    statuses: dict[str, int] = found["statuses"]  # type: ignore[assignment]
    broken = sum(int(found[k]) for k in ("connect", "read", "write", "timeout"))  # type: ignore[call-overload]
    return int(bool(set(statuses) - ALLOWED) or broken > 0)


if __name__ == "__main__":
    sys.exit(main())
