"""What a request may say: the command line's words as query parameters, all of them bounded.

Names are looked up in the databases and in the lists of installed vision libraries, nowhere else.
Unlike the command line, a server takes no path, no ``package.module:callable`` and no launch file:
those would read or run local files.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from simcore import api
from simcore.base.database import fold_name
from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.serve.uploads import PREFIX, Uploads
from simcore.strategy.options import OPTIONS, Number, Option, Whole

#: Words whose values are names: long enough for any, too short to hurt.
Name = Annotated[str, StringConstraints(min_length=1, max_length=100)]
#: A run is at most this long: beyond, a number is a slip of the keyboard.
_LONGEST = 1e11
Length = Annotated[float, Field(gt=0, le=_LONGEST, allow_inf_nan=False)]


class SetUp(BaseModel):
    """One training job: ``simcore predict``'s options, as it names them.

    What is not given takes the model's own default and is marked (default) in the answer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Name = Field(
        description="A name of models_db, timm:NAME, torchvision:NAME or upload:ID of a config",
        examples=["latte-xl"],
    )
    gpus: Annotated[str, StringConstraints(min_length=1, max_length=200)] = Field(
        description="NODESxGPUSxTYPE, joined by + where types are mixed",
        examples=["4x8xA6000ada"],
    )
    steps: Length | None = Field(
        default=None, description="Time of a run of so many steps", examples=[100000]
    )
    epochs: Length | None = Field(
        default=None,
        description="Time of a run of so many epochs of its data set",
        examples=[10],
    )

    def words(self) -> dict[str, Any]:
        """What was said of the job, without ``dialect``, which a single endpoint takes."""
        return self.model_dump(exclude_none=True, exclude={"dialect"})


def set_up() -> type[SetUp]:
    """``SetUp`` with the table's options that have a control on the page, bounded."""
    return _set_up(OPTIONS.version)


@lru_cache(maxsize=2)
def _set_up(_version: int) -> type[SetUp]:
    fields: dict[str, Any] = {o.name: _field(o) for o in OPTIONS.options().values() if o.control}
    return create_model("SetUp", __base__=SetUp, __doc__=SetUp.__doc__, **fields)


def launch_query() -> type[SetUp]:
    """A set-up and the dialect whose launch file is wanted of it."""
    wanted: Any = (Name, Field(description="Whose launch file", examples=["deepspeed"]))
    return create_model("LaunchQuery", __base__=set_up(), dialect=wanted)


def _field(option: Option) -> tuple[Any, Any]:
    """Type and description of an option as a query parameter."""
    control, kind = option.control, option.kind
    assert control is not None
    typed: Any = Annotated[
        str, StringConstraints(min_length=1, max_length=control.most_letters)
    ]  # fmt: skip
    if isinstance(kind, Whole) and not kind.or_max:
        typed = Annotated[int, Field(ge=kind.least, le=control.most)]
    elif isinstance(kind, Number):
        typed = Annotated[float, Field(ge=kind.least, le=control.most, allow_inf_nan=False)]
    examples = None if control.example is None else [control.example]
    described = Field(default=None, description=option.help.rstrip("."), examples=examples)
    return typed | None, described


def arguments(asked: SetUp, uploads: Uploads) -> dict[str, Any]:
    """Keyword arguments of ``api.predict``: names checked, uploads put in their place.

    Raises InvalidConfig with every name that no database and no upload has.
    """
    words = asked.words()
    problems: list[str] = []
    try:
        words["model"] = _model(words["model"], uploads)
    except UsageError as err:
        problems.append(str(err))
    if (name := words.pop("calibration", None)) is not None:
        try:
            if name.startswith(PREFIX):
                words["profile"] = uploads.calibration(name)
            else:
                words["calibration"] = _calibration(name)
        except UnknownName as err:
            problems.append(str(err))
    if problems:
        raise InvalidConfig([*problems, *_others(words)])
    return words


def predicted(**given: Any) -> api.Prediction:
    """``api.predict``; what overflows is an error of the request. Raises SimcoreError."""
    try:
        found = api.predict(**given)
    except (ArithmeticError, MemoryError):
        raise InvalidConfig([_TOO_LARGE]) from None
    figures = (found.step_time_s.value, found.step_time_s.high, found.memory.device_bytes)
    if not all(map(math.isfinite, figures)):
        raise InvalidConfig([_TOO_LARGE])
    return found


_TOO_LARGE = "these figures are too large to predict with"


def _model(name: str, uploads: Uploads) -> Any:
    """A record, never a string that could be taken for a path or a callable."""
    return uploads.model(name) if name.startswith(PREFIX) else api.model_named(name)


def _calibration(name: str) -> str:
    known = api.choices()["calibration"]
    found = {fold_name(n): n for n in (*known, "blind")}.get(fold_name(name))
    if found is None:
        raise UnknownName("calibration", name, known)
    return found


def _others(words: dict[str, Any]) -> list[str]:
    """What else is wrong, once the model or the calibration is: all of it at once."""
    rest = {k: v for k, v in words.items() if k not in ("steps", "epochs", "calibration")}
    if isinstance(rest.get("model"), str):
        rest["model"] = api.model_named(_STAND_IN)
        rest = {k: rest[k] for k in ("model", "gpus", "network", "node") if k in rest}
    try:
        api.make_request(**rest)
    except InvalidConfig as err:
        return list(err.violations)
    return []


#: Judges the cluster where the model is wrong: the smallest there is.
_STAND_IN = "mnist-cnn"
