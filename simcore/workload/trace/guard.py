"""Errors of tracing as one sentence: what cannot be traced, and the model's own exceptions."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcore.base.errors import SimcoreError, UsageError

if TYPE_CHECKING:
    from simcore.workload.trace.recorder import Recorder


#: The folder of simcore's code.
_OURS = Path(__file__).resolve().parents[2]
_FALLBACK = "or describe the model in a models_db file"
#: (class of torch's exception or words of its text, what the model does, what the user can do).
_REASONS = (
    ("DataDependentOutputException", "reads the value of a tensor (.item(), bool() or a branch)",
     "make the branch independent of the data"),
    ("DynamicOutputShapeException", "makes a tensor whose shape depends on data (nonzero, boolean "
     "mask, unique)", "compute all elements and mask them (dense), as for a fixed capacity"),
    ("UnbackedSymInt", "makes a shape from the value of a tensor", "use fixed shapes"),
    ("GuardOnDataDependentSymNode", "branches on the value of a tensor",
     "make the branch independent of the data"),
    (".numpy()", "leaves torch (.numpy() or np.asarray of a tensor)", "stay in torch operations"),
    ("tolist", "reads values of a tensor (.tolist())", "make it independent of the data"),
    ("on a meta tensor", "needs the values of a tensor", "make it independent of the data"),
    ("Cannot access data pointer", "calls a kernel that is not a torch operator",
     "replace it by torch operations"),
)  # fmt: skip


def check_traceable(modules: tuple[Any, ...], what: str) -> None:
    """Raises UsageError for modules whose trace would fail in backward or be wrong."""
    for root in modules:
        for name, module in root.named_modules():
            at = f"{what}: {name or 'the module'}"
            if getattr(module, "sparse", False) is True and "Embedding" in type(module).__name__:
                raise UsageError(
                    f"{at} has sparse gradients, which cannot be traced: build it with "
                    f"sparse=False, {_FALLBACK}"
                )
            for key, p in module._parameters.items():
                if type(p).__name__ == "UninitializedParameter":
                    raise UsageError(
                        f"{at}.{key} has no shape yet (a lazy module): give its input size, "
                        f"{_FALLBACK}"
                    )


def user_place(error: BaseException) -> str:
    """``file:line`` of the innermost frame in the user's code; empty if there is none."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        library = "torch" in path.parts or "importlib" in frame.filename or "<" in frame.filename
        if not library and not path.is_relative_to(_OURS):
            place = f"{frame.filename}:{frame.lineno}"
    return place


def own_error(what: str, error: BaseException, where: str = "") -> UsageError:
    """A UsageError with the type, text, file and line of an exception of the model's own code.

    ``what``: the model; ``where``: the path of the module in which it was raised.
    """
    message = " ".join(str(error).split())
    place = user_place(error)
    at = f" ({place})" if place else ""
    inside = f" in {where}" if where else ""
    return UsageError(f"{what}{inside}: {type(error).__name__}: {message:.400}{at}")


def _reason(error: BaseException) -> tuple[str, str] | None:
    """The entry of ``_REASONS`` (what the model does, remedy) of an exception or of its causes."""
    cause: BaseException | None = error
    while cause is not None:
        text = f"{type(cause).__name__}: {cause}"
        for mark, does, remedy in _REASONS:
            if mark in text:
                return does, remedy
        cause = cause.__cause__
    return None


@contextmanager
def _unlogged() -> Iterator[None]:
    """A context without torch's log of mismatched shapes, which the raised error states anyway."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


@contextmanager
def explained(what: str, recorder: Recorder) -> Iterator[None]:
    """A context that turns an exception of the traced step into a UsageError."""
    from simcore.workload.trace.recorder import failed_path

    try:
        with _unlogged():
            yield
    except SimcoreError:
        raise
    except Exception as err:
        path = failed_path(err) or recorder.stack[-1]
        reason = _reason(err)
        if reason is None:
            raise own_error(what, err, path) from err
        does, remedy = reason
        place = user_place(err)
        at = f" ({place})" if place else ""
        raise UsageError(
            f"{what}: {path or 'the module'} {does}{at}, which cannot be traced: "
            f"{remedy}, {_FALLBACK}"
        ) from err
