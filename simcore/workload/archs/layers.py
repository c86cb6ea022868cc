"""Networks that are lists of layers: records of ``models_db/architectures`` and their interpreter.

A record has, in this order:

- ``settings``: the architecture's settings, each with its default, ``int`` for a number without
  one, or ``{default: ..., choices: [...]}``.
- ``values``: further named values; a caller may replace them (``feature_maps``).
- ``input``: channels and grid of the data.
- ``features`` and ``head``: layers, each ``kind: {argument: value, ...}``. A layer's kind is a
  method of ``archs.tape.Tape`` or of ``Layers``, which explain the arguments.

``$name`` in a value or in a text is the setting or value of that name; ``$present`` is the number
of channels of the present tensor. A value may also be one of the operations of ``Values``. A layer
whose ``when`` is false, or whose ``unless`` is true, is left out.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from string import Template
from typing import Any

from simcore.base.database import read_yaml, shipped_root
from simcore.base.units import FP32_BYTES, INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS, LAYER_LISTS
from simcore.workload.archs.parts import check_names
from simcore.workload.archs.tape import T, Tape
from simcore.workload.graph import Kernel, Op, Workload

#: Kinds of layers that are methods of the tape.
_ON_TAPE: dict[str, Callable[..., T]] = {
    method.__name__: method
    for method in (
        Tape.conv, Tape.batch_norm, Tape.act, Tape.unit, Tape.mean, Tape.max_pool,
        Tape.average_pool, Tape.linear, Tape.dropout, Tape.squeeze_excite,
    )
}  # fmt: skip
#: Arguments that a layer of other layers evaluates itself, once for each time that these run.
_LATE = ("layers", "branches", "shortcut", "times")


def round8(width: float) -> int:
    """``width`` rounded to a multiple of eight channels, but never below nine tenths of it."""
    out = max(8, int(width + 4) // 8 * 8)
    return out + 8 if out < 0.9 * width else out


class Values:
    """Named values, and the few operations on them that a record may state.

    - ``{times: [a, b], over: c}``: product, divided by ``over`` and rounded down.
    - ``{round8: [a, b]}``: product, rounded as ``round8`` does; ``{ceil: [a, b]}``: rounded up.
    - ``{most: [a, b]}``: the largest; ``{same: [a, b]}``: whether both are equal.
    - ``{all: [a, b]}``, ``{any: [a, b]}``: whether all or any are true.
    - ``{of: a, x: b, else: c}``: b where a, as text, is x. Without ``else`` a must be one of those
      listed.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.named = dict(named)

    def __call__(self, value: Any) -> Any:
        """What ``value`` of a record stands for. Raises ValueError if a table does not have it."""
        if isinstance(value, str) and "$" in value:
            name = value.removeprefix("$")
            return (
                self.named[name] if name in self.named else Template(value).substitute(self.named)
            )
        if isinstance(value, list):
            return [self(v) for v in value]
        return self._operation(value) if isinstance(value, dict) else value

    def _operation(self, stated: dict[str, Any]) -> Any:
        if "of" in stated:
            return self._listed(stated)
        kind = next(iter(stated))
        of = self(stated[kind])
        if kind == "times":
            return math.prod(of) // self(stated.get("over", 1))
        if kind == "same":
            return of[0] == of[1]
        if kind in ("round8", "ceil"):
            return (round8 if kind == "round8" else math.ceil)(math.prod(of))
        if kind == "most":
            return max(of)
        return all(of) if kind == "all" else any(of)

    def _listed(self, stated: dict[str, Any]) -> Any:
        given = self(stated["of"])
        key = str(given).lower() if isinstance(given, bool) else str(given)
        if key in stated:
            return self(stated[key])
        if "else" not in stated:
            known = ", ".join(k for k in stated if k != "of")
            raise ValueError(f"{stated['of'].removeprefix('$')} {key} is none of {known}")
        return self(stated["else"])


