"""Formula, inputs and source of each term of the step time."""

from __future__ import annotations

from simcore.answer.explain_facts import Derivation, Explainer, Facts
from simcore.base.units import format_seconds, format_si
from simcore.hardware.estimates import Estimate
from simcore.hardware.paths import Path
from simcore.step.host_calls import driver_issues
from simcore.step.kernels import DEPTHWISE_LAST, KINDS, LINEAR_ATTENTION
from simcore.step.transients import COMPUTE_KINDS
from simcore.timing.peaks import conv_unit
from simcore.timing.points import COLLECTIVE_BASE_S
from simcore.timing.quantities import EMA_TRAFFIC_ELEMS, HOST_DRAM_FRAC
from simcore.timing.rates import compute_share_of, memory_share_of
from simcore.workload.graph import CONV_KINDS, KernelKind


def _s(seconds: float) -> str:
    return format_seconds(seconds)


def _rate(value: float) -> str:
    return format_si(value, "B/s")


_ROOFLINE = (
    "sum over kernels of start + sqrt(tc^2 + tm^2); tc = FLOP / (efficiency x peak x fill), "
    "tm = bytes / (efficiency x bandwidth), fill = share of the SMs that tiles and waves of tiles "
    "use"
)


def _compute(f: Facts) -> Derivation:
    t = f.result.time_s
    parts = ("forward", "backward", "frozen_networks", "accumulation")
    return Derivation(
        "forward + backward + frozen_networks + accumulation",
        tuple((p, _s(t[p])) for p in parts if t[p] > 0),
        "each part has its own explanation: --explain forward, --explain backward",
    )


def _roofline(f: Facts, part: str, note: str = "") -> Derivation:
    work, r, profile = f.work(part), f.rates, f.request.profile
    steps = f.request.micro_steps
    name, peak = f.peak
    kinds = [k for k in COMPUTE_KINDS if (f.table["kind"] == KINDS.index(k)).any()]
    own, own_peak = f.conv_peak
    efficiency: dict[str, Estimate] = {
        k: compute_share_of(
            profile,
            k,
            conv_unit(profile, k, r.gpu, *f.conv_peak)[0] if k in CONV_KINDS else name,
            r.gpu,
        )
        for k in kinds
    }
    shown: tuple[KernelKind, ...] = ("elementwise", *kinds[:1])
    memory = {k: memory_share_of(profile, k, r.gpu) for k in shown}
    if (f.table["kind"] == KINDS.index(DEPTHWISE_LAST)).any():
        efficiency["conv_depthwise (channels last)"] = compute_share_of(
            profile, "conv_depthwise", own, r.gpu, channels_last=True
        )
    by_element = r.kernels.limits.indexed_s if f.table["indexed"].any() else 0.0
    by_row = r.kernels.limits.row_s if f.table["rows"].any() else 0.0
    inputs = [
        ("micro-batch", f"{f.micro_batch}" + (f", {steps:g} a step" if steps > 1 else "")),
        ("work", f"{format_si(work.flop, 'FLOP')}, {format_si(work.n_bytes, 'B')} moved, "
                 f"{work.launches:.0f} kernels"),
        (f"peak {name}", f"{format_si(peak, 'FLOP/s')} ({r.gpu.name})"),
        *(
            [(f"peak {own}", f"{format_si(own_peak, 'FLOP/s')}, for convolutions")]
            if own != name and any(k in CONV_KINDS for k in kinds)
            else []
        ),
        ("compute efficiency", ", ".join(f"{k} {e.value:.3g}" for k, e in efficiency.items())),
        ("bandwidth", _rate(r.gpu.memory_bw.value)),
        ("memory efficiency", ", ".join(f"{k} {e.value:.3g}" for k, e in memory.items())),
        *(
            [("indexed elements", f"at most {format_si(1.0 / by_element, 'elements/s')}")]
            if by_element
            else []
        ),
        *(
            [("rows of norms", f"at most {format_si(1.0 / by_row, 'rows/s')}")]
            if by_row
            else []
        ),
        *_of_blocks(f),
        ("SMs, kernel start", f"{r.kernels.sm_count:.0f}, {_s(r.kernels.start_s)}"),
    ]  # fmt: skip
    cited = [f.datasheet(r.gpu.peak_flop_per_s.get(name))]
    cited += [f"{k} {f.cite(e)}" for k, e in list(efficiency.items())[:1]]
    if f.request.cluster.n_gpus > 1 and (spread := f.request.workload.work_sd_frac):
        note += (
            f"; x (1 + {spread:.2g} / sqrt(samples) x E[max over ranks]): all ranks wait for "
            "the one whose samples hold most work"
        )
    return Derivation(_ROOFLINE + note, tuple(inputs), "; ".join(cited))


