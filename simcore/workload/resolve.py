"""What ``--model`` may name: a database entry, a YAML or JSON file, a Python callable.

latte-xl              an entry of models_db; Llama-3.1-8B-Instruct: of its base model;
                      somebody/name: of its own hub name, else of the name alone
my-model.yaml         a models_db file of one's own
config.json           a Hugging Face config (never executed)
mypkg.net:build       a callable that returns an nn.Module; run where a person typed the name
                      (permission.py), refused where a file has it
timm:convnext_tiny    a model of an installed vision library, without weights (trace/zoos.py)
arch:transformer      an architecture, whose dimensions are settings of the job (settings.py)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path
from typing import Protocol, cast

from simcore.base.database import load_record
from simcore.base.errors import DataError, UnknownName, UsageError, nearest
from simcore.base.figures import Figure
from simcore.base.names import family
from simcore.workload.graph import Workload
from simcore.workload.library_names import named_alike
from simcore.workload.model_aliases import alias_named
from simcore.workload.models import MODELS, ZOO_LISTS, Dataset, ModelRecord, Scalar, Training
from simcore.workload.permission import names_code, permitted
from simcore.workload.record_settings import GIVEN
from simcore.workload.settings import PREFIX, arch_record, settings_given, with_settings

#: What a name has more than its base model's, which has the same shapes.
_TUNED = re.compile(r"[-_](?:instruct|chat|it|base)(?=[-_]|$)", re.IGNORECASE)
_HF = re.compile(r"-hf$")
#: Pixels behind the name of an image model, as hubs have it (``convnext-tiny-224``).
_SIZE = re.compile(r"[-_]\d{3}$")


#: Share of letters from which on a name is a slip for another: below, something else is meant.
_SLIP_FRAC = 0.8
#: Where a network is not in models_db.
_OTHERS = (
    "(`simcore list models`; others: timm:NAME, torchvision:NAME, a config.json, arch:NAME with "
    "--set, or package.module:function that builds the network, with --input)"
)
#: Families of networks of vision libraries: the nearest name of models_db is none of them.
_OF_LIBRARIES = re.compile(
    r"(?:swin|convnext|regnet|maxvit|beit|dinov2|mixer|coat|cait|nfnet|eva|ghostnet|shufflenet|"
    r"squeezenet|mnasnet|googlenet|resnest|tresnet|volo|xcit|poolformer|pvt|levit|convit|twins|"
    r"hrnet|xception|efficientformer|repvgg)(?![a-z]{3})",
    re.IGNORECASE,
)


class ModelSource(Protocol):
    """What a request needs of a model, wherever it comes from."""

    @property
    def name(self) -> str:
        """Short name."""

    @property
    def full_name(self) -> str:
        """Name as people know it."""

    @property
    def training(self) -> Training:
        """What its training script does where the user says nothing."""

    @property
    def dataset(self) -> Dataset | None:
        """The data set, if one is described."""

    def build(self, **overrides: Scalar) -> Workload:
        """The workload with config keys overridden. Raises InvalidConfig."""


#: Callables' models while one question of many predictions is answered.
_traced: ContextVar[dict[tuple[str, ...], ModelSource] | None] = ContextVar("_traced", default=None)


@contextmanager
def one_question() -> Iterator[None]:
    """While it is answered a callable is called once, however many predictions it takes."""
    outer = _traced.get()
    token = _traced.set({} if outer is None else outer)
    try:
        yield
    finally:
        _traced.reset(token)


def model_of(model: object, inputs: tuple[str, ...] = (), settings: object = None) -> ModelSource:
    """The model that text or a path names, or one that was read already (``read_config``).

    ``settings``: those that the job changes. Raises UsageError for anything else, saying how to
    name it, and as ``resolve_model`` does.
    """
    if isinstance(model, str | PathLike):
        return resolve_model(fspath(model), inputs=inputs, settings=settings)
    if isinstance(getattr(model, "training", None), Training):
        return with_settings(cast("ModelSource", model), settings)
    if callable(model):  # a module too
        raise UsageError(
            f"model must be text, not a {type(model).__name__}: name the function that builds it, "
            "'package.module:function' ('__main__:function' in a notebook), with its inputs"
        )
    if isinstance(model, Mapping):
        raise UsageError(
            "model must be text, not a dictionary: of a Hugging Face config, give its config.json "
            "or api.read_config(json.dumps(config), name)"
        )
    raise UsageError(f"model must be text, not {model!r:.60}")


def resolve_model(
    text: str, *, inputs: tuple[str, ...] = (), settings: object = None
) -> ModelSource:
    """The model that ``text`` names. Raises UnknownName, DataError, UsageError or InvalidConfig.

    Code is run for a ``TrustedName`` alone; CodeRefused for any other text that names code.
    ``inputs`` are shapes such as ``float32[B,3,224,224]`` for a callable or a library's model;
    ``settings`` those of the model that the job changes, as ``settings_given`` reads them.
    """
    if not inputs and ":" not in text and MODELS.path(text) is None and alias_named(text):
        return _of_alias(text, tuple(settings_given(settings).items()))
    return with_settings(_resolved(text, inputs), settings)


@lru_cache(maxsize=256)
def _of_alias(name: str, settings: tuple[tuple[str, Scalar], ...]) -> ModelRecord:
    """The model of an alias with its words; ``settings`` of the job win over them."""
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
    if text.startswith(PREFIX):
        return arch_record(text)
    path = Path(text)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise DataError("no such model file", file=path)
        return load_record(path, ModelRecord)
    if path.suffix == ".json" or (path.is_dir() and (path / "config.json").is_file()):
        from simcore.workload.huggingface import read_config

        found: ModelSource = read_config(path / "config.json" if path.is_dir() else path)
        return found
    if "/" in text and path.is_file():
        raise DataError("is no model file: a .yaml of models_db or a config.json", file=path)
    if ":" in text and not path.exists():
        if names_code(text):
            text = permitted(text)
        from simcore.workload.trace import trace_callable

        kept, key = _traced.get(), (text, *inputs)
        if kept is None:
            return trace_callable(text, inputs)
        if key not in kept:
            kept[key] = trace_callable(text, inputs)
        return kept[key]
    if inputs:
        raise UsageError(
            "--input is for a model given as package.module:callable, timm:NAME or torchvision:NAME"
        )
    base = _base_of(text)
    try:
        return MODELS[base].under(base)
    except UnknownName as err:
        library, slash, name = text.partition("/")
        if slash and library in ZOO_LISTS:
            raise UsageError(f"unknown model {text!r}: did you mean {library}:{name}?") from None
        raise _unknown(text, name or text, err) from None


def _unknown(text: str, name: str, err: UnknownName) -> UnknownName:
    """What to say of a name that no entry has: of a vision library, near an entry, or neither."""
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


def _base_of(name: str) -> str:
    """The name, or its base model's where that is what is known."""
    owner, _, alone = name.rpartition("/")
    if owner in ZOO_LISTS:
        alone = name
    plain = [
        form
        for n in (name, alone)
        for form in (n, _TUNED.sub("", n), _TUNED.sub("-pt", n), _HF.sub("", _TUNED.sub("", n)))
    ]
    return next((n for n in plain if MODELS.path(n) is not None), name)
