"""What the databases hold, as tables: ``simcore.models()``, ``gpus()``, ``programs()``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from pandas import DataFrame

    from simcore.report.catalog import Listing


class Catalog(Sequence[Mapping[str, Any]]):
    """Records of one kind, a mapping each, with units in the names of its keys.

    ``print`` shows the table of ``simcore list``, ``to_pandas`` has every figure.
    """

    def __init__(self, listing: Listing) -> None:
        self._listing = listing

    @overload
    def __getitem__(self, at: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, at: Any) -> Any:
        return self._listing.data[at]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._listing.data)

    def __len__(self) -> int:
        return len(self._listing.data)

    def names(self) -> list[str]:
        """The names by which a call takes the records."""
        return [record["name"] for record in self]

    def to_pandas(self) -> DataFrame:
        """A pandas DataFrame, a row for each record. Raises UsageError without pandas."""
        from simcore.report.frames import of_records

        return of_records([dict(record) for record in self])

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        from simcore.report.formatting import WIDTH

        return self._listing.fitted(WIDTH)

    def __repr__(self) -> str:
        return f"<Catalog: {len(self)} {self._listing.caption}>"


def _catalog(kind: str, part: str) -> Catalog:
    from simcore.report.catalog import listing

    return Catalog(listing(kind, part))


def models(part: str = "") -> Catalog:
    """The models of the database whose name contains ``part``, as ``simcore list models``.

    Raises UnknownName that suggests the nearest.
    """
    return _catalog("models", part)


def gpus(part: str = "") -> Catalog:
    """The GPU types whose name contains ``part``, as ``simcore list gpus``. Raises UnknownName."""
    return _catalog("gpus", part)


def programs(part: str = "") -> Catalog:
    """The training programs whose name contains ``part``, as ``simcore list software``.

    Raises UnknownName.
    """
    return _catalog("software", part)