def _of_blocks(f: Facts) -> tuple[tuple[str, str], ...]:
    """FLOP, or elements of a convolution, that an SM does a clock in linear attention's kernels."""
    kinds = [k for k in LINEAR_ATTENTION if (f.table["kind"] == KINDS.index(k)).any()]
    if not kinds:
        return ()
    from simcore.hardware.linear_attention import work_per_clock

    each = (f"{k.replace('_', ' ')} {work_per_clock(k, f.rates.gpu).value:.3g}" for k in kinds)
    return (("an SM's FLOP a clock", ", ".join(each)),)


def _forward(f: Facts) -> Derivation:
    cast = f.request.strategy.precision.cast_bytes
    return _roofline(f, "forward", "; includes autocast's 16-bit copy of weights" if cast else "")


def _backward(f: Facts) -> Derivation:
    recomputed = f.request.strategy.recompute == "full"
    note = "; each recomputed block runs forward again" if recomputed else ""
    if recomputed and f.request.strategy.program.recompute.stops_early:
        note += ", up to the last tensor that backward needs"
    if f.request.cluster.n_gpus > 1 and f.request.strategy.parallelism not in ("dp", "manual"):
        note += f"; x up to {1 + f.rates.overlap_slowdown_frac:.3g} while collectives run"
    return _roofline(f, "backward", note)


def _frozen(f: Facts) -> Derivation:
    return _roofline(f, "frozen", "; forward only, once for each micro-batch of the last step")


def _accumulation(f: Facts) -> Derivation:
    t = f.result.time_s
    return Derivation(
        "(accum - 1) x (cast of the weights + sum of gradients); forward and backward of all "
        "micro-steps are in their own terms",
        (
            ("accum", f"{f.request.grad_accum}"),
            ("forward + backward", f"{_s(t['forward'] + t['backward'])} in all micro-steps"),
            ("one micro-step", _s((t["forward"] + t["backward"]) / f.request.micro_steps)),
        ),
        "gradients are sent once a step (torch no_sync), with zero2 and zero3 in every micro-step",
    )


def _moved(f: Facts) -> tuple[tuple[str, str], ...]:
    r = f.rates
    issue = r.issue_s(f.request.strategy.issuer)
    return (
        ("bandwidth", f"{_rate(r.elementwise_bytes_per_s)} sustained"),
        ("kernel start, issue", f"{_s(r.kernels.start_s)}, {_s(issue)}"),
    )


def _optimizer(f: Facts) -> Derivation:
    s = f.request.strategy
    norm = "; the gradient's norm for clipping adds one pass" if s.grad_clip else ""
    if passes := s.program.optimizer_state.update_copies_bytes:
        norm += f"; copies and norms of {s.program.name} move {passes:g} more bytes a parameter"
    work = s.optimizer.flop
    widened = "; 16-bit gradients are copied to fp32 first" if s.widens_gradients else ""
    products = f"; plus {work:,.0f} FLOP a parameter in 16-bit matrix products" if work else ""
    memory = f.request.profile.memory_efficiency("elementwise", f.rates.gpu)
    return Derivation(
        "max(traffic / bandwidth + kernels x start, the host's issue); traffic = parameters / "
        f"shards x fp32 elements x 4 bytes{widened}{norm}{products}",
        (
            ("parameters", f"{f.result.n_params:,}"),
            ("shards", f"{f.shards:g}"),
            ("fp32 elements", f"{s.optimizer.traffic_elems:g} a parameter ({s.step_impl})"),
            *_moved(f),
        ),
        f"{s.optimizer.meaning}; {f.cite(memory)}",
    )


def _ema(f: Facts) -> Derivation:
    return Derivation(
        "max(traffic / bandwidth + kernels x start, the host's issue); "
        f"traffic = parameters x {EMA_TRAFFIC_ELEMS:g} elements x bytes each",
        (("parameters", f"{f.result.n_params:,}"),
         ("bytes each", f"{f.request.strategy.ema_bytes}"),
         ("implementation", f.request.strategy.ema_impl),
         *_moved(f)),
        "mul_ reads and writes once, add_ reads twice and writes once",
    )  # fmt: skip


def _input_copy(f: Facts) -> Derivation:
    node = f.group.node
    return Derivation(
        "bytes a sample x micro-batch x accum / host-to-device rate",
        (
            ("bytes a sample", format_si(f.request.workload.input_bytes, "B")),
            ("samples", f"{f.micro_batch * f.request.grad_accum}"),
            ("host to device", f"{_rate(f.rates.h2d_bytes_per_s)} a GPU"),
        ),
        f"link {node.pcie_link} of node {node.name} (`simcore show link {node.pcie_link}`)",
    )


