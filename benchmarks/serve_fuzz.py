"""Thousands of generated requests against ``simcore serve``: python -m benchmarks.serve_fuzz.

schemathesis reads the server's own OpenAPI description and sends what fits it and what does not;
every answer must be one that the description knows, none a 5xx. Ends with 1 where one is not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.served import served

#: Names are looked up in databases: text that is valid as text is mostly refused.
LEFT_OUT = "positive_data_acceptance"


def main() -> int:
    """Start a server, send, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=120, help="generated cases an operation")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with served("--rate", "1000000") as address:
        done = subprocess.run(
            [
                "schemathesis", "run", f"{address}/openapi.json", "--no-color",
                "--max-examples", str(asked.examples), "--seed", str(asked.seed),
                "--exclude-checks", LEFT_OUT,
            ],
            check=False,
        )  # fmt: skip
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
