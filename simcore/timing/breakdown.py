"""The step time divided into terms."""

from __future__ import annotations

from simcore.timing.evaluate import Steps

#: Relative rounding error of a sum of a few dozen floats.
_ROUNDING_FRAC = 1e-12
#: Terms that every micro-step repeats.
_REPEATED = ("forward", "backward", "frozen")


def breakdown(steps: Steps, first: int, micro_steps: float, *, offloads: bool) -> dict[str, float]:
    """Seconds by term; all terms but ``communication_hidden`` add up to the step time.

    ``steps``: columns 0 (the whole step) and, from ``first`` on, the step without data loading,
    then also without host time, then also without communication.

    Forward, backward and frozen networks are those of all micro-steps. What the micro-steps before
    the last take beyond that (casts of weights, sums of gradients) is accumulation.

    Loader, host and exposed communication are differences: how much shorter the step gets when each
    is removed, in that order. Hidden communication is the time of a stage's own collectives less
    the exposed time; the time that its pipeline waits for other stages' collectives is not part
    of it.
    """
    full, no_load, no_host, bare = (
        float(steps.step_s[i]) for i in (0, first, first + 1, first + 2)
    )
    # Removing a cost can lengthen a step: other work then starts earlier and delays what the step
    # waits for. Such a cost counts as zero.
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
    # The remainder of the step without communication is the wait for offloaded state. Without
    # offload it is rounding, or the time that kinds of ranks which are slow at different moments
    # wait for each other in collectives.
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
