"""What dialects read and write: a launch file of another program as simcore's options, and back.

A dialect reads a ``Source`` into a ``Launch`` and writes a ``Job`` as an ``Emitted``. It executes
nothing and knows neither cluster nor model: batch sizes are derived later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, field, fields, replace
from typing import Any

from simcore.base.record import dataclass
from simcore.strategy.layout import parse_overlap
from simcore.strategy.options import OPTIONS
from simcore.strategy.strategy import parse_offload

Word = str | int | float | bool


@dataclass(frozen=True)
class Unsupported:
    """A key that matters but cannot be used. ``word``: the option that can replace it, if any."""

    text: str
    word: str | None = None


@dataclass(frozen=True, init=False)
class _Stated:
    """Options that a launch file states or a job has, by name; each is also an attribute.

    The option table says which options may occur (``in_launch``); one that is not stated is None.
    """

    said: Mapping[str, Word] = field(default_factory=dict)

    def __init__(self, **given: Any) -> None:
        """``given``: options of a launch file by name, and the fields of the class."""
        said: dict[str, Word] = dict(given.pop("said", {}))
        for own in fields(self):
            default = own.default if own.default_factory is MISSING else own.default_factory()
            object.__setattr__(self, own.name, given.pop(own.name, default))
        said |= given
        if unknown := said.keys() - set(OPTIONS.in_launch()):
            raise TypeError(f"no options of a launch file: {', '.join(sorted(unknown))}")
        stated = {name: value for name, value in said.items() if value is not None}
        object.__setattr__(self, "said", stated)

    def __getattr__(self, name: str) -> Any:
        """The value of an option; None where it is not stated."""
        option = OPTIONS.get(name)
        if option is None or not option.in_launch:
            raise AttributeError(f"{type(self).__name__} has no option {name!r}")
        return self.said.get(name)

    def words(self) -> dict[str, Word]:
        """Every option that is stated, with its value, in the order of the option table."""
        return {w: self.said[w] for w in OPTIONS.in_launch() if w in self.said}


@dataclass(frozen=True, init=False)
class Launch(_Stated):
    """A launch file as simcore's options; an option that it does not state is None.

    global_batch   samples of a step, over all ranks and micro-steps
    n_gpus         number of ranks, where the file gives it without the number of nodes
    model          name of the model, as the file has it; "" where it names none
    settings       settings of the model that the program's arguments change
    other          facts that are no options, on which conditions of records depend
    fills          whether all of the program's own defaults are among the options
    whole_world    error to report where ``n_gpus`` is not the size of the cluster
    absent_files   names of files of the program that are not at hand
    model_hints    what an unknown script may call its model, which may be no model's name
    described      settings of arch:transformer, where the file describes a language model in full
    shape          what the file says about the model, with names of models_db (layers, hidden ...)
    keys           for each option, the key that it was read from
    unsupported, approximated, unknown, ignored   other keys, by how they are treated
    """

    dialect: str = ""
    where: str = ""
    global_batch: int | None = None
    n_gpus: int | None = None
    whole_world: str = ""
    model: str = ""
    settings: Mapping[str, Word] = field(default_factory=dict)
    other: Mapping[str, Word] = field(default_factory=dict)
    fills: bool = True
    absent_files: tuple[str, ...] = ()
    model_hints: tuple[str, ...] = ()
    described: Mapping[str, Any] = field(default_factory=dict)
    shape: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    unsupported: tuple[Unsupported, ...] = ()
    approximated: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def violations(self, given: Collection[str] = ()) -> list[str]:
        """Errors for keys that cannot be used, except those that the ``given`` options replace."""
        return [u.text for u in self.unsupported if u.word is None or u.word not in given]


@dataclass(frozen=True, init=False)
class Job(_Stated):
    """A resolved job to write as a launch file.

    Strategy, batch, precision, recompute, optimizer, offload and the numbers of nodes and GPUs are
    always stated; other options only where they differ from the default: a degree of 1 is not.
    ``shape``: settings of ``arch:transformer``, of a language model.
    """

    model: str = ""
    shape: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_gpus(self) -> int:
        """Number of all ranks."""
        return int(self.nnodes * self.nproc_per_node)

    @property
    def global_batch(self) -> int:
        """Samples of a step."""
        return int(self.micro_batch * self.grad_accum * self.data_ranks)

    @property
    def data_ranks(self) -> int:
        """Number of replicas that read different samples."""
        return int(self.n_gpus // ((self.tp or 1) * (self.pp or 1) * (self.cp or 1)))

    def facts(self) -> dict[str, Any]:
        """Options that are stated, parts of them (``offload.params``), and derived numbers."""
        offload, overlap = parse_offload(self.offload), parse_overlap(self.overlap, self.vpp)
        return {
            **self.words(),
            **{f"offload.{f.name}": getattr(offload, f.name) for f in fields(offload)},
            **{f"overlap.{f.name}": getattr(overlap, f.name) for f in fields(overlap)},
            "global_batch": self.global_batch,
        }


@dataclass(frozen=True)
class Emitted:
    """A launch file and what it implies.

    ``left``: options that such a file does not contain; the training script or another file states
    them. ``program``: ``software`` and ``issuer`` of the program that reads the file, whatever the
    job's are, where they are not the default; ``overlap`` where that program hides other traffic
    than the job.
    """

    text: str
    left: tuple[str, ...] = ()
    program: Mapping[str, str] = field(default_factory=dict)


def joined(outer: Launch, inner: Launch) -> Launch:
    """Two launch files, the outer of which names the inner one.

    Options of ``outer`` override those of ``inner``, and replace its keys that cannot be used.
    """
    words = {**inner.words(), **outer.words()}
    kept = tuple(
        u for u in inner.unsupported if u.word is None or getattr(outer, u.word, None) is None
    )
    return replace(
        outer,
        **words,  # type: ignore[arg-type]
        global_batch=outer.global_batch or inner.global_batch,
        n_gpus=outer.n_gpus or inner.n_gpus,
        whole_world=outer.whole_world or inner.whole_world,
        model=outer.model or inner.model,
        settings={**inner.settings, **outer.settings},
        other={**inner.other, **outer.other},
        fills=outer.fills if outer.software or not inner.software else inner.fills,
        model_hints=outer.model_hints or inner.model_hints,
        absent_files=(*outer.absent_files, *inner.absent_files),
        described=outer.described or inner.described,
        shape={**inner.shape, **outer.shape},
        keys={**inner.keys, **outer.keys},
        unsupported=(*outer.unsupported, *kept),
        approximated=(*outer.approximated, *inner.approximated),
        unknown=(*outer.unknown, *inner.unknown),
        ignored=(*outer.ignored, *inner.ignored),
    )
