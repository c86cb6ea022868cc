"""What a training library holds, and how a program runs: the records of both.

A library (``Software``) is what ``--software`` names: the temporaries and copies beside the tensors
that its method needs. A program (``Program``) is one release of what a lab runs: its kernels,
overlaps and widths where neither job nor source says them, on a library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from simcore.base.errors import UnknownName
from simcore.base.registry import Registry
from simcore.hardware.host import Issuer
from simcore.strategy.cut_rules import EVEN
from simcore.workload.models import Scalar
from simcore.workload.recompute import DEFAULT_MODULES


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a host does in Python around a model's modules, in the time that it takes torch to issue
    so many kernels; forward, and backward.

    ``module``: before and after each module that owns a tensor; ``layer``: of a layer's others;
    ``matrix``: to fetch the weight of a product and let go of it; ``gradient``: to take a tensor's
    gradient into a bucket; ``bucket``: to reduce one.
    """

    module: tuple[float, float]
    layer: tuple[float, float]
    matrix: tuple[float, float]
    gradient: float
    bucket: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """What FSDP does in Python around each unit that it shards, in the time that it takes torch to
    issue so many kernels; forward, and backward.

    ``unit``: to gather it, show its parameters and let go of them; ``tensor``: each parameter
    of it; ``reduced``, ``reduced_tensor``: to reduce its gradients, where it is trained.
    ``adapters``: each matrix of an adapter is a unit of its own.
    """

    unit: tuple[float, float]
    tensor: tuple[float, float]
    reduced: float
    reduced_tensor: float
    adapters: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Modules:
    """What modules written in Python take of the host beside the kernels that they issue.

    ``share``: of those kernels' time in a layer, forward and backward; ``adapter``: an adapter's,
    in the time that it takes torch to issue so many kernels.
    """

    share: tuple[float, float]
    adapter: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What a trainer does in Python between two micro-steps, while the device waits, in the time
    that it takes torch to issue so many kernels; of it what each layer and each adapter costs.
    """

    micro_step: float
    layer: float
    adapter: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """What collectives over lists of tensors, one a rank, take of the host, in the time that it
    takes torch to issue so many kernels.

    ``call``: each of them; ``gathered_view``, ``reduced_view``: to name a rank's part of a
    parameter, or of its gradient; ``copy``: to issue its copy from or to the flat tensor that NCCL
    takes.
    """

    call: float
    gathered_view: float
    reduced_view: float
    copy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Temporaries and copies of one library.

    ``norm_bytes``: an element of the copy that the norm of one tensor's gradient is taken of.
    ``joins_shard``: the shard's gradients become one flat tensor before they are widened.
    ``reduce_copy_bytes``: an element of the copy in which a bucket is reduced, and so on the wire;
    ``all_reduces``: of ZeRO-1 every rank gets the whole sum, where it needs a shard of it only.
    ``late_buckets``: buckets are made when backward is over, and gone before the update.
    ``head_again``: full recompute runs the final norm and the head again, not the layers alone.
    ``update_passes_bytes``: what copies and norms around the update move, a parameter that a rank
    holds whole, whatever its shard.
    ``grads_beside``: gradients as backward makes them stay beside sums in fp32; ``whole_master``:
    and so does an fp32 copy of all weights, of which each rank updates its part.
    ``weight_buckets``: under DDP gradients travel through flat buckets of the weights' width,
    beside sums in fp32; ``adds_grads``: which are sums of their own, a kernel a tensor.
    ``weight_stubs``: autograd gets a stub for a gradient that a product has summed.
    ``remainders``: bf16 weights are the upper halves of their fp32 master, of which the lower ones
    alone are kept; the update reads 16-bit gradients as they are.
    ``live_numel``: gathered parameters that ZeRO-3 may leave in place for their next use, and
    beside which its gradients are reduced through a bucket.
    ``root_unit``: what lies outside the repeated layers is gathered at once, by ZeRO-3 too, and
    stays from forward's begin to backward's end.
    ``sums_apart``: each product that is cut by columns sums up the gradient of its input over
    tensor ranks, also where several have one input, unless the sequence is cut too.
    ``group_copies``: communicators made for each dimension of the layout.
    ``received_copies``, ``sent_copies``: of what a pipeline stage receives and sends, tensors that
    its buffers hold for each micro-batch in flight; ``logits_bytes``: an element of the logits
    that they hold on the last stage, which lets go of a micro-batch's when the next but one comes.
    ``wide_host``: what is offloaded lies on the host in fp32 and crosses so in both directions.
    ``host_update_bytes``: what the update of an offloaded parameter moves on the host; one pass of
    Adam in fp32 reads g, m, v, w and writes m, v, w.
    ``whole_sends``: every tensor rank sends the next stage all of a layer's output, not its share
    of it, unless the sequence is cut, where it has no more than a share.
    ``late_reduce``: FSDP's gradients of earlier micro-steps stay whole on each rank, in the width
    that they are reduced in; the last micro-step's backward alone makes shards of them.
    ``keeps_grads``: between steps gradients are filled with zeros, not let go of
    (``Optimizer.zero_grad`` before PyTorch 2.0, whose ``set_to_none`` is False).
    ``window_masks``: a window shorter than the sequence is a mask that attention reads.
    ``stops_early``: a layer that runs again in backward does so as far as something is needed.
    ``whole_tensors``: each of ZeRO-1's ranks owns whole tensors, of which it updates all, and
    broadcasts them to the others: owner after owner, where a gather would be one message.
    ``cut``: how a pipeline is cut into stages, a rule of ``CUT_RULES``. ``interleaves``: stages may
    be of several chunks; ``whole_rounds``: with as many micro-batches as stages or more.
    ``plain_modules``: it is a loop around plain modules, whose kernels are PyTorch's.
    ``hooks``: what its ZeRO-3 takes of the host, module by module.
    ``persist_numel``: tensors of no more elements stay whole under ZeRO-3. ``reuse_numel``: as
    ``Strategy`` has it, where nothing is said.
    ``lists``: ZeRO-3's collectives take lists of tensors, a parameter at a time, none ahead.
    ``units``: what FSDP takes of the host, unit by unit; ``modules``: what the model's modules do
    beside their kernels; ``driver``: what the loop around them does between micro-steps.
    """

    name: str
    meaning: str
    norm_bytes: float = 0.0
    joins_shard: bool = True
    reduce_copy_bytes: float = 0.0
    all_reduces: bool = False
    late_buckets: bool = False
    head_again: bool = False
    update_passes_bytes: float = 0.0
    grads_beside: bool = False
    whole_master: bool = False
    weight_buckets: bool = False
    adds_grads: bool = False
    weight_stubs: bool = True
    remainders: bool = False
    live_numel: int = 0
    root_unit: bool = False
    sums_apart: bool = False
    group_copies: int = 1
    received_copies: int = 0
    sent_copies: int = 0
    logits_bytes: float = 0.0
    whole_sends: bool = False
    wide_host: bool = False
    host_update_bytes: float = 28.0
    late_reduce: bool = False
    keeps_grads: bool = False
    window_masks: bool = False
    stops_early: bool = False
    whole_tensors: bool = False
    cut: str = EVEN
    interleaves: bool = True
    whole_rounds: bool = False
    plain_modules: bool = False
    hooks: Hooks | None = None
    persist_numel: int = 0
    reuse_numel: int = 0
    lists: Lists | None = None
    units: Units | None = None
    modules: Modules | None = None
    driver: Driver | None = None

    @property
    def tensors_at_once(self) -> int:
        """Tensors of a block that ZeRO-3 holds gathered where each is fetched for its own module,
        beside what it leaves in place (``live_numel``); 0: all of the block, as one unit. A list's
        tensors stand beside the flat one that they are copied from.
        """
        return (1 + (self.lists is not None)) * bool(self.live_numel)


