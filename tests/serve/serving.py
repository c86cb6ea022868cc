"""The app for tests, in this process."""

from __future__ import annotations

from starlette.testclient import TestClient

from simcore.serve.app import create_app
from simcore.serve.run import LOOPBACK

#: Far above what tests ask for: only tests of the limit lower it.
UNLIMITED = 1_000_000


def client_of(rate: int = UNLIMITED) -> TestClient:
    """A client of a fresh app that answers to loopback names."""
    return TestClient(create_app(hosts=LOOPBACK, rate=rate), base_url="http://127.0.0.1")
