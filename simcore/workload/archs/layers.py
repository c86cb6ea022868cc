"""Networks that are records of ``models_db/architectures``, and the reader of these records.

A record is found in a user's ``models_db/architectures`` first, and checked when it is first read
(``archs.check_layers``). It has, in this order (and first ``with``, a record whose values and parts
it has too):

- ``settings``: the architecture's settings, each with its default, ``int`` or ``str`` for one
  without, ``{default: ..., choices: [...]}``, or ``{default: 2x3, numbers_between: x}`` for a list.
- ``values``: further named values; a caller may replace them (``stages``).
- ``tape``: how tensors are kept (arguments of ``archs.tape.Tape``).
- ``parts``: layers by name, which are then a kind of layer; arguments of a use are values in them.
- ``input``: channels and grid of the data; a network without it begins by layers of its own.
- ``features`` and ``head``: layers, each ``kind: {argument: value, ...}``.
- ``input_bytes``, ``tokens``: of a sample, where they are not those of ``input`` and its labels;
  ``workload``: further fields of the workload.
- ``frozen``: for networks that only run forward, the elements held and the most that live at once.

A kind of layer is a method of ``Tape``, one of ``Layers``, an operator of ``workload.ops``
(``ops.copy``; ``tf.bias`` and ``xla.added`` of its modules for TensorFlow) or one of the record's
parts; the first three explain their arguments. A layer reads
the result of the one before it, or the tensors that ``from`` states; ``as`` names its result. A
layer whose ``when`` is false is left out.

A text that begins with ``=`` is a formula (``archs.formulas``), in which ``x`` is the present
tensor; ``$name`` within any other text is the value of that name.
``{of: formula, A: ..., B: ..., else: ...}`` is the entry for the formula's value as text; without
``else`` it must be one of those listed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from string import Template
from typing import TYPE_CHECKING, Any

from simcore.base.database import read_yaml
from simcore.base.lookup import checked_entry, read_entry, write_entry
from simcore.base.units import FP32_BYTES, INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import (
    ARCHS,
    FROZEN_ARCHS,
    FROZEN_LAYER_LISTS,
    KERNELS,
    LAYER_LISTS,
    check_names,
    network_file,
)
from simcore.workload.archs.formulas import Meaning, formula
from simcore.workload.archs.tape import T, Tape
from simcore.workload.graph import Affine, Frozen, Kernel, Op, OpRole
from simcore.workload.saved import Saved

if TYPE_CHECKING:
    from simcore.workload.archs.body import Body

#: Kinds of layers that are methods of the tape.
_ON_TAPE: dict[str, Callable[..., T]] = {
    method.__name__: method
    for method in (
        Tape.conv, Tape.batch_norm, Tape.group_norm, Tape.act, Tape.unit, Tape.add, Tape.mean,
        Tape.max_pool, Tape.average_pool, Tape.upsample, Tape.narrow, Tape.linear, Tape.dropout,
        Tape.squeeze_excite,
    )
}  # fmt: skip
#: Arguments that a layer of other layers evaluates itself, once for each time that these run.
_LATE = ("layers", "branches", "shortcut", "times")
#: Errors of a record that a check of its text does not find.
_WRONG = (LookupError, TypeError, AttributeError)


@lru_cache(maxsize=4096)
def _text(stated: str) -> Meaning:
    if stated.startswith("="):
        return formula(stated[1:].strip())
    return Template(stated).substitute if "$" in stated else lambda _named: stated


class Values:
    """Named values, and what a value of a record stands for."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.named = dict(named)

    def __call__(self, stated: Any) -> Any:
        """What ``stated`` stands for. Raises ValueError if a table does not have it."""
        if isinstance(stated, str):
            return _text(stated)(self.named)
        if isinstance(stated, list):
            return [self(v) for v in stated]
        if isinstance(stated, dict):
            if "of" in stated:
                return self._listed(stated)
            return {k: self(v) for k, v in stated.items()}
        return stated

    def _listed(self, stated: dict[str, Any]) -> Any:
        given = self(stated["of"])
        key = str(given).lower() if isinstance(given, bool) else str(given)
        if key not in stated and "else" not in stated:
            known = ", ".join(k for k in stated if k != "of")
            raise ValueError(f"{stated['of'].removeprefix('=')} {key} is none of {known}")
        return self(stated[key] if key in stated else stated["else"])


