"""What ``--model`` may name: a database entry, a YAML or JSON file, a Python callable.

latte-xl              an entry of models_db; Llama-3.1-8B-Instruct-bnb-4bit names its base model's
                      entry; somebody/name: the entry of that hub name, else of the name alone
my-model.yaml         a file in the format of models_db
config.json           a Hugging Face config (never executed)
mypkg.net:build       a callable that returns an nn.Module; it is run if a person typed the name
                      (settings.py) and refused if a file contains it
timm:convnext_tiny    a model of an installed vision library, without weights (trace/zoos.py)
arch:transformer      an architecture, whose dimensions are settings of the job (settings.py)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path
from typing import Protocol, cast

from simcore.base.database import Folders, fold_name, load_record
from simcore.base.errors import DataError, UnknownName, UsageError, nearest
from simcore.base.figures import Figure
from simcore.base.lookup import once_a_question
from simcore.base.names import family
from simcore.workload.graph import Workload
from simcore.workload.models import (
    MODELS,
    ZOO_LISTS,
    Dataset,
    ModelRecord,
    Scalar,
    Training,
    of_alias,
)
from simcore.workload.settings import (
    GIVEN,
    PREFIX,
    arch_record,
    names_code,
    permitted,
    settings_given,
    with_settings,
)

#: Words of a hub's name that its base model's name does not have, in the order in which they are
#: left out; all these models have the same shapes. They say in which format the weights are stored,
#: how the model was tuned, in which month it was released, and its texts' length or its version.
_WORDS = tuple(
    re.compile(words, re.IGNORECASE)
    for words in (
        r"hf|diffusers|bnb|[48]bit|unsloth|dynamic|gptq|awq|int[48]|fp8|nf4|mxfp4|nvfp4|bf16|fp16|fp32",
        r"instruct|chat|it|pt|sft|dpo|thinking|reasoning",
        r"base",
        r"\d{4}",
        r"\d+k|1m|deduped|v\d\.\d",
    )
)
#: A point as names of Python write it (ms-swift: llama3_1-8b-instruct; it has qwen1half too).
_POINT = re.compile(r"(?<=\d)_(?=\d)")
#: The image size in pixels that hubs append to a model's name (``convnext-tiny-224``).
_SIZE = re.compile(r"[-_]\d{3}$")


#: Fraction of equal letters from which a name counts as a misspelling of another; below it, the
#: user means something else.
_SLIP_FRAC = 0.8
#: Hint for a network that is not in models_db.
_OTHERS = (
    "(`simcore list models`; others: timm:NAME, torchvision:NAME, a config.json, arch:NAME with "
    "--set, or package.module:function that builds the network, with --input)"
)
#: Families of networks that vision libraries have; the nearest name of models_db is not one of
#: them.
_OF_LIBRARIES = re.compile(
    r"(?:swin|convnext|regnet|maxvit|beit|dinov2|mixer|coat|cait|nfnet|eva|ghostnet|shufflenet|"
    r"squeezenet|mnasnet|googlenet|resnest|tresnet|volo|xcit|poolformer|pvt|levit|convit|twins|"
    r"hrnet|xception|efficientformer|repvgg)(?![a-z]{3})",
    re.IGNORECASE,
)


class ModelSource(Protocol):
    """What a request needs of a model, whatever kind of source it comes from."""

    @property
    def name(self) -> str:
        """Short name."""

    @property
    def full_name(self) -> str:
        """Name as people write it."""

    @property
    def training(self) -> Training:
        """Defaults of a job (batch, optimizer, ...), as in the model's own training script."""

    @property
    def dataset(self) -> Dataset | None:
        """The data set that the model is trained on; None if the record does not describe one."""

    def build(self, **overrides: Scalar) -> Workload:
        """The workload with some config keys overridden. Raises InvalidConfig."""


def model_of(model: object, inputs: tuple[str, ...] = (), settings: object = None) -> ModelSource:
    """The model that text or a path names, or one that was already read (``read_config``).

    ``settings``: those of the model's settings that the job changes. Raises UsageError for any
    other value and says how to name a model; otherwise raises as ``resolve_model`` does.
    """
    if isinstance(model, str | PathLike):
        return resolve_model(fspath(model), inputs=inputs, settings=settings)
    if isinstance(getattr(model, "training", None), Training):
        return with_settings(cast("ModelSource", model), settings)
    if callable(model):
        raise UsageError(
            f"model must be text, not a {type(model).__name__}: name the function that builds it, "
            "'package.module:function' ('__main__:function' in a notebook), with its inputs"
        )
    raise UsageError(f"model must be text, not {model!r:.60}")


def resolve_model(
    text: str, *, inputs: tuple[str, ...] = (), settings: object = None
) -> ModelSource:
    """The model that ``text`` names.

    ``inputs``: shapes such as ``float32[B,3,224,224]``, for a callable or a library's model.
    ``settings``: those of the model's settings that the job changes, in a form that
    ``settings_given`` reads. Code runs for a ``TrustedName`` alone; any other text that names code
    raises CodeRefused. Also raises UnknownName, DataError, UsageError and InvalidConfig.
    """
    if not inputs and ":" not in text and MODELS.path(text) is None:
        from simcore.workload.model_aliases import alias_named

        if alias_named(text):
            return _of_alias(text, tuple(settings_given(settings).items()))
    return with_settings(_resolved(text, inputs), settings)


