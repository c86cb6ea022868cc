"""Generated requests against the API's own description: no answer is a 5xx or undescribed.

A short run; ``python -m benchmarks.serve_fuzz`` is the long one, over the network, with the cases
that schemathesis makes of each parameter's bounds too (some four thousand requests).
"""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serving import UNLIMITED

from simcore.serve.app import create_app

#: Hosts are not checked: the client of schemathesis calls it "testserver" or what it likes.
schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(rate=UNLIMITED))
#: A report takes seconds to draw, and reads a request as the others do.
quick = schema.exclude(path="/api/v1/report")
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance,
    response_schema_conformance,
]  # fmt: skip


@quick.parametrize()
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_generated_request_is_a_server_error(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)


@pytest.mark.parametrize("model", ["latte-xl", "gpt2", "mixtral-8x7b", "mnist-cnn"])
@schema.include(path_regex="answer|scaling|predict$|launch").parametrize()
@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_nor_is_one_with_a_model_and_a_cluster(case: schemathesis.Case, model: str) -> None:
    """Random words rarely name a model: here the rest of the request meets the engine."""
    case.query = dict(case.query or {}) | {"model": model, "gpus": "2x4xA100"}
    response = case.call()
    assert response.status_code in (200, 422), response.text
