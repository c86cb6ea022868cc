"""Thousands of generated requests against ``simcore serve``: python -m benchmarks.serve_fuzz.

schemathesis reads the server's OpenAPI description and sends valid and invalid requests. Every
answer must be in the description, and none may be a 5xx; exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.served import served

#: The check of schemathesis that is left out: that the server accepts all valid text. simcore
#: refuses most texts, because names must be in its databases.
LEFT_OUT = "positive_data_acceptance"
#: A path that is left out: a report takes seconds to draw, and its requests are parsed like others.
SLOW = "/api/v1/report"


def main() -> int:
    """Start a server, send the requests, and stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=120, help="generated cases an operation")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with served("--rate", "1000000") as server:
        done = subprocess.run(
            [
                "schemathesis", "run", f"{server.address}/openapi.json", "--no-color",
                "--max-examples", str(asked.examples), "--seed", str(asked.seed),
                "--exclude-checks", LEFT_OUT, "--exclude-path", SLOW,
            ],
            check=False,
        )  # fmt: skip
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
