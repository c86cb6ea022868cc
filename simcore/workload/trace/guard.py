"""What cannot be traced, said in one sentence; and the model's own errors, as they are."""

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


_OURS = Path(__file__).resolve().parents[2]
_FALLBACK = "or describe the model in a models_db file"
#: Class of torch's exception, or words of its text -> what the model does, and what to do.
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
    """Refuse what would only fail in backward, or be wrong. Raises UsageError."""
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
    """``file:line`` of the innermost frame that is neither torch's nor simcore's; may be empty."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        inside = "torch" in path.parts or "importlib" in frame.filename or "<" in frame.filename
        if not inside and not path.is_relative_to(_OURS):
            place = f"{frame.filename}:{frame.lineno}"
    return place


def own_error(what: str, error: BaseException, where: str = "") -> UsageError:
    """The model's exception as one sentence: its type, its words, its file and line."""
    said = " ".join(str(error).split())
    place = user_place(error)
    at = f" ({place})" if place else ""
    inside = f" in {where}" if where else ""
    return UsageError(f"{what}{inside}: {type(error).__name__}: {said:.400}{at}")


def _reason(error: BaseException) -> tuple[str, str] | None:
    seen: BaseException | None = error
    while seen is not None:
        text = f"{type(seen).__name__}: {seen}"
        for mark, does, remedy in _REASONS:
            if mark in text:
                return does, remedy
        seen = seen.__cause__
    return None


@contextmanager
def _unlogged() -> Iterator[None]:
    """torch's log of shapes that do not match stays silent: the sentence raised says it."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


@contextmanager
def explained(what: str, recorder: Recorder) -> Iterator[None]:
    """Turn an exception of the traced step into a UsageError."""
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