@lru_cache(maxsize=256)
def _of_alias(name: str, settings: tuple[tuple[str, Scalar], ...]) -> ModelRecord:
    """The model of an alias with the alias's options; the job's ``settings`` override these."""
    from simcore.workload.model_aliases import alias_named

    alias = alias_named(name)
    assert alias is not None
    changed = {**alias.all_settings, **dict(settings)}
    record = cast("ModelRecord", with_settings(_resolved(alias.model, ()), changed))
    params = {} if settings else {"params": Figure(value=alias.params, source=GIVEN)}
    return record.model_copy(
        update={
            **params,
            "training": alias.training(record.training),
            "full_name": alias.about,
            "sources": {**record.sources, **alias.sources, GIVEN: "settings of the alias"},
            "notes": (*record.notes, *alias.notes),
        }
    )


def _resolved(text: str, inputs: tuple[str, ...]) -> ModelSource:
    return _resolved_once(type(text), text, inputs)


@once_a_question
def _resolved_once(_trust: type, text: str, inputs: tuple[str, ...]) -> ModelSource:
    """The model of a name; ``_trust``: its type, which says whether code that it names may run."""
    if text.startswith(PREFIX):
        return arch_record(text)
    path = Path(text)
    try:
        path.exists()
    except OSError as err:
        raise UsageError(f"model {text[:40] + '...'!r}: {err.strerror}") from None
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise DataError("no such model file", file=path)
        return load_record(path, ModelRecord)
    folder = bool(text.strip()) and path.is_dir()  # an empty text is no name of the current folder
    if path.suffix == ".json" or (folder and (path / "config.json").is_file()):
        from simcore.workload.huggingface import read_config

        return read_config(path / "config.json" if folder else path)
    if "/" in text and path.is_file():
        raise DataError("is no model file: a .yaml of models_db or a config.json", file=path)
    if ":" in text and not path.exists():
        if names_code(text):
            text = permitted(text)
        from simcore.workload.trace import trace_callable

        return trace_callable(text, inputs)
    if inputs:
        raise UsageError(
            "--input is for a model given as package.module:callable, timm:NAME or torchvision:NAME"
        )
    return record_named(text)


def record_named(text: str) -> ModelRecord:
    """The record that a name of models_db or of a hub means; never a path. Raises UnknownName."""
    base = _base_of(text)
    try:
        return _seeing(MODELS[base].under(base), base)
    except UnknownName as err:
        library, slash, name = text.partition("/")
        if slash and library in ZOO_LISTS:
            raise UsageError(f"unknown model {text!r}: did you mean {library}:{name}?") from None
        raise _unknown(text, name or text, err) from None


def _seeing(record: ModelRecord, name: str) -> ModelRecord:
    """The record with the encoder of images that the alias ``name`` has, if it has one."""
    if not record.sees or of_alias(record.sees, name) is None:
        return record
    return _with_encoder(record, name)


@lru_cache(maxsize=64)
def _with_encoder(record: ModelRecord, name: str) -> ModelRecord:
    """One object an alias: caches compare records by identity."""
    from simcore.workload.huggingface import with_encoder

    return with_encoder(record, of_alias(record.sees, name) or {})


def _unknown(text: str, name: str, err: UnknownName) -> UnknownName:
    """The error for a name without an entry: it hints at vision libraries, entries, or both."""
    from simcore.workload.library_names import named_alike

    names, aliases = MODELS.names(), MODELS.aliases()
    known = [*names, *aliases]
    if family(text, known):
        return err
    plain = name.lower().replace("-", "_")
    if alike := named_alike(name) or named_alike(_SIZE.sub("", name)):
        return UnknownName("model", text, (), f"(of vision libraries: {', '.join(alike)})")
    if _OF_LIBRARIES.match(name) and "_" in plain:
        hint = f"(of vision libraries: timm:{plain} or torchvision:{plain}, if their lists have it)"
        return UnknownName("model", text, (), hint)
    if nearest(text, known, 1, _SLIP_FRAC):
        return err
    return UnknownName("model", text, names, _OTHERS, aliases)


@once_a_question
def _base_of(name: str) -> str:
    """The name, or its base model's name if only the base model has an entry."""
    owner, _, last = name.rstrip("/").rpartition("/")
    if owner in ZOO_LISTS:
        return name
    last = last.rpartition("--")[2]  # a folder of the hub's cache: models--OWNER--NAME
    forms = [name, last]
    for text in dict.fromkeys((last, _POINT.sub(".", last.replace("1half", "1.5")))):
        first, *words = re.split("[-_]", text)
        for left_out in _WORDS:
            words = [word for word in words if not left_out.fullmatch(word)]
            plain = "-".join((first, *words))
            forms += [plain, f"{plain}-pt"]
    if found := next((form for form in forms if MODELS.path(form) is not None), None):
        return found
    hub_names = _hub_names(MODELS.folders())
    return next((hub_names[f] for f in map(fold_name, forms) if f in hub_names), name)


@lru_cache(maxsize=8)
def _hub_names(_folders: Folders) -> Mapping[str, str]:
    """Names of hubs among the aliases, ``owner/name``, by the folded name without its owner."""
    found: dict[str, str] = {}
    for alias in MODELS.aliases():
        owner, _, name = alias.rpartition("/")
        if owner and not name.isdigit():
            found.setdefault(fold_name(name), alias)
    return found
