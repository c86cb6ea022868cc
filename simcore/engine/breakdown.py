"""Where the time of a step goes, by term."""

from __future__ import annotations

from simcore.engine.evaluate import Steps

#: Sums of a few dozen floats agree this well.
_ROUNDING_FRAC = 1e-12
#: What every micro-step repeats.
_REPEATED = ("forward", "backward", "frozen")


def breakdown(steps: Steps, first: int, micro_steps: float, *, offloads: bool) -> dict[str, float]:
    """Seconds by term; all but ``communication_hidden`` add up to the step time.

    Forward, backward and frozen networks are those of all micro-steps; what the earlier ones take
    beyond that (casts, sums of gradients) is accumulation.

    Loader, host and communication are what the step loses to each: the difference that taking
    it away makes, in that order. Hidden is what the stage's own collectives take beyond what it
    loses to them; that its pipeline also waits for other stages' is none of it.
    """
    full, no_load, no_host, bare = (
        float(steps.step_s[i]) for i in (0, first, first + 1, first + 2)
    )
    # Work that starts earlier may hold up what the step waits for, which then loses nothing to what
    # was taken away.
    no_load = min(no_load, full)
    no_host = min(no_host, no_load)
    terms = {k: float(v[first + 2]) for k, v in steps.terms_s.items()}
    once = sum(terms.get(name, 0.0) for name in _REPEATED)
    earlier = terms.get("accumulation", 0.0)
    more = min(micro_steps - 1.0, earlier / once) if once else 0.0
    terms |= {name: terms[name] * (1.0 + more) for name in _REPEATED if name in terms}
    terms["accumulation"] = earlier - more * once
    comm = float(steps.comm_s[0])
    exposed = max(no_host - bare, 0.0)
    forward, backward = terms.get("forward", 0.0), terms.get("backward", 0.0)
    out = {
        "forward": forward,
        "backward": backward,
        "frozen_networks": terms.get("frozen", 0.0),
        "accumulation": terms.get("accumulation", 0.0),
        "optimizer": terms.get("optimizer", 0.0),
        "ema": terms.get("ema", 0.0),
        "input_copy": terms.get("input copy", 0.0),
    }
    waited = 0.0
    if "pipeline bubble" in terms:
        out["pipeline_bubble"] = terms["pipeline bubble"]
        waited = float(steps.terms_s["pipeline bubble"][first + 1]) - out["pipeline_bubble"]
    # What is left of the bare step is the wait for offloaded state; without any it is rounding,
    # or what kinds of ranks that are slow in turn wait for each other in collectives.
    left = bare - sum(out.values())
    waits = left if left > _ROUNDING_FRAC * bare else 0.0
    out["offload"] = waits if offloads else 0.0
    out["communication_exposed"] = exposed + waits - out["offload"]
    out["host"] = no_load - no_host
    out["loader"] = full - no_load
    compute = sum(out[k] for k in ("forward", "backward", "frozen_networks", "accumulation"))
    return {
        "compute": compute,
        **out,
        "communication_hidden": max(comm - max(exposed - waited, 0.0), 0.0),
    }