def _kernels(stated: Iterable[Mapping[str, Mapping[str, Any]]]) -> tuple[Kernel, ...]:
    """Kernels, each ``kind: {field: value}``; a list is a step's share and that of each sample."""
    made: list[Any] = []
    for kernel in stated:
        (kind, given), = kernel.items()  # fmt: skip
        fields = {k: Affine(*v) if isinstance(v, list) else v for k, v in given.items()}
        if kind in KERNELS:
            made.append(getattr(ops, kind)(**fields))
        else:
            made.append(Kernel(kind=kind, **fields))  # type: ignore[arg-type]
    return tuple(made)


class Layers:
    """Runs layers of a record on a tape; ``results``: the tensor at the last block of each name.

    ``record``: the record's name, for messages on a wrong layer of it.
    """

    def __init__(
        self, tape: Tape, values: Values, parts: Mapping[str, Sequence[Mapping[str, Any]]] = {},
        record: str = "",
    ) -> None:  # fmt: skip
        self.tape, self.values, self.parts, self.record = tape, values, parts, record
        self.holder: Tape | Body = tape  # of the operators of the present block
        self.results: dict[str, T] = {}
        self.start: T | None = None  # input of the block that is being built
        self.labels_bytes = 0.0

    def run(self, layers: Sequence[Mapping[str, Any]], x: T) -> T:
        """The result of ``layers`` on ``x``. Raises DataError for a wrong layer of a record."""
        named = self.values.named
        for layer in layers:
            self.start, named["x"] = self.start or x, x
            try:
                x = self._ran(layer, x)
            except _WRONG as err:
                if not self.record:
                    raise
                raise _located(self.record, layer, err) from err
        named["x"] = x
        return x

    def _ran(self, layer: Mapping[str, Any], x: T) -> T:
        """The result of one layer on ``x``."""
        named = self.values.named
        (kind, stated), = layer.items()  # fmt: skip
        if kind == "let":  # names values, one after the other
            for name, meant in stated.items():
                named[name] = self.values(meant)
        elif self.values(stated.get("when", True)):
            late = _LATE if kind in _WITH_LAYERS else ()
            given = {k: v if k in late else self.values(v) for k, v in stated.items()}
            read, result = given.pop("from", x), given.pop("as", "")
            given.pop("when", None)
            x = self._made(kind, read if isinstance(read, list) else [read], given)
            if result:
                named[result] = x
        return x

    def _made(self, kind: str, inputs: Sequence[T], given: dict[str, Any]) -> T:
        if kind in self.parts:
            return self._part(kind, inputs, given)
        if kind in _ON_TAPE:
            return _ON_TAPE[kind](self.tape, given.pop("name"), *inputs, **given)
        if kind in _STRUCTURE:
            return _STRUCTURE[kind](self, *inputs, **given)
        placed = {k: given.pop(k) for k in ("makes", "saves_inputs") if k in given}
        made = ops.operator(kind)(**given)
        return self._added(made if isinstance(made, tuple) else (made,), inputs, **placed)

    def _part(self, kind: str, inputs: Sequence[T], given: Mapping[str, Any]) -> T:
        """Layers of the record's own; what is named within is not known outside."""
        outside = self.values.named
        self.values.named = {**outside, **given, "inputs": list(inputs)}
        x = self.run(self.parts[kind], inputs[0])
        self.values.named = outside
        return x

    def _added(
        self, made: Sequence[Op], inputs: Sequence[T], makes: Mapping[str, Any] | None = None,
        saves_inputs: bool = False,
    ) -> T:  # fmt: skip
        """The result of operators: a new tensor as ``makes`` says, of inputs that backward needs.

        Without ``makes`` the result is the input, which the operators do not count as read.
        """
        if makes is None:
            for op in made:
                self.tape.op(op, grad=inputs[0].grad)
            return inputs[0]
        out = self.tensor(*inputs, **makes)
        return self.tape.apply(made[0], out, *inputs, saves=inputs if saves_inputs else ())

    def op(
        self, *inputs: T, name: str, forward: Sequence[Any] = (), backward: Sequence[Any] = (),
        saved: Mapping[str, float] = {}, result: Mapping[str, float] = {},
        gemm_weight: float = 0.0, role: OpRole = "", **placed: Any,
    ) -> T:  # fmt: skip
        """An operator stated by its kernels and the elements that it saves and returns.

        ``gemm_weight``, ``role``: as in ``Op``.
        """
        made = Op(
            name=name, fwd=_kernels(forward), bwd=_kernels(backward), saved=Saved(**saved),
            result=Saved(**result), gemm_weight=gemm_weight, role=role,
        )  # fmt: skip
        return self._added((made,), inputs, **placed)

    def tensor(
        self, x: T, *_more: T, channels: int | None = None, grid: Sequence[int] | None = None,
        share: float | None = None, high: bool = False, grad: bool = True,
    ) -> T:  # fmt: skip
        """A new tensor, of the input's shape where nothing else is said; no operator."""
        size = x.grid if grid is None else tuple(grid)
        c, regions = x.c if channels is None else channels, x.share if share is None else share
        return T(c, size, share=regions, high=high, grad=grad)

    def view(self, x: T, channels: int | None = None, grid: Sequence[int] | None = None) -> T:
        """The same storage in another shape, or a part of it: no kernel."""
        size = x.grid if grid is None else tuple(grid)
        return self.tape.reshape(x, x.c if channels is None else channels, size)

    def freeze(self, x: T, on: bool) -> T:
        """Parameters of the layers that follow are trained, or not."""
        self.tape.frozen = on
        return x

    def param(self, x: T, name: str, numel: int) -> T:
        """A parameter of an operator."""
        self.tape.param(name, numel)
        return x

    def weights(self, x: T, name: str, k: int, n: int) -> T:
        """The weight and bias of a linear layer."""
        self.tape.weights(name, k * n, n)
        return x

    def refuse(self, _x: T, text: str) -> T:
        """Raises ValueError."""
        raise ValueError(text)

    def group(self, x: T, layers: Sequence[Mapping[str, Any]]) -> T:
        """Several layers under one condition."""
        return self.run(layers, x)

    def repeat(
        self, x: T, layers: Sequence[Mapping[str, Any]], rows: Sequence[Any] = ((),),
        columns: Sequence[str] = (), times: Any = 1,
    ) -> T:  # fmt: skip
        """``layers``, for each row of a table ``times`` times.

        The row gives values to the names in ``columns``; ``stage`` is its number, ``number`` that
        of the repetition, and ``repeated`` whether it is not the first. A stride is the first's.
        """
        named = self.values.named
        for stage, row in enumerate(rows, 1):
            if columns:
                given = row if isinstance(row, list) else [row]
                if len(given) != len(columns):
                    raise TypeError(f"row {stage} has {len(given)} values for {columns}")
                named.update(zip(columns, given, strict=True), stage=stage)
            for number in range(1, self.values(times) + 1):
                named.update(number=number, repeated=number > 1)
                if number > 1 and "stride" in columns:
                    named["stride"] = 1
                x = self.run(layers, x)
        return x

    def copies(self, x: T, layers: Sequence[Mapping[str, Any]], times: Any) -> T:
        """``layers`` that make whole blocks, the same each time: they run once."""
        order, n = self.tape.order, len(self.tape.order)
        x = self.run(layers, x)
        order[n:] = order[n:] * self.values(times)
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

    def concat(
        self, *inputs: T, name: str, branches: Sequence[Sequence[Mapping[str, Any]]] = ()
    ) -> T:
        """Its inputs, or results of several branches of one input, joined along channels."""
        parts = [self.run(branch, inputs[0]) for branch in branches] or inputs
        return self.tape.concat(name, parts)

    def network(self, x: T, record: str, **given: Any) -> T:
        """The features of another record; ``results``: its values, and the result of each block.

        ``given``: settings and values other than the record's. Raises ValueError for a setting that
        the network does not have.
        """
        values = _named(record, given)
        net = Layers(self.tape, values, _record(record).get("parts", {}), record)
        x = net.run(_record(record)["features"], x)
        self.values.named["results"] = {**net.values.named, **net.results}
        return x

    def counted(self, x: T, layers: Sequence[Mapping[str, Any]], run: bool) -> T:
        """``layers``, of which only the parameters count unless they ``run``."""
        before = [*self.holder.ops]
        x = self.run(layers, x)
        self.holder.ops = self.holder.ops if run else before
        return x

    def loss(self, x: T) -> T:
        """Cross-entropy over the channels of each point."""
        self.tape.op(ops.cross_entropy("loss", x.points, x.c))
        self.tape.op(ops.loss_seed())
        self.labels_bytes = INT64_BYTES * x.points
        return x

    def block(
        self, x: T, name: str, *, repeated: bool = False, boundary: Mapping[str, float] = {}
    ) -> T:
        """The end of a block; ``repeated``: it is one of the layers that recompute runs again.

        ``boundary``: what these keep, where it is not what the block's first layer reads.
        """
        kept = Saved(**boundary) if boundary else None
        if repeated and not self.tape.frozen and self.start:
            kept = Saved(low=self.start.elems)
        self.tape.block(name, boundary=kept)
        self.results[name], self.start = x, None
        return x


