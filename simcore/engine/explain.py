"""Where each term of a prediction comes from: formula, inputs, source."""

from __future__ import annotations

from simcore.engine.predict import Request
from simcore.engine.result import Explanation, Prediction


def explain(request: Request, result: Prediction) -> dict[str, Explanation]:
    """Explanations by term name."""
    return {}
