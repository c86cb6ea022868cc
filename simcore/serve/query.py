"""The query parameters of requests: the options of the command line, each with bounds.

Names are looked up only in the databases and in the lists of installed vision libraries. Unlike the
command line, the server accepts no path, no ``package.module:callable`` and no launch file, which
would read or run local files.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    create_model,
)

from simcore import api
from simcore.base.database import fold_name
from simcore.base.errors import InvalidConfig, Problems, UnknownName, UsageError
from simcore.serve.uploads import PREFIX, Uploads
from simcore.strategy.options import OPTIONS, Number, Option, Whole

#: Type of parameters that are names: the bound is longer than any name.
Name = Annotated[str, StringConstraints(min_length=1, max_length=100)]


def length(option: str, most: float) -> Any:
    """Type of a parameter that is the length of a run: up to ``most``, also as text (300B)."""

    def read(value: object) -> object:
        try:
            return OPTIONS[option].read(value)
        except UsageError as err:
            raise ValueError(str(err)) from None

    bounds = Field(gt=0, le=most, allow_inf_nan=False)
    return Annotated[float, BeforeValidator(read), bounds]


class SetUp(BaseModel):
    """One training job, described by the options of ``simcore predict`` under the same names.

    Options that are not given take the model's defaults, which the answer marks (default).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Name = Field(
        description="Model to train by any of its names (llama3 70b, meta-llama/Llama-3.1-8B), "
        "timm:NAME, torchvision:NAME or upload:ID of a config",
        examples=["latte-xl"],
    )
    gpus: Annotated[str, StringConstraints(min_length=1, max_length=200)] = Field(
        description="cluster as NODESxGPUSxTYPE; several parts joined by + where types are mixed",
        examples=["4x8xA6000ada"],
    )

    def words(self) -> dict[str, Any]:
        """The given options of the job, without ``dialect``, which is no option of it."""
        return self.model_dump(exclude_none=True, exclude={"dialect"})


def set_up() -> type[SetUp]:
    """``SetUp`` with those options of the table that have a control on the page, with bounds."""
    return _set_up(OPTIONS.version)


@lru_cache(maxsize=2)
def _set_up(_version: int) -> type[SetUp]:
    told = [o for o in OPTIONS if o.control and o.name not in SetUp.model_fields]
    fields: dict[str, Any] = {o.name: _field(o) for o in told}
    return create_model("SetUp", __base__=SetUp, __doc__=SetUp.__doc__, **fields)


def launch_query() -> type[SetUp]:
    """``SetUp`` with the dialect of the launch file to make of it."""
    wanted: Any = (Name, Field(description="Format of the launch file", examples=["deepspeed"]))
    return create_model("LaunchQuery", __base__=set_up(), dialect=wanted)


def _field(option: Option) -> tuple[Any, Any]:
    """Type and description of the query parameter for an option."""
    control, kind = option.control, option.kind
    assert control is not None
    typed: Any = Annotated[
        str, StringConstraints(min_length=1, max_length=control.most_letters)
    ]  # fmt: skip
    if isinstance(kind, Whole) and control.kind != "slider":  # which alone can be set to max
        typed = Annotated[int, Field(ge=kind.least, le=control.most)]
    elif option.part == "length":
        typed = length(option.name, control.most)
    elif isinstance(kind, Number):
        typed = Annotated[float, Field(ge=kind.least, le=control.most, allow_inf_nan=False)]
    examples = None if control.example is None else [control.example]
    described = Field(default=None, description=option.help_text.rstrip("."), examples=examples)
    return typed | None, described


def arguments(asked: SetUp, uploads: Uploads) -> dict[str, Any]:
    """Keyword arguments for ``api.predict``: names are checked, uploads replaced by their content.

    Raises InvalidConfig that lists every unknown name.
    """
    words = asked.words()
    problems = Problems()
    words["model"] = problems.attempt(_model, words["model"], uploads) or words["model"]
    if (name := words.pop("calibration", None)) is not None:
        if name.startswith(PREFIX):
            words["profile"] = problems.attempt(uploads.calibration, name)
        else:
            words["calibration"] = problems.attempt(_known, "calibration", name)
    if (name := words.get("fabric")) is not None:
        words["fabric"] = problems.attempt(_known, "fabric", name)
    if problems:
        raise InvalidConfig([*problems, *_others(words)])
    return words


def predicted(**given: Any) -> api.Prediction:
    """The result of ``api.predict``. Raises SimcoreError, also where numbers overflow."""
    try:
        found = api.predict(**given)
    except ArithmeticError:
        raise InvalidConfig([_TOO_LARGE]) from None
    figures = (found.step_time_s.value, found.step_time_s.high, found.memory.device_bytes)
    if not all(map(math.isfinite, figures)):
        raise InvalidConfig([_TOO_LARGE])
    return found


#: Options of a whole run, which requests and curves over nodes do not take.
OF_RUN = frozenset(o.name for o in OPTIONS if o.part in ("length", "run"))
_TOO_LARGE = "these figures are too large to predict with"


def _model(name: str, uploads: Uploads) -> Any:
    """The record of a model: never a string, which could be taken for a path or a callable."""
    return uploads.model(name) if name.startswith(PREFIX) else api.model_named(name)


def _known(option: str, name: str) -> str:
    """The canonical name of an option's value that could else be a path. Raises UnknownName."""
    known = api.choices()[option]
    default: str = OPTIONS[option].unsaid or ""
    names: dict[str, str] = {fold_name(n): n for n in filter(None, (*known, default))}
    if (found := names.get(fold_name(name))) is None:
        raise UnknownName(option, name, known)
    return found


def _others(words: dict[str, Any]) -> list[str]:
    """Further error messages about a request whose model or calibration is wrong."""
    rest = {k: v for k, v in words.items() if k not in (*OF_RUN, "calibration")}
    if isinstance(rest.get("model"), str):
        rest["model"] = api.model_named(_STAND_IN)
        rest = {k: rest[k] for k in ("model", "gpus", "network", "node") if k in rest}
    others = Problems()
    others.attempt(api.make_request, **rest)
    return others


#: Model with which the cluster is checked where the model is wrong: the smallest one.
_STAND_IN = "mnist-cnn"