#: The other kinds of layers.
_STRUCTURE: dict[str, Callable[..., T]] = {
    method.__name__: method
    for method in (
        Layers.op, Layers.tensor, Layers.view, Layers.freeze, Layers.param, Layers.weights,
        Layers.refuse, Layers.group, Layers.repeat, Layers.copies, Layers.residual, Layers.concat,
        Layers.network, Layers.counted, Layers.loss, Layers.block,
    )
}  # fmt: skip
#: Kinds of layers that have layers of their own; ``experts`` is of ``archs.body_layers``.
_WITH_LAYERS = {*_STRUCTURE, "experts"}

#: Functions that make layers, by kind of layer, for either kind of record.
MAKERS: dict[str, Mapping[str, Callable[..., Any]]] = {"tape": {**_ON_TAPE, **_STRUCTURE}}


@lru_cache(maxsize=64)
def _record(name: str) -> dict[str, Any]:
    """A record, with values and parts of that which it names by ``with``. Raises DataError."""
    path = network_file(name)
    if path is None:
        raise KeyError(name)
    entry = checked_entry("network", path.read_text(encoding="utf-8", errors="replace"))
    if entry is None or read_entry(entry) is None:
        from simcore.workload.archs.check_layers import check_network

        check_network(path, MAKERS)
        if entry is not None:
            write_entry(entry, name)
    record: dict[str, Any] = read_yaml(path)
    if shared := record.get("with"):
        for key in ("values", "parts", "body"):
            own = record.get(key, {})
            record = {**record, key: {**own, **_record(shared).get(key, {}), **own}}
    return record


