"""Evaluates a space piece by piece, in any order and in any process.

A *unit* is one form on one kind of cluster. It is divided into *pieces* of at most ``MAX_CALL``
points. The pieces of a space are numbered, so that a range of work is two numbers. An evaluator
holds everything that its pieces need (clusters, models, calibration) and can be sent to another
machine. The result of a piece depends neither on the process nor on the pieces before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np

from simcore import __version__
from simcore.answer.request import searched
from simcore.answer.sweep import (
    Alike,
    Axis,
    Outcome,
    evaluate_pipelines,
    wires_of,
)
from simcore.base.errors import SimcoreError, UsageError
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.profile import Profile, load_profile
from simcore.planning.pieces import Piece, Unit, together
from simcore.planning.points import Batch, reason_of, words_of
from simcore.planning.space import ALIKE, Form, Space, digest_of
from simcore.planning.variants import Deal, deals_of, evaluate_points
from simcore.request.make import LookedUp, look_up, resolved
from simcore.request.model_settings import layout_of
from simcore.request.resolved import Request
from simcore.request.training_library import library_of
from simcore.step.schedules import layout_violations, schedule_of
from simcore.strategy.layout import AUTO, Layout
from simcore.strategy.options import check_shares
from simcore.timing.points import Knob
from simcore.workload.archs.lm_attention import softmax_factor, writes_scores
from simcore.workload.resolve import ModelSource, resolve_model
from simcore.workload.sharding import layer_counts

#: Most points that are evaluated in one call, which bounds the memory used for any space.
MAX_CALL = 131_072
#: Most points of a form for which forms are evaluated together: with more, most of the time is
#: numpy's.
FEW_POINTS = 1000
NOT_A_MULTIPLE = "global-batch is not a multiple of micro-batch x replicas"
#: Options of a form that its request does not take: resolved already, or different at each point.
#: What requests name, or the error in it, by layout and index of the cluster.
_LookedUp = dict[tuple[Layout, int], LookedUp | SimcoreError]
_NOT_IN_REQUEST = ("calibration", "inputs", "shares")
FEW = "vpp needs as many micro-batches as stages or more"


def batches(
    space: Space, *, profile: Profile | None = None, twice: Knob | None = None
) -> Iterator[Batch]:
    """All points of a space, evaluated in this process, always in the same order."""
    evaluator = Evaluator(space, profile=profile, twice=twice)
    return evaluator.batches(0, len(evaluator))


class Evaluator:
    """Evaluates the pieces of a space; ``len`` is the number of pieces.

    An invalid point, form, model or cluster is counted with its reason; the others are evaluated.
    Pickling leaves out cached results.

    twice    resource whose doubling is evaluated too (``answer.sweep.evaluate_axis``)
    lacking  points that exceed the memory by more than this [bytes] get no step time (same
             function)
    """

    def __init__(
        self,
        space: Space,
        *,
        profile: Profile | None = None,
        twice: Knob | None = None,
        lacking: float = np.inf,
    ) -> None:
        self.space, self.twice, self.lacking = space, twice, lacking
        self._profile = profile or load_profile(dict(space.fixed).get("calibration"))
        self._sources = {m: _source(space, m) for m in space.models}
        self.piece_points = piece_points(space)
        self._prepare()

    def _prepare(self) -> None:
        """Set the attributes that follow from the others, which pickling leaves out."""
        space = self.space
        self._kinds = space.kinds()
        self._counts = [_counts_of(c) for c in space.clusters]
        self._largest_first = [sorted(m, key=lambda i: -self._counts[i][1]) for m in self._kinds]
        # messages about layouts, by number of devices
        self._by_layout: dict[tuple[Layout, int], dict[int, Sequence[str]]] = {}
        self._wires: dict[tuple[str, int, tuple[int, ...]], dict[str, Any]] = {}
        self._axes: dict[tuple[Any, ...], Axis] = {}
        self._points = [len(members) * space.points_per_cluster for members in self._kinds]
        self._pieces = [-(-n // self.piece_points) for n in self._points]
        self._starts = [0, *accumulate(self._pieces)]

    def __len__(self) -> int:
        return self.space.n_forms * self._starts[-1]

    @property
    def pieces_alike(self) -> int:
        """Number of pieces, one after another, that share a model's kernels."""
        return self.space.forms_alike * self._starts[-1]

    def __getstate__(self) -> dict[str, Any]:
        names = ("space", "twice", "lacking", "piece_points", "_profile", "_sources")
        digest = _digest(self._profile)
        return {"digest": digest, **{k: self.__dict__[k] for k in names}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Raises UsageError where this machine's efficiencies differ from the sender's."""
        digest = state.pop("digest")
        self.__dict__.update(state)
        if not self._profile.efficiency_file.is_file():  # another machine: use its copy
            own = load_profile().efficiency_file
            self._profile = replace(self._profile, efficiency_file=own)
        if _digest(self._profile) != digest:
            raise UsageError(
                "a worker has other efficiencies (hardware_db/calibrations) than this machine: "
                "install the same simcore on both"
            )
        self._prepare()

    def number(self, unit: int, piece: int) -> int:
        """The number, in the whole space, of piece ``piece`` of unit ``unit``."""
        form, kind = divmod(unit, len(self._kinds))
        return form * self._starts[-1] + self._starts[kind] + piece

    def points_before(self, number: int) -> int:
        """Number of points in all pieces before piece ``number``, which may be ``len``."""
        form, at = divmod(number, self._starts[-1])
        kind = max(k for k, start in enumerate(self._starts[:-1]) if start <= at)
        in_unit = min((at - self._starts[kind]) * self.piece_points, self._points[kind])
        return form * sum(self._points) + sum(self._points[:kind]) + in_unit

    def asked(self) -> dict[str, str]:
        """Everything that the points depend on, as text or digests: the identity of a sweep.

        It includes the contents of records and calibrations, so that a sweep whose figures changed
        while it was interrupted counts as another sweep.
        """
        records = {id(r): r for c in self.space.clusters for g in c.groups for r in (g.gpu, g.node)}
        profile = self._profile
        figures = (profile.name, _digest(profile), profile.runtime, profile.knob_values,
                   profile.residual, profile.measured)  # fmt: skip
        return {
            **self.space.asked(),
            "version of simcore": __version__,
            "points a piece": str(self.piece_points),
            "model definitions": digest_of(list(self._sources.values())),
            "hardware records": digest_of(list(records.values())),
            "calibration figures": digest_of(figures),
        }

    def batches(self, first: int, last: int) -> Iterator[Batch]:
        """The results of pieces ``first`` up to, not including, ``last``."""
        held: tuple[range, int, list[Unit]] | None = None
        ready: dict[int, Batch] = {}
        for number in range(first, last):
            if number not in ready:
                form, kind, piece = self._place(number)
                forms = self._forms_with(form, kind)
                if held is None or held[:2] != (forms, kind):
                    found: _LookedUp = {}
                    held = forms, kind, [self._unit(each, kind, found) for each in forms]
                asked = [self._asked(*of, kind, piece) for of in zip(forms, held[2], strict=True)]
                begin = number + (forms[0] - form) * self._starts[-1]
                numbers = range(begin, begin + len(forms) * self._starts[-1], self._starts[-1])
                ready.update(zip(numbers, self._evaluated(asked), strict=True))
            yield ready.pop(number)

    def _place(self, number: int) -> tuple[int, int, int]:
        """Form, kind of cluster and piece of its unit of the piece of that number."""
        form, at = divmod(number, self._starts[-1])
        kind = max(k for k, start in enumerate(self._starts[:-1]) if start <= at)
        return form, kind, at - self._starts[kind]

    def _forms_with(self, form: int, kind: int) -> range:
        """The forms that are evaluated together with this one on clusters of a kind.

        Always the same ones, whatever range of pieces is asked for, so that results are equal to
        the last bit.
        """
        each = self.space.forms_together if self._points[kind] <= FEW_POINTS else 1
        return range(form // each * each, form // each * each + each)

    def _unit(self, form_index: int, kind: int, found: _LookedUp) -> Unit:
        """A form on all clusters of a kind, each with the reason why it is invalid, if any.

        ``found``: by layout and cluster, what forms that differ in recompute alone share; filled
        here.
        """
        members = self._kinds[kind]
        model, form = self.space.form(form_index)
        source = self._sources[model]
        if isinstance(source, str):
            return Unit(members, [source] * len(members))
        layout = _layout_of(source, form)
        request: Request | None = None
        by_batch: dict[int, Request] = {}
        n_layers, by_layout = 0, dict[int, Sequence[str]]()
        reasons: dict[int, str] = {}
        batch = next((b for b in self.space.micro_batches if b is not None), None)
        # One request serves all clusters of a kind; the largest is the likeliest to be valid.
        for i in self._largest_first[kind]:
            broken: Sequence[str] = ()
            if request is None:
                try:
                    if (layout, i) not in found:
                        found[layout, i] = self._looked_up(source, form, layout, i, batch)
                    looked_up = _request(found[layout, i], form)
                    by_batch = self._by_batch(looked_up, source, form, layout, i)
                    request = looked_up
                    n_layers = layer_counts(request.workload)
                    by_layout = self._by_layout.setdefault((layout, n_layers), {})
                except SimcoreError as err:
                    broken = err.sentences
            else:
                nodes, gpus, types = self._counts[i]
                broken = request.strategy.violations(nodes, gpus, types)
                if request.placed is not None and not broken:
                    if gpus not in by_layout:
                        by_layout[gpus] = layout_violations(layout, gpus, n_layers)
                    broken = by_layout[gpus]
            reasons[i] = reason_of(broken[0]) if broken else ""
        why = [reasons[i] for i in members]
        if request is None:
            return Unit(members, why)
        shares = check_shares(form["shares"]) if form.get("shares") else ""
        words = words_of(source, request, form, layout)
        return Unit(members, why, request, layout, words, shares, by_batch)

    def _by_batch(
        self, request: Request, source: ModelSource, form: Form, layout: Layout, cluster: int
    ) -> dict[int, Request]:
        """The requests of micro-batches for which layers run other kernels than in ``request``."""
        found: dict[int, Request] = {}
        by_factor: dict[int, Request] = {}
        if not writes_scores(request.workload):
            return found
        for batch in (b for b in self.space.micro_batches if b is not None):
            factor = softmax_factor(batch)
            if factor not in by_factor:
                looked_up = self._looked_up(source, form, layout, cluster, batch)
                by_factor[factor] = _request(looked_up, form)
            if by_factor[factor].workload != request.workload:
                found[batch] = by_factor[factor]
        return found

    def _looked_up(
        self, source: ModelSource, form: Form, layout: Layout, cluster: int, batch: int | None
    ) -> LookedUp | SimcoreError:
        """What a form on a cluster names, whatever its layers recompute; or the error in it."""
        try:
            return look_up(
                source, self.space.clusters[cluster], every_violation=False,
                profile=self._profile,
                micro_batch=batch, grad_accum=schedule_of(layout).least_micro_batches(layout),
                **{k: v for k, v in form.items() if k not in (*_NOT_IN_REQUEST, ALIKE)},
            )  # fmt: skip
        except SimcoreError as err:
            return err

    def _asked(self, form: int, held: Unit, kind: int, piece: int) -> Piece | Batch:
        """A piece of a unit to evaluate; its result where no point is valid."""
        unit, each = form * len(self._kinds) + kind, self.space.points_per_cluster
        begin = piece * self.piece_points
        end = min(begin + self.piece_points, len(held.members) * each)
        invalid: dict[str, int] = {}
        valid: list[int] = []
        first = begin // each
        for m in range(first, -(-end // each)):
            if reason := held.reasons[m]:
                n = min(end, (m + 1) * each) - max(begin, m * each)
                invalid[reason] = invalid.get(reason, 0) + n
            else:
                valid.append(m)
        n_left = end - begin - sum(invalid.values())
        if not valid or held.request is None:
            return Batch.of_none(unit, piece, end - begin, invalid)
        axis = self._axis(held, kind, valid, begin, end)
        if odd := n_left - len(axis):
            invalid[_left_out(self.space, held)] = odd
        deals: list[Deal] | None = None
        if held.shares:
            axis, deals = _dealt(held.request, axis, held.shares, invalid)
        if not len(axis):
            return Batch.of_none(unit, piece, end - begin, invalid)
        wires = self._wires_of(held.request, kind, valid)
        of = {"unit": unit, "piece": piece, "n_points": end - begin, "invalid": invalid}
        return Piece(held, held.request, axis, deals, wires, np.array(held.members)[valid], of)

    def _axis(self, held: Unit, kind: int, valid: list[int], begin: int, end: int) -> Axis:
        """``_axis_of`` a piece; forms of one layout share those with few points."""
        if self._points[kind] > FEW_POINTS:
            return _axis_of(self.space, held, valid, begin, end)
        assert held.request is not None
        rounds, default = _asks_for_rounds(held), held.request.micro_batch
        key = held.layout, rounds, default, kind, tuple(valid), begin, end
        if key not in self._axes:
            self._axes[key] = _axis_of(self.space, held, valid, begin, end)
        return self._axes[key]

    def _evaluated(self, asked: Sequence[Piece | Batch]) -> Iterator[Batch]:
        """The results of pieces whose forms differ in recompute and pipeline alone."""
        outcomes: dict[int, Outcome] = {}
        pieces = [p for p in asked if isinstance(p, Piece)]
        for call in together([p for p in pieces if not p.has_variants]):
            each = [Alike(tuple(p.request for p in g), g[0].axis, g[0].wires) for g in call]
            found = evaluate_pipelines(each, twice=self.twice, lacking=self.lacking)
            for group, of_group in zip(call, found, strict=True):
                outcomes.update(zip(map(id, group), of_group, strict=True))
        for piece in (p for p in pieces if p.has_variants):
            outcomes[id(piece)] = evaluate_points(
                piece.request, piece.axis, piece.deals, piece.held.by_batch,
                own_cuts=piece.held.layout.stages == AUTO, twice=self.twice, wires=piece.wires,
                lacking=self.lacking,
            )  # fmt: skip
        return (p.batch(outcomes[id(p)]) if isinstance(p, Piece) else p for p in asked)

    def _wires_of(self, request: Request, kind: int, valid: list[int]) -> dict[str, Any]:
        """``wires_of`` some clusters of a kind (cached)."""
        key = request.workload.name, kind, tuple(valid)
        if key not in self._wires:
            members = self._kinds[kind]
            self._wires[key] = wires_of(request, [self.space.clusters[members[m]] for m in valid])
        return self._wires[key]


def _request(found: LookedUp | SimcoreError, form: Form) -> Request:
    """The request of a form. Raises SimcoreError with what is wrong in it."""
    if isinstance(found, SimcoreError):
        raise found
    return searched(resolved(found, **{ALIKE: form[ALIKE]} if ALIKE in form else {}))


def _layout_of(source: ModelSource, form: Form) -> Layout:
    """The layout of a form, with the schedule that a named program has where the form has none."""
    layout = layout_of(form)
    if layout.pp > 1 and not form.get("schedule") and form.get("software"):
        with suppress(SimcoreError):  # the request says what is wrong
            words = library_of(form, source, layout).words(form, source)
            return layout_of({**form, "schedule": words.get("schedule")})
    return layout


def _source(space: Space, model: str) -> ModelSource | str:
    """The model of that name, or the reason why there is none."""
    fixed = dict(space.fixed)
    try:
        return resolve_model(
            model, inputs=tuple(fixed.get("inputs") or ()), settings=fixed.get("settings")
        )
    except SimcoreError as err:
        return reason_of(str(err))


def piece_points(space: Space) -> int:
    """Number of points in a piece: those of whole clusters, unless one cluster has more than
    ``MAX_CALL``.
    """
    each = space.points_per_cluster
    return max(1, MAX_CALL // each) * each if each <= MAX_CALL else MAX_CALL


def _digest(profile: Profile) -> str:
    text = profile.efficiency_file.read_bytes()
    return hashlib.sha256(text).hexdigest()[:16]


def _counts_of(cluster: ClusterSpec) -> tuple[int, int, int]:
    """The numbers of a cluster that rules depend on: nodes, devices, types of device."""
    return cluster.n_nodes, cluster.n_gpus, len({g.gpu.name for g in cluster.groups})


def _dealt(
    request: Request, axis: Axis, shares: str, invalid: dict[str, int]
) -> tuple[Axis, list[Deal]]:
    """The points that can divide their batch by these shares, and the samples of each kind of rank;
    the other points are counted in ``invalid``.
    """
    found = deals_of(request, axis, shares)
    for reason in (reason_of(d) for d in found if isinstance(d, str)):
        invalid[reason] = invalid.get(reason, 0) + 1
    kept = np.flatnonzero([not isinstance(d, str) for d in found])
    return axis.take(kept), [d for d in found if not isinstance(d, str)]


def _asks_for_rounds(held: Unit) -> bool:
    """Whether the requested training program refuses fewer micro-batches than stages."""
    r = held.request
    if r is None or r.software_assumed or not r.strategy.program.pipeline.whole_rounds:
        return False
    return schedule_of(held.layout).whole_rounds


def _left_out(space: Space, held: Unit) -> str:
    """The rule that points with an invalid number of micro-batches break."""
    if _asks_for_rounds(held):
        return f"{NOT_A_MULTIPLE}, or {FEW}" if space.global_batches else FEW
    if space.global_batches:
        return NOT_A_MULTIPLE
    return f"schedule {held.layout.schedule} {schedule_of(held.layout).grad_accum_rule}"


def _axis_of(space: Space, held: Unit, valid: list[int], begin: int, end: int) -> Axis:
    """The configuration axis of the unit's points ``begin`` to ``end`` on valid clusters, without
    those whose number of micro-batches is invalid.
    """
    assert held.request is not None
    default = held.request.micro_batch
    micro = np.array([float(default if b is None else b) for b in space.micro_batches])
    steps = np.array(space.global_batches or space.grad_accums, dtype=np.float64)
    specs = tuple(space.clusters[held.members[m]] for m in valid)
    row_cluster = np.repeat(np.arange(len(valid)), len(micro))
    row_micro = np.tile(micro, len(valid))
    row = np.repeat(np.arange(len(row_cluster)), len(steps))
    grad_accum = np.tile(steps, len(row_cluster))
    each = space.points_per_cluster
    keep = slice(max(0, begin - valid[0] * each), len(row) - max(0, (valid[-1] + 1) * each - end))
    row, grad_accum = row[keep], grad_accum[keep]
    if space.global_batches:
        ranks = np.array([float(held.layout.data_ranks(c.n_gpus)) for c in specs])
        grad_accum = grad_accum / (row_micro * ranks[row_cluster])[row]
    whole = np.ones(len(row), dtype=bool)
    if space.global_batches or schedule_of(held.layout).multiple_of > 1:
        whole = np.mod(grad_accum, schedule_of(held.layout).multiple_of) == 0
    if _asks_for_rounds(held):
        whole &= grad_accum >= held.layout.pp
    row, grad_accum = row[whole], grad_accum[whole]
    return Axis(specs, row_cluster, row_micro, row, grad_accum)
