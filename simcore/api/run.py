"""The length, limits and prices of a run that a prediction tells besides the step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from simcore.answer.result import Prediction
from simcore.base.errors import InvalidConfig, Problems
from simcore.base.units import number_problems
from simcore.strategy.options import OPTIONS, inputs_of
from simcore.workload.resolve import model_of

#: Options of which one gives the length of a run.
LENGTHS = ("steps", "epochs", "tokens")


def run_violations(words: Mapping[str, Any]) -> list[str]:
    """Error messages about the options of a run; empty where they are valid."""
    problems = Problems()
    for name, value in words.items():
        if value is not None:
            problems.attempt(OPTIONS[name].read, value)
    lengths = [name for name in LENGTHS if words.get(name) is not None]
    if len(lengths) > 1:
        problems.append(f"give {' or '.join(f'--{name}' for name in lengths)}, not both")
    elif not lengths and words.get("deadline") is not None:
        problems.append("--deadline needs the length of the run: --tokens, --epochs or --steps")
    if not problems:
        for name in lengths:
            problems += number_problems(name, OPTIONS[name].read(words[name]))
    return problems


def told_of_run(
    model: Any, options: Mapping[str, Any], found: Prediction, words: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a prediction about its run and its cost. Raises InvalidConfig."""
    Problems(run_violations(words)).stop()
    words = {k: OPTIONS[k].read(v) for k, v in words.items() if v is not None}
    from simcore.hardware.prices import price_book
    from simcore.planning.run import cost_of, run_of

    price = words.get("price") or ()
    book = price_book([price] if isinstance(price, str) else list(price), words.get("prices"))
    added: dict[str, Any] = {}
    if words.get("cost") or price or words.get("prices"):
        added["cost"] = cost_of(found, book)
    steps = _steps(model, options, found, words)
    if steps is not None:
        run = run_of(found, steps, book, deadline=words.get("deadline"))
        added |= {"run_steps": steps, "run_time_s": run.time_s.value, "run": run}
    return added


def _steps(
    model: Any, options: Mapping[str, Any], found: Prediction, words: Mapping[str, Any]
) -> float | None:
    """Optimizer steps of the run; None where no length is given. Raises InvalidConfig."""
    if (steps := words.get("steps")) is not None:
        return float(steps)
    if (tokens := words.get("tokens")) is not None:
        if found.tokens_per_s is None:
            raise InvalidConfig([f"{found.model} has no tokens: give --steps or --epochs"])
        return float(math.ceil(tokens / (found.global_batch * found.tokens_per_sample)))
    if (epochs := words.get("epochs")) is None:
        return None
    source = model_of(model, inputs_of(options), options.get("settings"))
    data = source.dataset
    samples = data.samples.value if data else None
    if (stated := options.get("epoch_samples")) is not None:
        samples = OPTIONS["epoch_samples"].read(stated)
    if samples is None:
        raise InvalidConfig([f"{source.name} has no data set: give --steps, or --epoch-samples"])
    per_epoch = samples // found.global_batch
    if per_epoch < 1:
        name = f"data set {data.name}" if data else "the data set"
        raise InvalidConfig(
            [
                f"a global batch of {found.global_batch} is larger than {name} "
                f"({samples:.0f} samples)"
            ]
        )
    return float(epochs * per_epoch)