SOFTWARE: Registry[Software] = Registry("software")

#: What others call a library, or a program around it, to the library's name.
_CALLED: dict[str, str] = {}


def called(library: str, *names: str) -> None:
    """Other names of a registered library."""
    _CALLED.update(dict.fromkeys(names, library))


def software_named(name: str) -> Software:
    """The library of a name, its own or that of a program around it. Raises UnknownName."""
    folded = name.strip().lower().replace("_", "-").replace(" ", "-")
    if folded not in SOFTWARE and (meant := _CALLED.get(folded)):
        return SOFTWARE[meant]
    if folded not in SOFTWARE:
        raise UnknownName("software", name, SOFTWARE, "(`simcore list software`)", _CALLED)
    return SOFTWARE[folded]


def also_called(library: str) -> tuple[str, ...]:
    """The other names of a library."""
    return tuple(name for name, meant in _CALLED.items() if meant == library)


#: Where nothing is said: what the method itself needs.
PLAIN = SOFTWARE.register("plain")(
    Software(name="plain", meaning="what the method itself holds", plain_modules=True)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How one release of a program runs language models.

    ``software``: whose copies it holds, and its cut of a pipeline. ``issuer``: what issues kernels.
    ``overlap``: what communication hides whatever a job sets; ``switched``: what recipes turn on
    beside, where a job does not list its switches; ``late_shards``: ZeRO-1 reduces gradients after
    backward although others are reduced under it.
    ``grads``: the gradients' copies, in the words of ``--main-grads``; ``wide_grads``: fp32 sums of
    all but fp16's. ``fp8``: the format that its fp8 is; ``fp8_params``: which it holds weights in.
    ``sequence_parallel``: tensor ranks cut the sequence too. ``whole_stages``: parameters and
    gradients of FSDP stay whole in a pipeline, over as many micro-batches as stages.
    ``selective``: what selective recompute runs again; ``selects_layers``: it is of whole layers.
    ``settings``: of a language model's layers; ``loss_of_cut``: with tensor ranks; ``dropout``: the
    rate that its jobs train with.
    ``compiled``: settings under torch.compile that are other than ``engine.compiled`` has them.
    ``options``: others, as the command line names them.
    """

    software: Software = PLAIN
    issuer: Issuer = "torch"
    overlap: frozenset[str] = frozenset({"grads"})
    switched: frozenset[str] = frozenset()
    late_shards: bool = False
    grads: str = "weights"
    wide_grads: bool = False
    fp8: str = "fp8"
    fp8_params: bool = False
    sequence_parallel: bool = True
    whole_stages: bool = False
    selective: str = DEFAULT_MODULES
    selects_layers: bool = False
    loss_of_cut: str = ""
    dropout: float = 0.0
    settings: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    compiled: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("settings", "compiled", "options"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def with_settings(self, **settings: Scalar) -> Program:
        """The same with other settings of layers."""
        return replace(self, settings={**self.settings, **settings})

    def words(self) -> dict[str, Any]:
        """Options where nothing is said, of a job that its recipes run."""
        hidden = self.overlap | self.switched
        covered = {"dgrad"} if "tensor" in hidden else set()
        return {
            "issuer": self.issuer,
            "overlap": ",".join(sorted(hidden - covered)),
            "main_grads": "fp32" if self.wide_grads else self.grads,
            **self.options,
        }


#: Programs of libraries that write model and loop themselves, by the library's name: so they run
#: where nobody says how.
RUNS: Registry[Program] = Registry("program")
