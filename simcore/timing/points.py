"""The configuration axis: everything that varies among configurations, as arrays [C]."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np

from simcore.base.arrays import Array, NDArray, distinct_columns
from simcore.base.record import Same, dataclass
from simcore.physics.collectives import PLAIN, Group, Library

T = TypeVar("T")

#: Multipliers on what the hardware delivers: 1 is the profile's figure, 2 is twice as fast.
Knob = Literal["compute", "memory", "host", "intra", "inter", "loader", "overlap"]
KNOBS: tuple[Knob, ...] = get_args(Knob)


#: Seconds to launch one collective, from the host to the first byte: NCCL's base latency of a ring
#: with the Simple protocol.
COLLECTIVE_BASE_S = 8.4e-6
#: Default of quantities that are not given, where it is not 1.
_ABSENT = {"intra_ramp": 0.0, "inter_ramp": 0.0}
_BY_CLASS = ("class_compute", "class_host")
#: What the time of a collective depends on beside its message.
_LINKS = (
    "n_ranks", "n_nodes", "gpus_per_node", "intra_bw_bytes_per_s", "inter_bw_bytes_per_s",
    "intra_hop_s", "inter_hop_s", "intra_ramp", "inter_ramp", "intra", "inter", "use_comm",
)  # fmt: skip
#: Number of configurations from which on equal links are worth looking for, and up to which axes
#: with equal values are worth keeping.
_LONG = 256


@dataclass(frozen=True)
class Points:
    """Batch, ranks, links and multipliers of every configuration; arrays [C].

    Link rates include the efficiency that collectives reach; ramps are those of ``Group``.
    ``library``: NCCL's settings, the same for all configurations, whose clusters are of one kind.
    ``use_host``, ``use_comm`` and ``use_loader``: 1, or 0 to evaluate the step without that cost.
    ``class_compute`` and ``class_host`` [classes, C]: additional multipliers of each rank class;
    None where all are equal.
    """

    micro_batch: Array
    grad_accum: Array
    n_ranks: Array
    n_nodes: Array
    gpus_per_node: Array
    intra_bw_bytes_per_s: Array
    inter_bw_bytes_per_s: Array
    intra_hop_s: Array
    inter_hop_s: Array
    intra_ramp: Array
    inter_ramp: Array
    compute: Array
    memory: Array
    host: Array
    intra: Array
    inter: Array
    loader: Array
    overlap: Array
    use_host: Array
    use_comm: Array
    use_loader: Array
    class_compute: Array | None = None
    class_host: Array | None = None
    library: Library = PLAIN

    @staticmethod
    def of(values: Mapping[str, object], size: int) -> Points:
        """Points from scalars and arrays; a quantity that is not given is 1, a ramp is 0."""
        absent = {value: _along(value, size) for value in {1.0, *_ABSENT.values()}}
        arrays = {
            name: _along(values[name], size) if name in values else absent[_ABSENT.get(name, 1.0)]
            for name in _ARRAYS
        }
        library = values.get("library", PLAIN)
        assert isinstance(library, Library)
        return Points(**arrays, library=library, **{name: values.get(name) for name in _BY_CLASS})  # type: ignore[arg-type]

    @staticmethod
    def shared(values: Mapping[str, Any], size: int) -> Points:
        """``of`` arrays [C]; short axes with equal values are one object, with what it ``keeps``.

        In a space, forms of one layout have the same axis, whatever their strategy.
        """
        if size > _LONG:
            return Points.of(values, size)
        arrays = {k: np.asarray(v, dtype=np.float64) for k, v in values.items() if k != "library"}
        columns = tuple((name, array.tobytes()) for name, array in arrays.items())
        return _shared(columns, Same(values.get("library", PLAIN)), size)

    def __len__(self) -> int:
        return len(self.micro_batch)

    def take(self, index: slice | NDArray[np.intp]) -> Points:
        """The same for a part of the configuration axis."""
        arrays = {name: getattr(self, name) for name in (*_ARRAYS, *_BY_CLASS)}
        return replace(self, **{k: v[..., index] for k, v in arrays.items() if v is not None})

    def compute_of(self, index: int) -> Array:
        """The multiplier on a rank class's compute rate [C]."""
        common = self.compute
        return common if self.class_compute is None else common * self.class_compute[index]

    def host_of(self, index: int) -> Array:
        """The multiplier on a rank class's host speed [C]."""
        return self.host if self.class_host is None else self.host * self.class_host[index]

    def with_columns(self, column: int, **changes: float) -> Points:
        """A copy in which one configuration has other values."""
        new: dict[str, Any] = {}
        for name, value in changes.items():
            array = np.array(getattr(self, name))
            array[column] = value
            new[name] = array
        return replace(self, **new)

    def keeps(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What ``compute`` returns, once for all who ask on this axis with the same key.

        The key says everything that the result depends on beside the axis.
        """
        if key not in self._kept:
            self._kept[key] = compute()
        return cast("T", self._kept[key])

    @cached_property
    def _kept(self) -> dict[Hashable, Any]:
        return {}

    @cached_property
    def by_links(self) -> tuple[Points, NDArray[np.intp] | slice]:
        """(configurations that differ in links or ranks, which of these each configuration is).

        On a sweep's axis many neighbours differ in batch and accumulation only.
        """
        if len(self) < _LONG:
            return self, slice(None)
        rows = [getattr(self, name) for name in _LINKS]
        begins = np.ones(len(self), dtype=bool)
        np.any([row[1:] != row[:-1] for row in rows], axis=0, out=begins[1:])
        return self.take(np.flatnonzero(begins)), np.cumsum(begins) - 1

    @cached_property
    def distinct_rates(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """``distinct_columns`` of what kernel times depend on, where all classes are equal."""
        return distinct_columns((self.micro_batch, self.memory, self.compute))

    def group(
        self,
        n_ranks: Array,
        n_nodes: Array,
        *,
        nic_share: Array | float = 1.0,
        node_stride: float = 1.0,
    ) -> Group:
        """A communicator on these links.

        ``nic_share``: its share of each node's NICs; ``node_stride``: distance of its nodes.
        """
        return Group(
            n_ranks=n_ranks,
            n_nodes=n_nodes,
            intra_bw_bytes_per_s=self.intra_bw_bytes_per_s * self.intra,
            inter_bw_bytes_per_s=self.inter_bw_bytes_per_s * self.inter * nic_share,
            intra_hop_s=self.intra_hop_s,
            inter_hop_s=self.inter_hop_s,
            base_s=np.full(len(self), COLLECTIVE_BASE_S),
            ramp=np.where(n_nodes > 1, self.inter_ramp, self.intra_ramp),
            nvls_bw_bytes_per_s=self.library.nvls_bw_bytes_per_s * self.intra,
            node_stride=node_stride,
            library=self.library,
        )


_ARRAYS = tuple(f.name for f in fields(Points) if f.name not in ("library", *_BY_CLASS))


@lru_cache(maxsize=32)
def _shared(columns: tuple[tuple[str, bytes], ...], library: Same[Library], size: int) -> Points:
    arrays = {name: np.frombuffer(values) for name, values in columns}
    return Points.of({**arrays, "library": library.it}, size)


def _along(value: object, size: int) -> Array:
    """A number or an array broadcast along the axis [C]."""
    array = np.asarray(value, dtype=np.float64)
    if array.shape == (size,):
        return array
    return np.broadcast_to(array, (size,)) if size > 1 else array.reshape(1)
