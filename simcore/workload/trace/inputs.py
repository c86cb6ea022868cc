"""Shapes of a model's inputs, parsed from text: ``float32[B,3,224,224]``, ``int64[B,128]``.

``float32[B,3,224,224] channels_last``: images whose channels are adjacent in memory.
"""

from __future__ import annotations

import re

from simcore.base.errors import UsageError, did_you_mean
from simcore.base.record import dataclass

DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool")
_SHAPE = re.compile(r"^\s*([A-Za-z]\w*)\s*\[(.*)\]\s*(\w*)\s*$")
_LAST = "channels_last"


@dataclass(frozen=True)
class InputShape:
    """Shape, dtype and layout of one input tensor; the batch dimension is None in ``dims``."""

    dtype: str
    dims: tuple[int | None, ...]
    channels_last: bool = False

    def at(self, batch: int) -> tuple[int, ...]:
        """The shape at one batch size."""
        return tuple(batch if d is None else d for d in self.dims)

    def __str__(self) -> str:
        dims = ",".join("B" if d is None else str(d) for d in self.dims)
        return f"{self.dtype}[{dims}]" + (f" {_LAST}" if self.channels_last else "")


def parse_input(text: str) -> InputShape:
    """The shape of an input from ``dtype[dims]``, where ``B`` is the batch. Raises UsageError."""
    match = _SHAPE.match(text)
    if match is None:
        raise UsageError(f"--input {text!r} is not DTYPE[SHAPE], such as float32[B,3,224,224]")
    dtype, inside, layout = match.groups()
    if dtype not in DTYPES:
        hint = did_you_mean(dtype, DTYPES, f": known are {', '.join(DTYPES)}")
        raise UsageError(f"--input {text!r}: unknown dtype {dtype!r}{hint}")
    dims: list[int | None] = []
    for word in (w.strip() for w in inside.split(",")):
        if word in ("B", "b"):
            dims.append(None)
        elif word.isdigit() and int(word) > 0:
            dims.append(int(word))
        else:
            raise UsageError(
                f"--input {text!r}: {word!r} is neither a positive whole number nor B (the batch)"
            )
    if layout not in ("", _LAST):
        raise UsageError(
            f"--input {text!r}: only {_LAST} may follow the shape, but it is {layout!r}"
        )
    if layout and len(dims) != 4:
        raise UsageError(f"--input {text!r}: {_LAST} needs a shape of four dimensions")
    return InputShape(dtype, tuple(dims), bool(layout))


def parse_inputs(texts: tuple[str, ...]) -> tuple[InputShape, ...]:
    """The shapes of all inputs in order. Raises UsageError, also if none has a batch dimension."""
    shapes = tuple(map(parse_input, texts))
    if shapes and not any(None in s.dims for s in shapes):
        raise UsageError("--input: no shape has the batch: write B, as in float32[B,3,224,224]")
    return shapes
