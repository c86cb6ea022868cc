"""Megatron's flag of context exchange (core/transformer/transformer_config.py, cp_comm_type)."""

from __future__ import annotations

from typing import Any

from simcore.strategy.dialects.base import Job
from simcore.strategy.dialects.reading import Reading

_KEY = "cp-comm-type"
#: Values of the flag. The last one is rings of all-to-all groups.
_KINDS: dict[str, str | None] = {
    "p2p": "ring", "all_gather": "all-gather", "allgather": "all-gather", "a2a": "ulysses",
    "a2a+p2p": "ring",
}  # fmt: skip


def read_context(reading: Reading, given: dict[str, Any]) -> None:
    """Read the flag, after the degrees."""
    kind = given.pop(_KEY, None)
    if kind is None or reading.said("cp") is None:
        return
    if kind == "a2a+p2p":
        reading.approximate(f"--{_KEY} {kind}", "is predicted as a ring of all context ranks")
    reading.say("cp_comm", reading.choose(f"--{_KEY}", kind, _KINDS, "cp_comm"), f"--{_KEY}")


def emit_context(job: Job) -> list[str]:
    """The flag, where its value is not Megatron's default."""
    if not (job.cp and job.cp_comm):
        return []
    by_kind = {ours: theirs for theirs, ours in reversed(_KINDS.items())}
    return [f"--{_KEY} {by_kind[job.cp_comm]}"]
