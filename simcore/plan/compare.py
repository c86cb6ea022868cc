"""Several clusters or strategies for one job, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.base.units import HOUR, KILO, MEGA
from simcore.engine.predict import predict
from simcore.engine.request import make_request
from simcore.engine.result import Prediction
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.prices import PriceBook
from simcore.hardware.profile import load_profile
from simcore.plan.energy import busy_frac, power_w, tdp_w
from simcore.plan.space import Space

#: More columns than this is a sweep.
MAX_COLUMNS = 12
#: Words whose values are shown with their name.
_DEGREES = ("tp", "pp", "vpp", "cp", "ep", "micro_batch", "grad_accum", "global_batch", "seq_len")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One option: what is predicted for it, or why it cannot be.

    Cost and energy are a million samples'; None where no price is known.
    """

    cluster: str
    words: str
    prediction: Prediction | None = None
    reason: str = ""
    speedup: float | None = None
    gpu_h_per_million: float | None = None
    usd_per_million: float | None = None
    kwh_per_million: float | None = None

    @property
    def fits(self) -> bool:
        """Whether it is valid and the fullest GPU holds it."""
        return self.prediction is not None and self.prediction.fits

    def to_dict(self) -> dict[str, Any]:
        """Plain values, units in the names."""
        out: dict[str, Any] = {"cluster": self.cluster, "words": self.words, "fits": self.fits}
        p = self.prediction
        if p is None:
            return {**out, "reason": self.reason}
        t = p.step_time_s
        return {
            **out,
            "memory_bytes": p.memory.device_bytes,
            "capacity_bytes": p.memory.capacity_bytes,
            "step_time_s": {"value": t.value, "low": t.low, "high": t.high, "origin": t.origin},
            "samples_per_s": p.samples_per_s,
            "samples_per_s_per_gpu": p.samples_per_s / p.n_gpus,
            "n_gpus": p.n_gpus,
            "global_batch": p.global_batch,
            "mfu_frac": p.mfu_frac,
            "bound_by": p.bound_by,
            "speedup": self.speedup,
            "gpu_hours_per_million_samples": self.gpu_h_per_million,
            "usd_per_million_samples": self.usd_per_million,
            "kwh_per_million_samples": self.kwh_per_million,
            "assumptions": list(p.assumptions),
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Options in the order asked for; speed-ups are against the first that is valid."""

    model: str
    sample_unit: str
    columns: tuple[Column, ...]
    price_sources: dict[str, str]
    defaults: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, units in the names."""
        return {
            "model": self.model,
            "sample_unit": self.sample_unit,
            "columns": [c.to_dict() for c in self.columns],
            "price_sources": self.price_sources,
            "defaults": list(self.defaults),
        }


def compare(space: Space, prices: PriceBook, micro_batch: str | None = None) -> Comparison:
    """Predict every point of a small space. An invalid point is a column that says why.

    ``micro_batch="max"``: each with the largest that fits. Raises InvalidConfig where there are
    more points than columns, or none that is valid.
    """
    if len(space) > MAX_COLUMNS:
        raise InvalidConfig(
            [f"{len(space)} options are more than {MAX_COLUMNS}: use `simcore sweep`"]
        )
    profile = load_profile(dict(space.fixed).get("calibration"))
    varying = {name for name, values in space.axes if len(values) > 1}
    arrays = {
        "micro_batch": space.micro_batches,
        "grad_accum": space.grad_accums,
        "global_batch": space.global_batches,
    }
    varying |= {name for name, values in arrays.items() if len(values) > 1}
    columns: list[Column] = []
    for model, form, cluster, batch in _points(space):
        words = {k: v for k, v in form.items() if k != "calibration"}
        told = [
            f"{name.replace('_', '-')} {value}" if name in _DEGREES else str(value)
            for name, value in {**words, **batch}.items()
            if name in varying
        ]
        if len(space.models) > 1:
            told.insert(0, model)
        try:
            options: dict[str, Any] = {**words, **batch}
            if micro_batch is not None:
                options["micro_batch"] = micro_batch
            request = make_request(model, cluster, profile=profile, **options)
            found = predict(request)
        except SimcoreError as err:
            columns.append(Column(cluster=str(cluster), words=" ".join(told), reason=str(err)))
            continue
        columns.append(_column(found, cluster, " ".join(told), prices, columns))
    valid = [c.prediction for c in columns if c.prediction is not None]
    if not valid:
        raise InvalidConfig(list(dict.fromkeys(c.reason for c in columns)))
    return Comparison(
        model=valid[0].model_full_name if len(space.models) == 1 else ", ".join(space.models),
        sample_unit=valid[0].sample_unit,
        columns=tuple(columns),
        price_sources=prices.sources(space.clusters),
        defaults=valid[0].defaults,
    )


def _points(space: Space) -> Iterator[tuple[str, dict[str, Any], ClusterSpec, dict[str, Any]]]:
    accum = "global_batch" if space.global_batches else "grad_accum"
    steps = space.global_batches or space.grad_accums
    for (model, form), cluster, micro, n in product(
        space.forms(), space.clusters, space.micro_batches, steps
    ):
        yield model, dict(form), cluster, {"micro_batch": micro, accum: n}


def _column(
    p: Prediction, cluster: ClusterSpec, words: str, prices: PriceBook, before: list[Column]
) -> Column:
    first = next((c.prediction for c in before if c.prediction is not None), p)
    hours = MEGA / p.samples_per_s / HOUR
    usd = prices.cluster_usd_per_h(cluster)
    watts = power_w(tdp_w(cluster), busy_frac(p.time_s, p.step_time_s.value))
    return Column(
        cluster=str(cluster),
        words=words,
        prediction=p,
        speedup=p.samples_per_s / first.samples_per_s,
        gpu_h_per_million=hours * p.n_gpus,
        usd_per_million=None if usd is None else hours * usd,
        kwh_per_million=hours * watts / KILO,
    )
