"""Prices of a GPU-hour: price lists as data, each figure with its date and source."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import ClassVar

from simcore.base.database import Database
from simcore.base.errors import InvalidConfig, UnknownName
from simcore.base.figures import KeyedError, Part, Sourced, entry
from simcore.base.record import dataclass
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.spec import GPUS


class ListedPrice(Part):
    """US dollars per GPU-hour, and the day on which the price was read."""

    value: float = entry(gt=0)
    date: datetime.date
    source: str
    note: str = ""


class PriceList(Sourced):
    """The prices of one provider. ``rank``: lists of lower rank take precedence."""

    looks_elsewhere: ClassVar[bool] = True

    full_name: str
    terms: str
    rank: int = entry(default=0, ge=0)
    prices: dict[str, ListedPrice] = entry(min_length=1)

    def check(self) -> None:
        """Raises KeyedError for an unknown GPU too."""
        super().check()
        for name in self.prices:
            if name not in GPUS.files():
                raise KeyedError(("prices",), str(UnknownName("gpu", name, GPUS.names())))


PRICES: Database[PriceList] = Database("price", "hardware_db/prices", PriceList)


@dataclass(frozen=True)
class Price:
    """Price of a GPU-hour [US dollars], and its source."""

    usd_per_gpu_h: float
    source: str


@dataclass(frozen=True)
class PriceBook:
    """Prices by GPU name: those the user gave first, then those of the lists in order."""

    given: Mapping[str, float]
    lists: tuple[PriceList, ...]

    def of(self, gpu: str) -> Price | None:
        """The price of a GPU type; None where neither the user nor a list states one."""
        if gpu in self.given:
            return Price(self.given[gpu], "given")
        for price_list in self.lists:
            if gpu in price_list.prices:
                listed = price_list.prices[gpu]
                return Price(listed.value, f"{price_list.full_name}, {listed.date.isoformat()}")
        return None

    def cluster_usd_per_h(self, cluster: ClusterSpec) -> float | None:
        """US dollars per hour of all GPUs of a cluster; None where one has no price."""
        total = 0.0
        for group in cluster.groups:
            price = self.of(group.gpu.name)
            if price is None:
                return None
            total += price.usd_per_gpu_h * group.n_gpus
        return total

    def sources(self, clusters: Iterable[ClusterSpec]) -> dict[str, str]:
        """For each GPU name of the clusters, a sentence with its price and the price's source."""
        out: dict[str, str] = {}
        for name in dict.fromkeys(g.gpu.name for c in clusters for g in c.groups):
            price = self.of(name)
            out[name] = (
                f"${price.usd_per_gpu_h:.2f} a GPU and hour ({price.source})"
                if price
                else f"no price known: give --price {name}=DOLLARS"
            )
        return out


def price_book(given: Iterable[str] = (), prices: str | None = None) -> PriceBook:
    """Prices from texts such as ``H100=2.5`` (``given``), then from the price lists.

    ``prices`` names the one list to use instead of all. Raises InvalidConfig with every violation.
    """
    problems: list[str] = []
    by_gpu: dict[str, float] = {}
    for text in (t for part in given for t in part.split(",")):
        name, equals, value = text.partition("=")
        try:
            dollars = float(value.strip().lstrip("$"))
            if not equals or not 0 < dollars < float("inf"):
                raise ValueError
        except ValueError:
            problems.append(f"--price {text.strip()!r} is not GPU=DOLLARS, such as H100=2.5")
            continue
        try:
            by_gpu[GPUS[name.strip()].name] = dollars
        except UnknownName as err:
            problems.append(str(err))
    lists: tuple[PriceList, ...] = ()
    try:
        chosen = [PRICES[prices]] if prices is not None else PRICES.all()
        lists = tuple(sorted(chosen, key=lambda p: (p.rank, p.name)))
    except UnknownName as err:
        problems.append(str(err))
    if problems:
        raise InvalidConfig(problems)
    return PriceBook(by_gpu, lists)
