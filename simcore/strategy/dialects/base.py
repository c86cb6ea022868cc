"""What a dialect is: a foreign launch file turned into simcore's words, and back.

A dialect reads a ``Source`` into a ``Launch`` and writes a ``Job`` as an ``Emitted``. Nothing is
executed, and nothing of the cluster or the model is known here: the engine settles batch sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from simcore.base.registry import Registry
from simcore.strategy.dialects.source import Source

#: The words of ``simcore predict`` that a launch file may state, with the option of each.
WORDS = (
    "strategy", "micro_batch", "grad_accum", "precision", "recompute", "optimizer", "offload",
    "seq_len", "nnodes", "nproc_per_node", "grad_clip", "bucket_numel", "tp", "pp", "vpp", "cp",
    "ep", "stages", "sequence_parallel", "schedule", "main_grads", "recompute_modules",
    "recompute_layers", "expert_tp", "dispatcher", "cp_comm", "shard_ranks", "attention",
    "software", "issuer", "overlap", "expert_capacity", "expert_padding", "compile",
)  # fmt: skip
Word = str | int | float | bool


def option(word: str) -> str:
    """The command line's spelling of a word: ``micro_batch`` is ``--micro-batch``."""
    return "--" + word.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A key whose value matters and cannot be used; ``word`` given explicitly makes up for it."""

    text: str
    word: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stated:
    """Words that a launch file may leave unsaid and a job may not need; None where it does.

    grad_clip      whether gradients are clipped by their norm
    bucket_numel   elements of a gradient bucket
    tp, pp, vpp, cp, ep, stages, sequence_parallel, schedule   as in
                   ``strategy.layout.Layout``; a degree of 1 is not stated
    main_grads     "fp32" where gradients accumulate and are reduced in fp32 beside 16-bit weights
    recompute_modules   what selective recompute runs again, as in ``workload.recompute``
    recompute_layers    how many layers from the input on, where recompute is not of all
    expert_tp, dispatcher   as in ``strategy.layout.Layout``, of a model that is cut by its experts
    expert_capacity, expert_padding   as in ``strategy.routing.Routing``
    shard_ranks    over how many ranks ZeRO shards, where not over all
    attention      kernel of attention
    compile        whether torch.compile fuses what stands between products
    overlap        what communication hides under compute, as in ``strategy.overlap``
    software, issuer   the library whose copies are held too, and what issues kernels: mostly the
                   program itself that reads the file
    """

    seq_len: int | None = None
    grad_clip: bool | None = None
    bucket_numel: int | None = None
    tp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    cp: int | None = None
    ep: int | None = None
    stages: str | None = None
    sequence_parallel: bool | None = None
    schedule: str | None = None
    main_grads: str | None = None
    recompute_modules: str | None = None
    recompute_layers: int | None = None
    expert_tp: int | None = None
    dispatcher: str | None = None
    cp_comm: str | None = None
    shard_ranks: int | None = None
    attention: str | None = None
    software: str | None = None
    issuer: str | None = None
    overlap: str | None = None
    expert_capacity: float | None = None
    expert_padding: bool | None = None
    compile: bool | None = None

    def words(self) -> dict[str, Word]:
        """Every word that is stated, with its value."""
        return {w: v for w in WORDS if (v := getattr(self, w)) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch(_Stated):
    """A launch file in simcore's words; what it does not state is None.

    strategy … nproc_per_node   as in ``engine.options.Options``
    global_batch   samples a step, all ranks and micro-steps
    n_gpus         all ranks, where the file says so without saying the nodes
    whole_world    the sentence to raise where ``n_gpus`` is not the size of the cluster
    shape          what it says about the model, in the words of models_db (layers, hidden …)
    keys           word to the key it was read from
    unsupported, approximated, unknown, ignored   keys by what becomes of them
    """

    dialect: str
    where: str
    strategy: str | None = None
    micro_batch: int | None = None
    grad_accum: int | None = None
    precision: str | None = None
    recompute: str | None = None
    optimizer: str | None = None
    offload: str | None = None
    nnodes: int | None = None
    nproc_per_node: int | None = None
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
        """What cannot be predicted as it stands there, less what ``given`` words replace."""
        return [u.text for u in self.unsupported if u.word is None or u.word not in given]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(_Stated):
    """A resolved job to write down."""

    model: str
    strategy: str
    micro_batch: int
    grad_accum: int
    precision: str
    recompute: str
    optimizer: str
    offload: str
    nnodes: int
    nproc_per_node: int

    @property
    def n_gpus(self) -> int:
        """All ranks."""
        return self.nnodes * self.nproc_per_node

    @property
    def global_batch(self) -> int:
        """Samples a step."""
        return self.micro_batch * self.grad_accum * self.data_ranks

    @property
    def data_ranks(self) -> int:
        """Replicas that read different samples."""
        return self.n_gpus // ((self.tp or 1) * (self.pp or 1) * (self.cp or 1))

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

    name: str
    title: str
    summary: str

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
