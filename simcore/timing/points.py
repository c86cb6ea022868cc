"""What is priced at once: configurations of one axis, and programs of parts joined into arrays.

Everything that varies among configurations is an array [C]. The programs are those of parts of one
model, such as the stages of a pipeline. Parts differ in their tasks and sizes, not in how they are
priced, so a sum over the tasks, kernels or messages of each part is one matrix over those of all
parts. Layers repeat, so few tasks differ in duration: each distinct duration of a part is a row
that is priced once.

# N parts; of all parts together: T tasks, D distinct durations (R of them compute), P phases,
# M messages
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property, lru_cache
from itertools import accumulate, chain
from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np

from simcore.base.arrays import Array, NDArray, distinct_columns
from simcore.base.record import Same, dataclass
from simcore.physics.collectives import PLAIN, Collective, Group, Library
from simcore.step.graph import StepGraph
from simcore.step.program import Program, Scope

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
#: Most results that an axis keeps; the oldest go first.
_MOST_KEPT = 64


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
            if len(self._kept) >= _MOST_KEPT:  # jobs of ever new layouts on one axis
                self._kept.pop(next(iter(self._kept)), None)
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


Index = NDArray[np.intp]
#: Lines of the time breakdown, and how often each has each duration in a part [lines, N, D].
TermCounts = tuple[tuple[str, ...], Array]


@dataclass(frozen=True)
class Computing:
    """The distinct compute tasks of all parts, and the distinct host tasks that issue them.

    ``weights`` [R, P]: how much of each phase a compute task runs; ``at`` [R]: its row of the
    durations. ``rows``: for each rank class, its rows of ``weights``. ``whole``, ``beside``: for
    each rank class, how much of each phase a part runs [N, P], in all its tasks and in those that
    overlap with collectives. ``host_at``, ``host_weights`` [host rows, P], ``host_sums`` [N, P]:
    the same for the host. ``alone``, ``slowed``: rows of ``weights`` that run without and with
    collectives beside them; ``slowed_part``: the part of each of the latter.
    """

    weights: Array
    at: Index
    rows: tuple[Index, ...]
    whole: tuple[Array, ...]
    beside: tuple[Array, ...]
    host_at: Index
    host_weights: Array
    host_sums: Array
    alone: Index
    slowed: Index
    slowed_part: Index


@dataclass(frozen=True)
class Sending:
    """The collectives of all parts: distinct messages, and how often each task sends each.

    ``messages``: tuples (collective whose price applies, scope, sizes in bytes [n, 1], message
    numbers [n]); ``message_part`` [M]: the part of each message.
    ``after_at``: rows of the durations of communication tasks that start when no overlapped compute
    remains (backward has ended); ``sent_at``: of those that run beside compute. ``after_counts``,
    ``sent_task_counts`` [rows, M]: how often each sends each message. ``sent_counts``,
    ``micro_counts``, ``all_counts`` [N, M]: how often a part sends each message beside compute, in
    every micro-step, and in a whole step. ``hides`` [N, 1]: whether a part's collectives of every
    micro-step run beside compute.
    """

    messages: tuple[tuple[Collective, Scope, Array, Index], ...]
    message_part: Index
    after_at: Index
    after_counts: Array
    sent_at: Index
    sent_task_counts: Array
    sent_counts: Array
    micro_counts: Array
    all_counts: Array
    hides: NDArray[np.bool_]


@dataclass(frozen=True)
class Together:
    """Several programs and their joined arrays.

    ``n_rows``: D; ``rows``: for each program, the row of each of its tasks. ``graphs``: each
    distinct graph with the parts that have it [n] and the row of each of their tasks [tasks, n].
    ``term_counts``: the lines of the time breakdown without the host's: of each rank class, and
    last of the streams that all classes share. ``misc``: tuples (named quantity, rank class, rows
    of that duration, the part of each row).
    """

    programs: tuple[Program, ...]
    n_rows: int
    rows: tuple[Index, ...]
    graphs: tuple[tuple[StepGraph, Index, Index], ...]
    term_counts: tuple[TermCounts, ...]
    computing: Computing
    sending: Sending
    misc: tuple[tuple[str, int, Index, Index], ...]


def together(programs: Sequence[Program]) -> Together:
    """The joined arrays of the programs of parts of one model under one strategy (cached)."""
    return _together(tuple(Same(p) for p in programs))


@lru_cache(maxsize=1000)
def _together(parts: tuple[Same[Program], ...]) -> Together:
    programs = tuple(p.it for p in parts)
    *begins, n_rows = accumulate((p.n_rows for p in programs), initial=0)
    rows = tuple(p.rows + begin for p, begin in zip(programs, begins, strict=True))
    misc: dict[tuple[str, int], list[tuple[int, int]]] = {}  # rows and their parts
    for n, (program, begin) in enumerate(zip(programs, begins, strict=True)):
        for quantity, rank_class, row in program.misc:
            misc.setdefault((quantity, rank_class), []).append((begin + row, n))
    return Together(
        programs=programs,
        n_rows=n_rows,
        rows=rows,
        graphs=_graphs(programs, rows),
        term_counts=_term_counts(programs, begins, n_rows),
        computing=_computing(programs, begins),
        sending=_sending(programs, begins),
        misc=tuple((*key, *np.array(of, dtype=np.intp).T) for key, of in misc.items()),
    )


def _graphs(
    programs: Sequence[Program], rows: Sequence[Index]
) -> tuple[tuple[StepGraph, Index, Index], ...]:
    """``Together.graphs``; ``rows``: for each program, the row of each of its tasks."""
    parts: dict[Same[StepGraph], list[int]] = {}
    for n, program in enumerate(programs):
        parts.setdefault(Same(program.graph), []).append(n)
    return tuple(
        (graph.it, np.array(of), np.stack([rows[n] for n in of], axis=1))
        for graph, of in parts.items()
    )


def _term_counts(
    programs: Sequence[Program], begins: Sequence[int], n_rows: int
) -> tuple[TermCounts, ...]:
    """``Together.term_counts``; ``begins``: the first row of each program."""
    found = []
    for of_class in zip(*(p.lines for p in programs), strict=True):
        names = tuple(dict.fromkeys(chain.from_iterable(of_class)))
        counts = np.zeros((len(names), len(programs), n_rows))
        for n, (lines, begin) in enumerate(zip(of_class, begins, strict=True)):
            for name, of_rows in lines.items():
                counts[names.index(name), n, begin : begin + len(of_rows)] = of_rows
        found.append((names, counts))
    return tuple(found)


def _computing(programs: Sequence[Program], begins: Sequence[int]) -> Computing:
    weights = _diagonal([p.weights for p in programs])
    host_weights = _diagonal([p.host_weights for p in programs])
    lengths, host_lengths = ([len(p.weights) for p in programs],
                             [len(p.host_weights) for p in programs])  # fmt: skip
    parts = np.arange(len(programs))[:, None]
    part, host_part = _part_of(lengths), _part_of(host_lengths)
    rank_class = np.concatenate([p.compute_class for p in programs])
    beside = np.concatenate([p.overlapped for p in programs])
    classes = [rank_class == c for c in range(programs[0].n_classes)]
    counts = np.concatenate([p.compute_counts for p in programs]) * (part == parts)
    host_counts = np.concatenate([p.host_counts for p in programs]) * (host_part == parts)
    return Computing(
        weights=weights,
        at=_ranges(begins, lengths),
        rows=tuple(np.flatnonzero(of_class) for of_class in classes),
        whole=tuple((counts * of_class) @ weights for of_class in classes),
        beside=tuple((counts * of_class * beside) @ weights for of_class in classes),
        host_at=_ranges([b + n for b, n in zip(begins, lengths, strict=True)], host_lengths),
        host_weights=host_weights,
        host_sums=host_counts @ host_weights,
        alone=np.flatnonzero(~beside),
        slowed=np.flatnonzero(beside),
        slowed_part=part[beside],
    )


def _sending(programs: Sequence[Program], begins: Sequence[int]) -> Sending:
    each = [p.sent for p in programs]
    message_part = _part_of([len(sent.messages) for sent in each])
    messages: dict[tuple[Collective, Scope], list[tuple[float, int]]] = {}
    of_all = chain.from_iterable(sent.messages for sent in each)
    for number, (op, scope, size) in enumerate(of_all):
        messages.setdefault((op, scope), []).append((size, number))
    firsts = [b + len(p.weights) + len(p.host_weights)
              for p, b in zip(programs, begins, strict=True)]  # fmt: skip
    at = _ranges(firsts, [len(sent.counts) for sent in each])
    counts, beside = _diagonal([s.counts for s in each]), np.concatenate([s.beside for s in each])
    overlaps = np.array([p.overlapped.any() for p in programs])
    micro_counts = _diagonal([sent.micro_counts[None] for sent in each])
    return Sending(
        messages=tuple(
            (*key, np.array([[size] for size, _ in of]), np.array([number for _, number in of]))
            for key, of in messages.items()
        ),
        message_part=message_part,
        after_at=at[~beside],
        after_counts=counts[~beside],
        sent_at=at[beside],
        sent_task_counts=counts[beside],
        sent_counts=_diagonal([sent.beside_counts[None] for sent in each]),
        micro_counts=micro_counts,
        all_counts=_diagonal([sent.all_counts[None] for sent in each]),
        hides=(micro_counts.any(axis=1) & overlaps)[:, None],
    )


def _diagonal(blocks: Sequence[Array]) -> Array:
    """The block-diagonal matrix of ``blocks``, with zeros elsewhere."""
    matrix = np.zeros(np.sum([b.shape for b in blocks], axis=0))
    row = column = 0
    for block in blocks:
        rows, columns = block.shape
        matrix[row : row + rows, column : column + columns] = block
        row, column = row + rows, column + columns
    return matrix


def _part_of(lengths: Sequence[int]) -> Index:
    """The part number of each entry of a joined array; ``lengths``: entries of each part."""
    return np.repeat(np.arange(len(lengths)), lengths)


def _ranges(begins: Sequence[int], lengths: Sequence[int]) -> Index:
    """The numbers from each begin on, as many as its length, one range after another."""
    found = [np.arange(begin, begin + n) for begin, n in zip(begins, lengths, strict=True)]
    return np.concatenate(found)