class Layers:
    """Runs layers of a record on a tape; ``results``: the tensor at the last block of each name."""

    def __init__(self, tape: Tape, values: Values, frozen_stages: int = 0) -> None:
        self.tape, self.values, self.frozen_stages = tape, values, frozen_stages
        self.results: dict[str, T] = {}
        self.skipped: list[T] = []
        self.start: T | None = None  # input of the block that is being built
        self.labels_bytes = 0.0

    def run(self, layers: Sequence[Mapping[str, Any]], x: T) -> T:
        """The result of ``layers`` on ``x``."""
        for layer in layers:
            (kind, stated), = layer.items()  # fmt: skip
            self.start = self.start or x
            self.values.named["present"] = x.c
            given = {k: v if k in _LATE else self.values(v) for k, v in stated.items()}
            if given.pop("when", True) and not given.pop("unless", False):
                if kind in _ON_TAPE:
                    x = _ON_TAPE[kind](self.tape, given.pop("name"), x, **given)
                else:
                    x = _STRUCTURE[kind](self, x, **given)
        return x

    def let(self, x: T, **named: Any) -> T:
        """Name values."""
        self.values.named.update(named)
        return x

    def refuse(self, _x: T, text: str) -> T:
        """Raises ValueError."""
        raise ValueError(text)

    def group(self, x: T, layers: Sequence[Mapping[str, Any]]) -> T:
        """Several layers under one condition."""
        return self.run(layers, x)

    def repeat(
        self, x: T, layers: Sequence[Mapping[str, Any]], rows: Sequence[Sequence[Any]] = ((),),
        columns: Sequence[str] = (), times: Any = 1,
    ) -> T:  # fmt: skip
        """``layers``, for each row of a table ``times`` times.

        The row gives values to the names in ``columns``; ``$stage`` is its number, ``$number`` that
        of the repetition, and ``$repeated`` whether it is not the first. A stride is the first's.
        """
        for stage, row in enumerate(rows, 1):
            if columns:
                self.let(x, **dict(zip(columns, row, strict=True)), stage=stage)
                self.tape.frozen = stage <= self.frozen_stages
            for number in range(1, self.values(times) + 1):
                self.let(x, number=number, repeated=number > 1)
                if number > 1 and "stride" in columns:
                    self.let(x, stride=1)
                x = self.run(layers, x)
        return x

    def residual(
        self, x: T, name: str, layers: Sequence[Mapping[str, Any]],
        shortcut: Sequence[Mapping[str, Any]] = (), *, relu: bool = False,
    ) -> T:  # fmt: skip
        """``layers`` and the sum with their input.

        Where shapes differ the input first passes the ``shortcut``; without one there is no sum.
        """
        y = self.run(layers, x)
        if (y.c, y.grid) != (x.c, x.grid):
            if not shortcut:
                return y
            x = self.run(shortcut, x)
        return self.tape.add(name, y, x, relu=relu)

    def concat(self, x: T, name: str, branches: Sequence[Sequence[Mapping[str, Any]]]) -> T:
        """Results of several branches that read the same tensor, joined along channels."""
        return self.tape.concat(name, [self.run(branch, x) for branch in branches])

    def dense(self, x: T, name: str, layers: Sequence[Mapping[str, Any]], times: Any) -> T:
        """``layers`` on the input and all their earlier results joined; all of these joined."""
        parts = [x]
        for number in range(1, self.values(times) + 1):
            self.let(x, number=number)
            parts.append(self.run(layers, self.tape.concat(name, parts)))
        return self.tape.concat(name, parts)

    def flatten(self, x: T) -> T:
        """All elements of a sample as channels."""
        return self.tape.reshape(x, x.c * math.prod(x.grid), (1,))

    def skip(self, x: T) -> T:
        """Keep the tensor for the layer that joins it last."""
        self.skipped.append(x)
        return x

    def halve(self, x: T, name: str) -> T:
        """Max pooling 2x2. Raises ValueError for a map of odd size."""
        if any(size % 2 for size in x.grid):
            raise ValueError(f"the image leaves a map of odd size {x.grid[0]} to be halved")
        return self.tape.max_pool(name, x, 2, 2)

    def crop_and_join(self, x: T, name: str) -> T:
        """The tensor kept last, cropped to this one's size, and this one.

        The crop is a strided view; both halves are copied into one tensor, which the convolution
        saves. Backward writes the crop's gradient into zeros.
        """
        kept, both = self.skipped.pop(), T(2 * x.c, x.grid)
        joined = Kernel(kind="copy", low=2.0 * both.elems, indexed=both.elems)
        cropped = Kernel(kind="copy", low=x.elems + 2.0 * kept.elems, launches=2.0, indexed=x.elems)
        self.tape.op(Op(name=name, fwd=(joined,), bwd=(cropped,)))
        return both

    def survive(self, x: T, name: str) -> T:
        """Stochastic depth: divided by the fraction kept, times the mask."""
        if not self.tape.xla:
            drop = Kernel(kind="elementwise", low=4.0 * x.elems, launches=2.0)
            self.tape.op(Op(name=name, fwd=(drop,), bwd=(drop,)))
        return x

    def loss(self, x: T) -> T:
        """Cross-entropy over the channels of each point."""
        self.tape.op(ops.cross_entropy("loss", x.points, x.c))
        self.tape.op(ops.loss_seed())
        self.labels_bytes = INT64_BYTES * x.points
        return x

    def block(self, x: T, name: str, *, repeated: bool = False) -> T:
        """The end of a block; ``repeated``: it is one of the layers that recompute runs again."""
        self.tape.block(name, boundary=self.start if repeated and not self.tape.frozen else None)
        self.results[name], self.start = x, None
        return x


