"""Compares several clusters or strategies for one job side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from simcore.answer.result import Prediction
from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.base.record import dataclass
from simcore.base.units import HOUR, KILO, MEGA
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.prices import PriceBook
from simcore.planning.run import gpus_of, watts_of
from simcore.planning.space import Space
from simcore.strategy.options import OPTIONS, Whole

#: Most columns of a comparison; for more there is the sweep.
MAX_COLUMNS = 12
#: What is counted where samples are text.
TOKEN = "token"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One option: its prediction, or the reason why it is invalid.

    words              the options in which it differs from the other columns
    speedup            throughput (tokens per second where samples are text, else samples) over that
                       of the first column that fits
    gpu_h_per_million  GPU-hours for a million samples
    usd_per_million    cost of a million samples; None where the price is unknown
    kwh_per_million    energy for a million samples

    The last four are None for a job that does not fit.
    """

    cluster: str
    words: str
    prediction: Prediction | None = None
    reason: str = ""
    speedup: float | None = None
    gpu_h_per_million: float | None = None
    usd_per_million: float | None = None
    kwh_per_million: float | None = None

    def per_million_tokens(self, of_samples: float | None) -> float | None:
        """A figure for a million tokens from that for a million samples; None without tokens."""
        p = self.prediction
        if of_samples is None or p is None or p.tokens_per_s is None:
            return None
        return of_samples / p.tokens_per_sample

    @property
    def fits(self) -> bool:
        """Whether it is valid and fits in the memory of the fullest GPU."""
        return self.prediction is not None and self.prediction.fits

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with units in the names."""
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
            "tokens_per_s": p.tokens_per_s,
            "n_gpus": p.n_gpus,
            "global_batch": p.global_batch,
            "mfu_frac": p.mfu_frac,
            "bound_by": p.bound_by,
            "faster": [asdict(f) for f in p.faster],
            "fixes": list(p.fixes),
            "speedup": self.speedup,
            "gpu_hours_per_million_samples": self.gpu_h_per_million,
            "usd_per_million_samples": self.usd_per_million,
            "kwh_per_million_samples": self.kwh_per_million,
            "gpu_hours_per_million_tokens": self.per_million_tokens(self.gpu_h_per_million),
            "usd_per_million_tokens": self.per_million_tokens(self.usd_per_million),
            "kwh_per_million_tokens": self.per_million_tokens(self.kwh_per_million),
            "assumptions": list(p.assumptions),
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Several options side by side, in the order of the request.

    ``price_sources``: source of each GPU's price; ``defaults``: defaults that all options share.
    """

    model: str
    sample_unit: str
    columns: tuple[Column, ...]
    price_sources: dict[str, str]
    defaults: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def counts_tokens(self) -> bool:
        """Whether throughput and cost are those of tokens: the samples of all options are text."""
        return all(p.tokens_per_s is not None for p in self.predictions)

    @property
    def unit(self) -> str:
        """What throughput and cost count: ``TOKEN``, or what a sample is."""
        return TOKEN if self.counts_tokens else self.sample_unit

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """The predictions of the valid options."""
        return tuple(c.prediction for c in self.columns if c.prediction is not None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with units in the names."""
        return {
            "model": self.model,
            "sample_unit": self.sample_unit,
            "columns": [c.to_dict() for c in self.columns],
            "price_sources": self.price_sources,
            "defaults": list(self.defaults),
        }


#: Predicts one option, from the model, the cluster and the other options of the request.
Ask = Callable[[str, ClusterSpec, dict[str, Any]], Prediction]


def compare(space: Space, prices: PriceBook, ask: Ask) -> Comparison:
    """The predictions of all points of a small space, side by side.

    An invalid point is a column with the reason. Raises InvalidConfig where there are more than
    ``MAX_COLUMNS`` points, or no valid one.
    """
    if len(space) > MAX_COLUMNS:
        raise InvalidConfig(
            [f"{len(space)} options are more than {MAX_COLUMNS}: use `simcore sweep`"]
        )
    varying = {name for name, values in space.axes if len(values) > 1}
    arrays = {
        "micro_batch": space.micro_batches,
        "grad_accum": space.grad_accums,
        "global_batch": space.global_batches,
    }
    varying |= {name for name, values in arrays.items() if len(values) > 1}
    numbers = [o.name for o in OPTIONS if isinstance(o.kind, Whole)]
    networks = {c.network for c in space.clusters}
    alike = len({str(c) for c in space.clusters}) < len(space.clusters)  # machines by name
    columns: list[Column] = []
    for model, form, cluster, batch in _points(space):
        texts = [
            f"{name.replace('_', '-')} {value}" if name in numbers else str(value)
            for name, value in {**form, **batch}.items()
            if name in varying
        ]
        if len(space.models) > 1:
            texts.insert(0, model)
        if len(networks) > 1 and (space.networked or alike):
            texts.append(cluster.network)
        words = " ".join(texts)
        try:
            found = ask(model, cluster, {**form, **batch})
        except SimcoreError as err:
            columns.append(Column(cluster=str(cluster), words=words, reason=str(err)))
            continue
        columns.append(_column(found, cluster, words, prices, columns))
    valid = [c.prediction for c in columns if c.prediction is not None]
    if not valid:
        raise InvalidConfig(list(dict.fromkeys(c.reason for c in columns)))
    return _comparison(columns, space.clusters, prices)


def side_by_side(
    predictions: Sequence[Prediction], words: Sequence[str], prices: PriceBook
) -> Comparison:
    """A comparison of existing predictions; ``words``: the options that distinguish each."""
    clusters = [gpus_of(p) for p in predictions]
    columns: list[Column] = []
    for p, cluster, text in zip(predictions, clusters, words, strict=True):
        columns.append(_column(p, cluster, text, prices, columns))
    return _comparison(columns, clusters, prices)


def _comparison(
    columns: list[Column], clusters: Iterable[ClusterSpec], prices: PriceBook
) -> Comparison:
    valid = [c.prediction for c in columns if c.prediction is not None]
    units = {p.sample_unit for p in valid}
    return Comparison(
        model=", ".join(dict.fromkeys(p.model_full_name for p in valid)),
        sample_unit=units.pop() if len(units) == 1 else "sample",
        columns=tuple(columns),
        price_sources=prices.sources(clusters),
        defaults=tuple(d for d in valid[0].defaults if all(d in p.defaults for p in valid)),
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
    first = next((c.prediction for c in before if c.prediction is not None and c.fits), p)
    hours = MEGA / p.samples_per_s / HOUR
    usd = prices.cluster_usd_per_h(cluster) if p.fits else None
    watts = watts_of(p, cluster)
    return Column(
        cluster=p.cluster,
        words=words,
        prediction=p,
        speedup=p.work_per_s / first.work_per_s if p.fits else None,
        gpu_h_per_million=hours * p.n_gpus if p.fits else None,
        usd_per_million=None if usd is None else hours * usd,
        kwh_per_million=hours * watts / KILO if p.fits else None,
    )