def _offload(f: Facts) -> Derivation:
    r, s = f.rates, f.request.strategy
    inputs = [
        ("offload", str(s.offload)),
        ("host to device", f"{_rate(r.h2d_bytes_per_s)} a GPU"),
        ("host memory", f"{_rate(r.dram_bytes_per_s)} a socket, {r.ranks_per_socket:g} ranks"),
    ]
    if "nvme" in str(s.offload):
        inputs.append(("NVMe", f"reads {_rate(r.nvme_read_bytes_per_s)}, "
                               f"writes {_rate(r.nvme_write_bytes_per_s)} a node"))  # fmt: skip
    return Derivation(
        "(gradients to the host + host update + parameters to the device), as far as the step "
        "waits for them; host update = parameters / shards x "
        f"{s.program.offload.host_update_bytes:g} bytes / (share of DRAM bandwidth x "
        f"{HOST_DRAM_FRAC:g}); with NVMe, the state is read and written too",
        tuple(inputs),
        "ZeRO-Offload (Ren et al. 2021), ZeRO-Infinity (Rajbhandari et al. 2021)",
    )


def _wire(f: Facts, path: Path) -> str:
    share = f.route(path).value
    return f"{_rate(path.bw_bytes_per_s * share)} ({share:.3g} of {path.bottleneck})"


def _layout_inputs(f: Facts) -> list[tuple[str, str]]:
    """Count and bytes of the exchanges among tensor, context and expert ranks."""
    placed = f.request.placed
    if placed is None:
        return []
    found = []
    for ranks in placed.dimensions:
        each = f.request.micro_batch * ranks.sample_bytes
        if ranks.ranks > 1 and each > 0:
            times = ranks.forward + ranks.backward
            text = f"{times:.3g} exchanges per layer and micro-batch, {format_si(each, 'B')} each"
            for op, share in ranks.collectives.items():
                if share != 1.0:
                    text += f", {format_si(share * each, 'B')} in {op.replace('_', '-')}s"
            found.append((f"{ranks.word} ranks", text))
    if placed.tied_bytes:
        size = format_si(placed.tied_bytes, "B")
        found.append(("first and last stage", f"gradients of the tied embedding, {size}"))
    return found


def _comm_inputs(f: Facts) -> tuple[tuple[str, str], ...]:
    inputs: list[tuple[str, str]] = []
    totals: dict[str, tuple[float, float]] = {}
    for cost in f.job.program.comm:
        n, size = totals.get(cost.op, (0.0, 0.0))
        n += sum(cost.counts)
        size += sum(s * c for s, c in zip(cost.sizes_bytes, cost.counts, strict=True))
        totals[cost.op] = n, size
    for op, (n, size) in totals.items():
        plural = "s" if n != 1 else ""
        inputs.append((op, f"{n:.0f} message{plural}, {format_si(size, 'B')}"))
    inputs += _layout_inputs(f)
    c = f.request.cluster
    inputs.append(("ranks, nodes", f"{c.n_gpus:,}, {c.n_nodes:,}"))
    intra, inter = f.paths
    if c.n_gpus > c.n_nodes:
        inputs.append(("bus bandwidth in a node", _wire(f, intra)))
    if c.n_nodes > 1:
        inputs.append(("bus bandwidth between nodes", _wire(f, inter)))
    inputs.append(("all collectives", f"{_s(f.collectives_s)}, hidden time included"))
    if lists := f.request.strategy.program.zero3.tensor_lists:
        for name, view in ("gather", lists.gathered_view), ("reduction", lists.reduced_view):
            text = f"{lists.call:.0f} + {view + lists.copy:.2g} a rank, in kernel launches"
            inputs.append((f"host work of a {name}", text))
    return tuple(inputs)


_COLLECTIVE = (
    "ring all-reduce: 2(n-1)/n x bytes / bus bandwidth + 2(n-1) hops "
    f"+ {format_seconds(COLLECTIVE_BASE_S, padded=False)}, or a faster NCCL algorithm: "
    "--explain collectives"
)


def _comm_source(f: Facts) -> str:
    intra, inter = f.paths
    slow = inter if f.request.cluster.n_nodes > 1 else intra
    return f"Patarasuk & Yuan 2009; NCCL 2.30 tuning; {f.cite(f.route(slow))}"


def _exposed(f: Facts) -> Derivation:
    return Derivation(
        f"step - step without communication (both without data loading and host). {_COLLECTIVE}",
        _comm_inputs(f),
        _comm_source(f),
    )


def _hidden(f: Facts) -> Derivation:
    exposed = "exposed"
    if f.result.time_s.get("pipeline_bubble"):
        exposed = "(exposed, without the time that its pipeline waits for other stages' exchanges)"
    return Derivation(
        f"all collectives - {exposed}. {_COLLECTIVE}", _comm_inputs(f), _comm_source(f)
    )


