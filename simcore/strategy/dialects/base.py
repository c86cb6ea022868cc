"""What a dialect is: a foreign launch file turned into simcore's words, and back.

A dialect reads a ``Source`` into a ``Launch`` and writes a ``Job`` as an ``Emitted``. Nothing is
executed, and nothing of the cluster or the model is known here: the engine settles batch sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Protocol

from simcore.base.registry import Registry
from simcore.strategy.dialects.source import Source
from simcore.strategy.options import OPTIONS

Word = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A key whose value matters and cannot be used; ``word`` given explicitly makes up for it."""

    text: str
    word: str | None = None


@dataclass(frozen=True, init=False)
class _Stated:
    """Options that a launch file states, or that a job has; by their names, as attributes too.

    The table says which options those may be (``in_launch``); one that is not stated is None.
    """

    said: Mapping[str, Word] = field(default_factory=dict)

    def __init__(self, **given: Any) -> None:
        """``given``: options of a launch file by their names, and the fields of the class."""
        said: dict[str, Word] = dict(given.pop("said", {}))
        for own in fields(self):
            if own.name == "said":
                continue
            if own.name in given:
                value = given.pop(own.name)
            elif own.default_factory is not MISSING:
                value = own.default_factory()
            elif own.default is not MISSING:
                value = own.default
            else:
                raise TypeError(f"{type(self).__name__} needs {own.name}")
            object.__setattr__(self, own.name, value)
        said |= given
        if unknown := said.keys() - set(OPTIONS.in_launch()):
            raise TypeError(f"no options of a launch file: {', '.join(sorted(unknown))}")
        told = {name: value for name, value in said.items() if value is not None}
        object.__setattr__(self, "said", told)

    def __getattr__(self, name: str) -> Any:
        """The option of that name, None where it is not stated."""
        option = OPTIONS.get(name)
        if option is None or not option.in_launch:
            raise AttributeError(f"{type(self).__name__} has no option {name!r}")
        return self.said.get(name)

    def words(self) -> dict[str, Word]:
        """Every option that is stated, with its value, in the order of the table."""
        return {w: self.said[w] for w in OPTIONS.in_launch() if w in self.said}


@dataclass(frozen=True, init=False)
class Launch(_Stated):
    """A launch file in simcore's options; what it does not state is None.

    global_batch   samples a step, all ranks and micro-steps
    n_gpus         all ranks, where the file says so without saying the nodes
    whole_world    the sentence to raise where ``n_gpus`` is not the size of the cluster
    shape          what it says about the model, in the words of models_db (layers, hidden ...)
    keys           option to the key it was read from
    unsupported, approximated, unknown, ignored   keys by what becomes of them
    """

    dialect: str = ""
    where: str = ""
    global_batch: int | None = None
    n_gpus: int | None = None
    whole_world: str = ""
    shape: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    unsupported: tuple[Unsupported, ...] = ()
    approximated: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def violations(self, given: Collection[str] = ()) -> list[str]:
        """What cannot be predicted as it stands there, less what ``given`` options replace."""
        return [u.text for u in self.unsupported if u.word is None or u.word not in given]


@dataclass(frozen=True, init=False)
class Job(_Stated):
    """A resolved job to write down.

    Strategy, batch, precision, recompute, optimizer, offload and the counts of nodes and GPUs are
    always said; other options where they are not what everybody has: a degree of 1 is not.
    """

    model: str = ""

    @property
    def n_gpus(self) -> int:
        """All ranks."""
        return int(self.nnodes * self.nproc_per_node)

    @property
    def global_batch(self) -> int:
        """Samples a step."""
        return int(self.micro_batch * self.grad_accum * self.data_ranks)

    @property
    def data_ranks(self) -> int:
        """Replicas that read different samples."""
        return int(self.n_gpus // ((self.tp or 1) * (self.pp or 1) * (self.cp or 1)))

    def cannot_recompute(self, title: str) -> list[str]:
        """A sentence where recompute is of parts: the format has none or all of it."""
        part = self.recompute_modules or self.recompute_layers
        if self.recompute != "selective" and not part:
            return []
        what = self.recompute_modules or f"{self.recompute_layers} layers"
        return [f"{title} has no place for recompute of {what} alone: none or full"]

    def cannot(self, title: str, *words: str) -> list[str]:
        """A sentence for each of these words that is set: the format has no place for it."""
        return [
            f"{title} has no place for {w.replace('_', '-')} {getattr(self, w)}"
            for w in words
            if getattr(self, w)
        ]


@dataclass(frozen=True, slots=True)
class Emitted:
    """A launch file. ``left`` are the words that such a file has no place for: the training
    script, or another file, states them. ``program``: software and issuer of the program that
    reads it, whatever the job's were, where these are not the plain ones; ``overlap`` where that
    program hides other traffic than the job.
    """

    text: str
    left: tuple[str, ...] = ()
    program: Mapping[str, str] = field(default_factory=dict)


class Dialect(Protocol):
    """One launch format. ``read`` raises DataError for a file that is none."""

    @property
    def name(self) -> str:
        """As it is typed."""

    @property
    def title(self) -> str:
        """As people know the program."""

    @property
    def summary(self) -> str:
        """What its files are."""

    def claims(self, source: Source) -> bool:
        """Whether the text looks like this dialect; the first registered that says so reads it."""

    def read(self, source: Source) -> Launch:
        """The text in simcore's words; what cannot be used is listed in the result."""

    def emit(self, job: Job) -> Emitted:
        """The job as a file that ``read`` turns into the same words.

        Raises InvalidConfig with everything that the format cannot express.
        """


def joined(outer: Launch, inner: Launch) -> Launch:
    """A launch that names another file: what ``outer`` states wins, and makes up for ``inner``."""
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
        shape={**inner.shape, **outer.shape},
        keys={**inner.keys, **outer.keys},
        unsupported=(*outer.unsupported, *kept),
        approximated=(*outer.approximated, *inner.approximated),
        unknown=(*outer.unknown, *inner.unknown),
        ignored=(*outer.ignored, *inner.ignored),
    )


DIALECTS: Registry[Dialect] = Registry("dialect")