def _located(name: str, at: object, err: Exception) -> Exception:
    """The error, with file and line, of a layer of a record, or of the value of a key."""
    from simcore.workload.archs.check_layers import located

    path = network_file(name)
    return err if path is None else located(path, _record(name), at, err)


def _numbers(key: str, text: str, between: str) -> list[int]:
    words = text.split(between)
    if not all(word.strip().isdigit() and int(word) for word in words):
        example = between.join(("128", "64"))
        raise ValueError(f"{key} {text!r} is not a list of numbers of at least 1 such as {example}")
    return [int(word) for word in words]


def value_of(name: str, values: Values, keys: tuple[str | int, ...], stated: Any) -> Any:
    """What ``stated``, at ``keys`` of a record, stands for. Raises DataError for a wrong one."""
    try:
        return values(stated)
    except _WRONG as err:
        raise _located(name, keys, err) from err


def _named(name: str, given: Mapping[str, Any]) -> Values:
    """All settings and values of a record. Raises ValueError for a name that is no choice."""
    record, values = _record(name), Values(given)
    for key, stated in record["settings"].items():
        default = stated["default"] if isinstance(stated, dict) else stated
        values.named.setdefault(key, default)
        if isinstance(stated, dict) and "choices" in stated:
            check_names(**{key: (values.named[key], stated["choices"])})
        elif isinstance(stated, dict):
            values.named[key] = _numbers(key, values.named[key], stated["numbers_between"])
    for key, stated in record.get("values", {}).items():
        if key not in values.named:
            values.named[key] = value_of(name, values, ("values", key), stated)
    return values