#: The other kinds of layers.
_STRUCTURE: dict[str, Callable[..., T]] = {
    method.__name__: method
    for method in (
        Layers.let, Layers.refuse, Layers.group, Layers.repeat, Layers.residual, Layers.concat,
        Layers.dense, Layers.flatten, Layers.skip, Layers.halve, Layers.crop_and_join,
        Layers.survive, Layers.loss, Layers.block,
    )
}  # fmt: skip


@lru_cache(maxsize=16)
def _record(name: str) -> dict[str, Any]:
    record: dict[str, Any] = read_yaml(
        shipped_root() / "models_db" / "architectures" / f"{name}.yaml"
    )
    return record


def feature_maps(
    tape: Tape, name: str, image: tuple[int, int], *, frozen_stages: int = 0, **replaced: Any
) -> dict[str, T]:
    """Results of the feature layers of a record on a tape, by the name of the block they end.

    ``replaced``: settings and values other than the record's. ``frozen_stages``: the stem and so
    many stages are not trained. Raises ValueError for a setting that the network does not have.
    """
    record = _record(name)
    net = Layers(tape, _named(record, replaced), frozen_stages)
    tape.frozen = frozen_stages > 0
    net.run(record["features"], tape.input(record["input"]["channels"], image))
    return net.results


def _named(record: dict[str, Any], given: Mapping[str, Any]) -> Values:
    """All settings and values of a record. Raises ValueError for a name that is no choice."""
    values = Values(given)
    for key, stated in record["settings"].items():
        default = stated["default"] if isinstance(stated, dict) else stated
        values.named.setdefault(key, default)
        if isinstance(stated, dict):
            check_names(**{key: (values.named[key], stated["choices"])})
    for key, stated in record.get("values", {}).items():
        if key not in values.named:
            values.named[key] = values(stated)
    return values


class LayerList:
    """Builder of one record's network, with the settings of the record as its signature."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def __signature__(self) -> inspect.Signature:
        kw = inspect.Parameter.KEYWORD_ONLY
        given = [
            inspect.Parameter("name", kw, annotation="str"),
            inspect.Parameter("sample_unit", kw, annotation="str", default="image"),
        ]
        for key, stated in _record(self.name)["settings"].items():
            default = stated["default"] if isinstance(stated, dict) else stated
            if default == "int":
                given.append(inspect.Parameter(key, kw, annotation="int"))
            else:
                kind = type(default).__name__
                given.append(inspect.Parameter(key, kw, annotation=kind, default=default))
        return inspect.Signature(given)

    def __call__(self, *, name: str, sample_unit: str = "image", **settings: Any) -> Workload:
        """The workload of the network with these settings. Raises ValueError for a wrong one."""
        bound = self.__signature__.bind(name=name, sample_unit=sample_unit, **settings)
        bound.apply_defaults()
        given = {k: v for k, v in bound.arguments.items() if k not in ("name", "sample_unit")}
        record, fused = _record(self.name), given.get("fused_norm", False)
        tape = Tape(
            nchw=given.get("layout", "nchw") == "nchw" and not fused, fused_norm=fused,
            xla=given.get("xla", False),
            native_depthwise=given.get("depthwise_kernels") == "native",
        )  # fmt: skip
        net = Layers(tape, _named(record, given))
        shape = net.values(record["input"]["channels"]), (*net.values(record["input"]["grid"]),)
        x = tape.input(*shape)
        net.run((*record["features"], *record["head"]), x)
        return tape.workload(name, sample_unit, input_bytes=FP32_BYTES * x.elems + net.labels_bytes)


for _name, _file in LAYER_LISTS.items():
    ARCHS.register(_name)(LayerList(_file))
