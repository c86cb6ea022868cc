"""The training program of a job: the one named, else the usual one, and the options that it
implies.

``programs_db/usual`` says which layouts and precisions of a language model need a program with its
own implementation of the model. Where such a program is assumed, the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simcore.base.lookup import once_a_question
from simcore.base.record import dataclass
from simcore.strategy.layout import Layout
from simcore.strategy.options import OPTIONS, on_or_off
from simcore.strategy.programs import (
    UsualProgram,
    modules_program,
    program_named,
    read_as,
    usual_loop,
    usual_of_language_models,
)
from simcore.strategy.programs.mechanisms import DEFAULT_MODULES, PLAIN, OfKind, Program, Runs
from simcore.strategy.strategy import folded_strategy
from simcore.workload.models import ModelRecord, Scalar
from simcore.workload.resolve import ModelSource
from simcore.workload.settings import PREFIX, TORCH, settings_given, with_settings

#: Name that asks for the usual library, also for a layout that does not divide the model.
AUTO = "auto"
#: Architecture of language models for which libraries have their own implementation.
_ARCH = "transformer"
#: Settings that the library replaces only where the model has one of the usual values.
_USUAL: Mapping[str, tuple[Scalar, ...]] = {
    "attention": ("flash",), "loss": ("eager", "eager_freed", "eager_shifted"),
    "norm": ("rmsnorm",), "dropout": (0.0,), "expert_tokens": ("chosen_weighed", "all"),
}  # fmt: skip
#: The setting that says how experts' products and rows are computed.
_EXPERTS = "joint_experts"
#: torch's attention -> what it becomes under a mask that is a tensor.
_UNDER_A_MASK: Mapping[Scalar, str] = {"flash": "masked", "flash_first": "masked_first"}
#: Option that answers list as a default where it was not given.
_LISTED = "recompute"


@dataclass(frozen=True)
class Library:
    """The program of a job, and how it was chosen.

    ``assumed``: nobody named it. ``by_file``: a launch file of the program named it; such a file's
    reader already fills in the program's defaults. ``asked_as``: the name that the user typed.
    ``likely``: the program whose loop such a job most likely has, where none is named or needed.
    """

    program: Program
    assumed: bool = False
    by_file: bool = False
    asked_as: str = ""
    likely: UsualProgram | None = None

    @property
    def _run(self) -> Runs | None:
        """The program's default options and settings; None for PyTorch without a library."""
        return self.program.runs

    def words(
        self, options: Mapping[str, Any], record: ModelSource | None, expert_tp: int = 1
    ) -> dict[str, Any]:
        """The options, with the library's defaults for those that are not given.

        ``expert_tp``: tensor ranks of an expert where the library divides each over all of them.
        """
        given = {k: v for k, v in options.items() if v is not None}
        if self.by_file or self._run is None:
            return given
        kind = self._kind(record, options)
        precision = str(given.get("precision", ""))
        precisions = {**self._run.precisions, **kind.precisions}
        if precision in precisions:
            given["precision"] = precisions[precision]
        strategy = folded_strategy(str(given.get("strategy", "")))
        own = {k: v for k, v in self._run.words(strategy, precision).items() if k != _LISTED}
        if precision.startswith(("fp16", "fp32", "tf32", "amp")):
            own.pop("main_grads", None)  # only bf16 gradients need wider sums
        cut = {"tensor": given.get("tp"), "pipeline": given.get("vpp")}
        hidden = [w for w in own["overlap"].split(",") if int(cut.get(w, 2) or 1) > 1]
        own["overlap"] = ",".join(hidden) or "none"
        if self._run.experts_on_tensor_ranks and expert_tp > 1:
            own["expert_tp"] = expert_tp
        if self.assumed:
            own["issuer"] = usual_of_language_models().issuers.get(own["issuer"], own["issuer"])
        return {**own, **_taken(kind.options, record), **given}

    def recompute_words(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options with the recompute mode as the library reads its name."""
        whole = not self.by_file and self._run is not None and self._run.selective_is_whole_layers
        if whole and options.get(_LISTED) == "selective":
            return {**options, _LISTED: "full"}
        return {**options}

    def on(self, record: ModelSource | None, options: Mapping[str, Any]) -> ModelSource | None:
        """The model as the program runs it, with the settings that the job does not give.

        A language model is left as it is: ``settings`` says what the program changes in its layers.
        """
        if not isinstance(record, ModelRecord) or _written_anew(record) or record.traced:
            return record
        given = settings_given(options.get("settings"))
        release = self._run.torch if self._run else ""
        own: dict[str, Scalar] = {}
        if release:
            from simcore.workload.releases import settings_of_release

            own = settings_of_release(record.arch, release)
        own |= self._kind(record, options).settings
        own = {k: v for k, v in own.items() if k not in given}
        if not own:
            return record
        return with_settings(record, {**given, **own} if record.name.startswith(PREFIX) else own)

    def _kind(self, record: ModelSource | None, options: Mapping[str, Any]) -> OfKind:
        """What the program does for a job of this kind, beside what it does for all."""
        if record is None or not self.program.kinds:
            return OfKind(when={})
        from simcore.strategy.programs.kinds import kind_of  # few programs have such facts

        has = record.settings({}) if isinstance(record, ModelRecord) else {}
        stated = [name for name in OPTIONS.settings if options.get(name) is not None]
        given = settings_given(options.get("settings"))
        facts = {
            **given, **has, **{name: options[name] for name in stated},
            TORCH: _as_version(self._release(options)),
            "model": record.name, "arch": getattr(record, "arch", ""),
            "precision": options.get("precision") or record.training.precision,
            "strategy": options.get("strategy") or record.training.strategy,
            "dispatcher": options.get("dispatcher"),
        }  # fmt: skip
        return kind_of(self.program.kinds, facts)

    def recompute(self, of_model: str) -> str:
        """The recompute mode where none is given: the library's default, else the model's."""
        return of_model if self._run is None else self._run.options.get(_LISTED, of_model)

    @property
    def selective(self) -> str:
        """The modules that selective recompute covers where none is named."""
        return DEFAULT_MODULES if self._run is None else self._run.selective_modules

    def settings(self, record: ModelSource | None, options: Mapping[str, Any]) -> dict[str, Scalar]:
        """Settings that the library changes in a language model, except those that the job sets."""
        if not _written_anew(record):
            return {}
        assert isinstance(record, ModelRecord)
        has = record.settings({})
        masked: dict[str, Scalar] = {}
        if self._masked(has, options, record):
            masked["attention"] = _UNDER_A_MASK[has["attention"]]
        if self._run is None:
            return {**self._of_modules(has, options, record), **masked}
        apart = set()
        if has.get("kv_rank"):  # down-projections stay separate products
            apart.add("fused_qkv")
        if options.get("lora_rank") or has.get("lora_rank"):  # adapters name unfused products
            apart |= {"fused_qkv", "fused_gate_up"}
        given = settings_given(options.get("settings"))  # the job's own settings win
        apart |= {k for k, v in given.items() if k != "norm" or v not in _USUAL["norm"]}
        ranks, batch = options.get("tp") or 1, options.get("micro_batch")
        heads = int(has["heads"] or 0) // ranks * (batch if isinstance(batch, int) else 1)
        of_kind = self._kind(record, options).settings
        own = {**self._run.layers(ranks, heads), **of_kind}
        usual = {
            key: value
            for key, value in own.items()
            if key in has and has[key] in _USUAL.get(key, (has[key],)) and key not in apart
        }
        return usual | {k: v for k, v in masked.items() if k not in apart}

    def _of_modules(
        self, has: Mapping[str, Any], options: Mapping[str, Any], record: ModelRecord
    ) -> dict[str, Scalar]:
        """How the library whose modules a plain loop runs computes experts; empty for others."""
        plain = self.program.layers.plain_pytorch_modules
        if not (plain and record.modules_of and has.get("experts")):
            return {}
        runs = modules_program(record.modules_of).runs
        own = {} if runs is None else {k: v for k, v in runs.settings.items() if k == _EXPERTS}
        return own if _EXPERTS not in settings_given(options.get("settings")) else {}

    def _masked(
        self, has: Mapping[str, Any], options: Mapping[str, Any], record: ModelRecord
    ) -> bool:
        """Whether torch's attention gets a mask that is a tensor; its flash kernel takes none.

        That is the case for ALiBi biases in programs without their own kernel, for windows in
        transformers, and for its compiled layers before a release of PyTorch. Falcon adds the
        biases to the mask (transformers, modeling_falcon.py, FalconAttention.forward), as do
        Baichuan-13B's own modeling_baichuan.py and PaddleNLP's; BLOOM and MPT compute the scores
        without a fused kernel there.
        """
        if has.get("attention") not in _UNDER_A_MASK:
            return False
        layers = self.program.layers
        if record.modules_of and layers.plain_pytorch_modules and not layers.window_as_mask:
            layers = modules_program(record.modules_of).layers
        if layers.window_as_mask and _windowed(has, options.get("seq_len")):
            return True
        if layers.compiled_mask and on_or_off("compile", options.get("compile")):
            from simcore.workload.releases import version_of  # few jobs are compiled

            release = self._release(options)
            if not release or version_of(release) < version_of(layers.compiled_mask):
                return True
        return has.get("positions") == "alibi" and "attention" not in (
            self._run.settings if self._run else {}
        )

    def _release(self, options: Mapping[str, Any]) -> str:
        """The release of PyTorch that the job states, else the program's; "" where neither does."""
        given = settings_given(options.get("settings"))
        return str(given.get(TORCH, self._run.torch if self._run else ""))

    def compiled(self) -> Mapping[str, Scalar]:
        """Settings that the library changes in addition under torch.compile."""
        return {} if self._run is None else self._run.compiled_settings

    def told(self) -> tuple[str, ...]:
        """A sentence where the program is assumed, or where another one stands in for it."""
        if self.assumed:
            return (assumed_of(self.program),)
        if self.likely is not None:
            return (f"loop: {self.likely.meaning} (--software {self.likely.program})",)
        why = read_as(self.asked_as)
        return (f"software: {self.asked_as} is read as {self.program.name}, {why}",) if why else ()


def check_library(name: str) -> None:
    """Raise UnknownName for the name of no library."""
    if name != AUTO:
        program_named(name)


def assumed_of(program: Program | None = None) -> str:
    """The sentence for a program that is assumed; by default for the usual one."""
    program = usual_of_language_models().record if program is None else program
    graphs = program.runs is not None and program.runs.issuer in usual_of_language_models().issuers
    return (
        f"software: {program.name}, {program.meaning} (--software plain: PyTorch's own modules)"
        + (", half its kernels in CUDA graphs (--issuer)" if graphs else "")
    )


def library_of(
    options: Mapping[str, Any],
    record: ModelSource | None,
    layout: Layout,
    dialect: str = "",
    released: int = 0,
    device: str = "",
) -> Library:
    """The program that is named, else the usual one. Raises UnknownName.

    ``dialect``: the format of the launch file, if there is one. ``released``: the year of the
    cluster's newest GPU; 0 where it is not known. ``device``: the architecture of its devices.
    """
    named = options.get("software")
    on_device = usual_of_language_models().on_devices.get(device, "")
    if named and named != AUTO:
        program = program_named(named)
        if on_device.partition("@")[0] == program.name:  # its release for such devices
            program = program_named(on_device)
        return Library(program, by_file=bool(dialect), asked_as="" if dialect else named.strip())
    if dialect or not _written_anew(record):
        arch = record.arch if isinstance(record, ModelRecord) and not dialect else ""
        return Library(PLAIN, likely=usual_loop(arch))
    usual = usual_of_language_models()
    if on_device:
        return Library(program_named(on_device), assumed=True)
    cut = max(layout.tp, layout.pp, layout.cp, layout.ep) > 1
    likely = named == AUTO or (usual.cut and cut)
    likely |= (options.get("precision") or "").lower() in usual.precisions
    other = folded_strategy(options.get("strategy") or "") in usual.except_strategies
    other |= options.get("issuer") in usual.except_issuers
    if other or not likely:
        return Library(PLAIN)
    return Library(_of_its_time(usual, record, released), assumed=True)


@once_a_question
def _of_its_time(usual: UsualProgram, record: ModelSource | None, released: int) -> Program:
    """The program that is assumed for a language model, by the model's and the GPUs' generation."""
    from simcore.strategy.programs.kinds import holds_of  # few jobs need the assumption

    has = record.settings({}) if isinstance(record, ModelRecord) else {}
    facts = {**has, "released": released or None}
    found = (e.program for e in usual.earlier if holds_of(e.when, facts))
    return program_named(next(found, usual.program))


def _as_version(release: str) -> str:
    """A release with at least two points, since 1.10 alone is a number (``base/conditions.py``)."""
    return f"{release}.0" if release.count(".") == 1 else release


def _taken(options: Mapping[str, Any], record: ModelSource | None) -> dict[str, Any]:
    """A program's options without those that are settings which the model lacks."""
    has = record.settings({}) if isinstance(record, ModelRecord) else {}
    return {k: v for k, v in options.items() if k in has or not OPTIONS[k].setting}


def _windowed(has: Mapping[str, Any], seq_len: int | None) -> bool:
    """Whether every layer's attention window is shorter than the sequence."""
    everywhere = has.get("window_pattern", "w") == "w" and not has.get("chunked")
    return everywhere and 0 < int(has.get("window") or 0) < int(seq_len or has.get("seq_len") or 0)


def _written_anew(record: ModelSource | None) -> bool:
    return isinstance(record, ModelRecord) and record.arch == _ARCH
