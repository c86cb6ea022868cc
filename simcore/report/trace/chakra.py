"""One step as Chakra execution traces, which ASTRA-sim replays on a network that it simulates.

The files are ``PREFIX.<rank>.et`` for every rank, and ``PREFIX.groups.json`` with the ranks of
every communicator in the form of ASTRA-sim's ``--comm-group-configuration``.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

from simcore.answer.replay import Node, Replay
from simcore.base.errors import UsageError
from simcore.base.units import MICRO
from simcore.report.trace.chakra_schema import (
    COLLECTIVE,
    COLLECTIVES,
    COMPUTE,
    RECV,
    SEND,
    messages,
)

#: The largest number of ranks; each gets a file, and replays of more are not practical.
MOST_RANKS = 1000
#: Version of the schema, as in the examples of mlcommons/chakra.
_VERSION = "0.0.4"


def _numbered(graph: Replay) -> dict[tuple[str, tuple[int, ...]], int]:
    """(name, ranks) of every communicator -> its number, from 1: in ASTRA-sim 0 is all ranks."""
    every = [(name, ranks) for name, groups in graph.groups.items() for ranks in groups]
    return {group: i for i, group in enumerate(every, start=1)}


def _attributes(node: Node, rank: int, graph: Replay, numbers: dict[str, int]) -> dict[str, Any]:
    found: dict[str, Any] = {"is_cpu_op": ("bool_val", node.on_host)}
    if not node.op:
        return found
    found["comm_size"] = ("uint64_val", round(node.n_bytes))
    if node.op in COLLECTIVES:
        found["comm_type"] = ("int64_val", COLLECTIVES[node.op])
        found["pg_name"] = ("string_val", str(numbers[node.group]))
        return found
    peer = rank + node.peer * graph.per_stage
    source, target = (rank, peer) if node.op == "send" else (peer, rank)
    found["comm_src"] = ("uint32_val", source)
    found["comm_dst"] = ("uint32_val", target)
    found["comm_tag"] = ("uint32_val", node.tag)
    return found


def _rank(graph: Replay, rank: int, numbers: dict[str, int]) -> bytes:
    from google.protobuf.proto import serialize_length_prefixed

    kinds = messages()
    out = BytesIO()
    serialize_length_prefixed(kinds["GlobalMetadata"](version=_VERSION), out)
    for i, node in enumerate(graph.stages[rank // graph.per_stage]):
        of = {"": COMPUTE, "send": SEND, "recv": RECV}.get(node.op, COLLECTIVE)
        written = kinds["Node"](
            id=i, name=node.name, type=of, data_deps=node.deps,
            duration_micros=round(node.seconds / MICRO),
        )  # fmt: skip
        for name, (field, value) in _attributes(node, rank, graph, numbers).items():
            written.attr.append(kinds["AttributeProto"](name=name, **{field: value}))
        serialize_length_prefixed(written, out)
    return out.getvalue()


def write_chakra(graph: Replay, prefix: Path) -> int:
    """Write the files of all ranks and return the number of ranks.

    Raises UsageError for more than ``MOST_RANKS`` ranks or without protobuf, and OSError.
    """
    if graph.n_ranks > MOST_RANKS:
        raise UsageError(
            f"--chakra writes a file a rank: {graph.n_ranks} ranks are more than {MOST_RANKS}"
        )
    messages()
    numbered = _numbered(graph)
    for rank in range(graph.n_ranks):
        mine = {name: n for (name, ranks), n in numbered.items() if rank in ranks}
        Path(f"{prefix}.{rank}.et").write_bytes(_rank(graph, rank, mine))
    groups = {str(n): list(ranks) for (_, ranks), n in numbered.items()}
    Path(f"{prefix}.groups.json").write_text(json.dumps(groups), encoding="utf-8")
    return graph.n_ranks
