"""A training program: its mechanisms, and how it runs where nobody says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from simcore.base.record import dataclass
from simcore.hardware.host import Issuer
from simcore.strategy.programs.mechanisms import (
    Fsdp,
    Gradients,
    HostWork,
    Layers,
    Offload,
    OptimizerState,
    ParallelRanks,
    Pipeline,
    Recompute,
    Zero3,
)
from simcore.workload.archs.lm_attention import FUSED_SOFTMAX_SCORES
from simcore.workload.models import Scalar
from simcore.workload.recompute import DEFAULT_MODULES

#: 8-bit precisions with one scale per tensor, in which weights can be stored.
SCALED_A_TENSOR = ("fp8", "fp8-cs")
#: Fields of ``Runs`` to which a release adds keys.
MAPPINGS = ("settings", "compiled_settings", "options", "precisions")


@dataclass(frozen=True, kw_only=True)
class Runs:
    """How a program runs language models where neither job nor launch file says.

    ``issuer``: what issues kernels, in the words of ``--issuer``.
    ``overlap``: communication that it hides whatever a job sets, in the words of ``--overlap``;
    ``recipe_overlap``: what its recipes turn on beside, where a job does not list its switches;
    ``zero1_reduces_after_backward``: ZeRO-1 alone does not hide its gradients.
    ``main_grads``: the gradients' copies, in the words of ``--main-grads``;
    ``fp32_gradient_sums``: sums in fp32 instead, of all precisions but fp16.
    ``precisions``: what it makes of a precision that a job names; ``fp8_weights``: it can hold
    weights in 8 bits.
    ``sequence_parallel``: tensor ranks cut the sequence too.
    ``experts_on_tensor_ranks``: tensor ranks divide each expert too.
    ``selective_modules``: what selective recompute runs again; ``selective_is_whole_layers``: whole
    layers, so that its selective recompute is full recompute.
    ``dropout``: the rate that its jobs train with.
    ``settings``: of a language model's layers; ``loss_with_tensor_ranks``: the loss where there
    are any; ``compiled_settings``: under torch.compile, where they are other than usual.
    ``options``: others, as the command line names them.
    ``torch``: the release of PyTorch that it ran on; "" where it says nothing of old ones.
    """

    issuer: Issuer = "torch"
    overlap: frozenset[str] = frozenset({"grads"})
    recipe_overlap: frozenset[str] = frozenset()
    zero1_reduces_after_backward: bool = False
    main_grads: str = "weights"
    fp32_gradient_sums: bool = False
    fp8_weights: bool = False
    sequence_parallel: bool = True
    experts_on_tensor_ranks: bool = False
    selective_modules: str = DEFAULT_MODULES
    selective_is_whole_layers: bool = False
    dropout: float = 0.0
    loss_with_tensor_ranks: str = ""
    settings: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    compiled_settings: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    precisions: Mapping[str, str] = field(default_factory=dict, hash=False)
    torch: str = ""

    def __post_init__(self) -> None:
        for name in MAPPINGS:
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def words(self, strategy: str = "", precision: str = "") -> dict[str, Any]:
        """Options where nothing is said, of a job that its recipes run.

        ``strategy``, ``precision``: the job's; "" where it does not say them.
        """
        hidden = self.overlap | self.recipe_overlap
        if "tensor" in hidden:
            hidden -= {"dgrad"}
        if self.zero1_reduces_after_backward and strategy == "zero1":
            hidden -= {"grads"}
        return {
            "issuer": self.issuer,
            "overlap": ",".join(sorted(hidden)) or "none",
            "main_grads": "fp32" if self.fp32_gradient_sums else self.main_grads,
            **({} if self.sequence_parallel else {"sequence_parallel": False}),
            **({"fp8_params": True} if self.fp8_weights and precision in SCALED_A_TENSOR else {}),
            **self.options,
        }

    def layers(self, tensor_ranks: int, heads: int) -> dict[str, Scalar]:
        """Settings of a language model's layers.

        ``heads``: attention heads of a rank times samples of a micro-batch. The kernel that fuses
        mask and softmax takes a multiple of ``FUSED_SOFTMAX_SCORES`` of them; others run apart.
        """
        found: dict[str, Scalar] = {"dropout": self.dropout, **self.settings}
        if self.loss_with_tensor_ranks and tensor_ranks > 1:
            found["loss"] = self.loss_with_tensor_ranks
        if found.get("attention") == "fused_softmax" and heads % FUSED_SOFTMAX_SCORES:
            found["attention"] = "math"
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        values = dict(vars(self))
        for name in MAPPINGS:
            values[name] = dict(values[name])
        return _runs_again, (values,)


def _runs_again(values: dict[str, Any]) -> Runs:
    """The same in another process, whose mappings travel as dictionaries."""
    return Runs(**values)


@dataclass(frozen=True, kw_only=True)
class OfKind:
    """Defaults of a program for the jobs for which ``when`` holds (``base/conditions.py``).

    Facts of a job: ``model`` and ``arch``, names of models_db and of its architecture;
    ``precision``, ``strategy``; ``torch``, the release of PyTorch; and the model's settings, blank
    where it does not have one.

    ``options``, as the command line names them; ``settings`` of the model, as of ``--set``;
    ``precisions``: what the program makes of a precision that the job names. A value of None takes
    an earlier one back.
    """

    when: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    precisions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Program:
    """One program, or a release of it: ``name`` as ``--software`` takes it, ``meaning`` in a line.

    ``runs`` is None of a library that is put around a user's own model and loop. ``kinds``: what it
    does for some kinds of job only, whose order is that of its facts.
    """

    name: str
    meaning: str
    gradients: Gradients = field(default_factory=Gradients)
    optimizer_state: OptimizerState = field(default_factory=OptimizerState)
    offload: Offload = field(default_factory=Offload)
    zero3: Zero3 = field(default_factory=Zero3)
    fsdp: Fsdp = field(default_factory=Fsdp)
    pipeline: Pipeline = field(default_factory=Pipeline)
    recompute: Recompute = field(default_factory=Recompute)
    ranks: ParallelRanks = field(default_factory=ParallelRanks)
    layers: Layers = field(default_factory=Layers)
    host: HostWork = field(default_factory=HostWork)
    runs: Runs | None = None
    kinds: tuple[OfKind, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)  # programs are keys of caches; equal ones have one name


#: Where no program is named: what the method itself needs, around PyTorch's own modules.
PLAIN = Program(
    name="plain",
    meaning="what the method itself holds",
    layers=Layers(plain_pytorch_modules=True),
)