def _host(f: Facts) -> Derivation:
    parts = [f.work(p) for p in ("forward", "backward", "frozen")]
    issues, calls = sum(w.issues for w in parts), sum(w.calls for w in parts)
    strategy = f.request.strategy
    threads = f.result.n_gpus if strategy.parallelism == "dp" else 1
    each, launch = f.rates.issue_s(strategy.issuer) * threads, f.rates.launch_s * threads
    waited = sum(w.awaited for w in parts)
    driver = strategy.program.host.trainer_loop
    between = driver_issues(f.request.workload, driver) if driver is not None else 0.0
    return Derivation(
        "step - step with a host that issues kernels in no time. A kernel ends no earlier than "
        "it is issued, and issuing takes issues x issue time + launches x launch time (with dp x "
        "GPUs: one Python process issues for all). 1.28 issues are nn.Linear's forward",
        (
            ("kernels", f"{sum(w.launches for w in parts):.0f} a micro-step"),
            ("issues", f"{issues:.0f} of {_s(each)} in Python and PyTorch, by {strategy.issuer}"),
            ("launches", f"{calls:.0f} of {_s(launch)} in CUDA and its libraries"),
            *[("between micro-steps", f"{between:.0f} issues, while the device waits")]
            * bool(between),
            ("host in all", _s(issues * each + calls * launch)),
            *[("result waits", f"{waited:.0f} issues, {_s(waited * each)}: added")] * bool(waited),
        ),
        f.cite(f.request.profile.host_issue_s(f.rates.gpu)),
    )


def _loader(f: Facts) -> Derivation:
    data = f.request.loading
    if data is None:
        return Derivation("0: data loading is assumed to keep up", (), "no data set described")
    r, batch = f.rates, f.micro_batch * f.request.grad_accum
    each = ("load time", f"{_s(data.sample_load_s)} a sample")
    source = f"data set of models_db (`simcore show model {f.result.model}`), or options"
    if data.workers == 0:
        formula = "samples x load time, in the training process itself"
        return Derivation(formula, (("samples", f"{batch} a GPU and step"), each), source)
    formula = (
        "max(step, batch x crowding / workers) - step; batch = samples x load time; "
        "crowding = max(1, workers x GPUs / cores)"
    )
    traffic = data.sample_traffic_bytes
    if traffic:
        formula += (
            "; batch x crowding / workers is at least samples x GPUs x host memory traffic / "
            f"(DRAM bandwidth x {HOST_DRAM_FRAC:g})"
        )
    if not data.persistent and data.samples is not None:
        formula += (
            "; plus, at each epoch and spread over its steps, the start of the workers and the "
            "slowest rank's first batch"
        )
    epoch = "" if data.samples is None else f" of {data.samples:,.0f} an epoch"
    return Derivation(
        formula,
        (
            ("samples", f"{batch} a GPU and step{epoch}"),
            each,
            ("spread", f"{data.load_sd_frac:.0%} of it (sd)"),
            ("workers", f"{data.workers} a GPU, {_s(data.worker_start_s)} each to start and end"),
            ("read ahead", f"{data.prefetch} batches a worker"),
            ("cores", f"{r.cores} a node, {r.gpus_per_node} GPUs"),
            *[
                (
                    "host memory traffic",
                    f"{traffic:.3g} bytes a sample, {_rate(r.dram_bytes_per_s * r.sockets)} a node",
                )
            ]
            * bool(traffic),
        ),
        source,
    )


def _bubble(f: Facts) -> Derivation:
    placed = f.request.placed
    if placed is None or placed.layout.pp == 1:
        return Derivation("0: no pipeline (--pp)", (), "no stages to wait for")
    layout, stages = placed.layout, f.result.stages
    slow, fast = (pick(s.micro_step_s for s in stages) for pick in (max, min))
    return Derivation(
        f"equal stages: {placed.schedule.formula}",
        (
            ("stages", f"{layout.pp}" + (f" of {layout.vpp} chunks" if layout.vpp > 1 else "")),
            ("schedule", layout.schedule),
            ("micro-batches", f"{f.request.grad_accum:g} a step"),
            ("f + b", _s(slow) + (f", the fastest stage {_s(fast)}" if fast < slow else "")),
        ),
        f"{placed.schedule.source} (docs/model.md, pp)",
    )


TIME_TERMS: dict[str, Explainer] = {
    "compute": _compute,
    "forward": _forward,
    "backward": _backward,
    "frozen_networks": _frozen,
    "accumulation": _accumulation,
    "optimizer": _optimizer,
    "ema": _ema,
    "input_copy": _input_copy,
    "offload": _offload,
    "pipeline_bubble": _bubble,
    "communication_exposed": _exposed,
    "host": _host,
    "loader": _loader,
    "communication_hidden": _hidden,
}