class LayerList:
    """Builder of one record's network, with the settings of the record as its signature."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def __signature__(self) -> inspect.Signature:
        record, kw = _record(self.name), inspect.Parameter.KEYWORD_ONLY
        given = [inspect.Parameter("name", kw, annotation="str")]
        if "frozen" not in record:
            unit = record.get("sample_unit", "image")
            given.append(inspect.Parameter("sample_unit", kw, annotation="str", default=unit))
        for key, stated in record["settings"].items():
            default = stated["default"] if isinstance(stated, dict) else stated
            if default in ("int", "str"):
                given.append(inspect.Parameter(key, kw, annotation=default))
            else:
                kind = type(default).__name__
                given.append(inspect.Parameter(key, kw, annotation=kind, default=default))
        return inspect.Signature(given)

    def __call__(self, **settings: Any) -> Any:
        """The network with these settings: a Workload or, if only run forward, a Frozen.

        Raises ValueError for a setting that the record refuses, DataError for a wrong record.
        """
        bound = self.__signature__.bind(**settings)
        bound.apply_defaults()
        given = dict(bound.arguments)
        name, unit = given.pop("name"), given.pop("sample_unit", "")
        return self._built(name, unit, _named(self.name, given))

    @property
    def record(self) -> dict[str, Any]:
        """The record. Raises DataError."""
        return _record(self.name)

    def _of(self, values: Values, key: str, default: Any) -> Any:
        """What a key of the record stands for."""
        return value_of(self.name, values, (key,), self.record.get(key, default))

    def _built(self, name: str, unit: str, values: Values) -> Any:
        tape = Tape(**self._of(values, "tape", {}))
        net = Layers(tape, values, self.record.get("parts", {}), self.name)
        x = T(1, (1,))
        if shape := self._of(values, "input", {}):
            x = tape.input(shape["channels"], tuple(shape["grid"]), shape.get("share", 1.0))
        inputs_bytes = FP32_BYTES * x.elems
        net.run((*self.record["features"], *self.record.get("head", ())), x)
        if tape.ops:
            last = ("head" if self.record.get("head") else "features",)
            raise _located(self.name, last, TypeError("the layers after its last block have none"))
        if "frozen" in self.record:
            values.named["resident"] = tape.resident
            made = [op for block in tape.blocks for op in block.ops]
            return Frozen(name=name, ops=tuple(made), **self._of(values, "frozen", {}))
        sent = self._of(values, "input_bytes", inputs_bytes + net.labels_bytes)
        tokens = self._of(values, "tokens", 0.0)
        made_net = tape.workload(name, unit, input_bytes=sent, tokens=tokens)
        more = {"buffers_numel": made_net.buffers_numel + tape.resident}
        return made_net.replace(**more | self._of(values, "workload", {}))


for _name, _file in LAYER_LISTS.items():
    ARCHS.register(_name)(LayerList(_file))
for _name in FROZEN_LAYER_LISTS:
    FROZEN_ARCHS.register(_name)(LayerList(_name))
