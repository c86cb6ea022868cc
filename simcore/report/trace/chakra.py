"""One step as Chakra execution traces, which ASTRA-sim replays on a network that it simulates.

The files are ``PREFIX.<rank>.et`` for every rank, and ``PREFIX.groups.json`` with the ranks of
every communicator in the form of ASTRA-sim's ``--comm-group-configuration``.

Numbers and names of the protobuf messages: mlcommons/chakra, schema/protobuf/et_def.proto. Only the
fields that simcore writes are described; a reader with the whole schema can parse them.
"""

from __future__ import annotations

import json
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from simcore.answer.replay import Node, Replay
from simcore.base.errors import UsageError
from simcore.base.units import MICRO

#: The largest number of ranks; each gets a file, and replays of more are not practical.
MOST_RANKS = 1000
#: Version of the schema, as in the examples of mlcommons/chakra.
_VERSION = "0.0.4"


#: Values of Chakra's enum NodeType.
COMPUTE, SEND, RECV, COLLECTIVE = 4, 5, 6, 7
#: simcore's names of collectives -> values of Chakra's enum CollectiveCommType.
COLLECTIVES = {"all_reduce": 0, "reduce": 1, "all_gather": 2, "all_to_one": 3, "one_to_all": 4,
               "broadcast": 5, "all_to_all": 6, "reduce_scatter": 7}  # fmt: skip

_PACKAGE = "ChakraProtoMsg"
#: Values of protobuf's FieldDescriptorProto.Type; an enum is encoded as a uint32.
_INT64, _UINT64, _BOOL, _STRING, _MESSAGE, _UINT32 = 3, 4, 8, 9, 11, 13
_OPTIONAL, _REPEATED = 1, 3
#: Message -> fields: name, number, type, and a fourth entry. This is "value" for a member of the
#: oneof ``value``, "repeated" for a repeated scalar, the message's name for a repeated message.
_FIELDS: dict[str, tuple[tuple[str, int, int, str], ...]] = {
    "AttributeProto": (
        ("name", 1, _STRING, ""),
        ("int64_val", 9, _INT64, "value"),
        ("uint32_val", 11, _UINT32, "value"),
        ("uint64_val", 13, _UINT64, "value"),
        ("bool_val", 27, _BOOL, "value"),
        ("string_val", 29, _STRING, "value"),
    ),
    "GlobalMetadata": (("version", 1, _STRING, ""), ("attr", 2, _MESSAGE, "AttributeProto")),
    "Node": (
        ("id", 1, _UINT64, ""),
        ("name", 2, _STRING, ""),
        ("type", 3, _UINT32, ""),
        ("data_deps", 5, _UINT64, "repeated"),
        ("duration_micros", 7, _UINT64, ""),
        ("attr", 10, _MESSAGE, "AttributeProto"),
    ),
}


@cache
def messages() -> dict[str, Any]:
    """The message classes by name. Raises UsageError if protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise UsageError("--chakra needs protobuf: pip install '.[chakra]'") from None
    file = descriptor_pb2.FileDescriptorProto(
        name="simcore_chakra.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind, of in fields:
            repeated = kind == _MESSAGE or of == "repeated"
            made = message.field.add(
                name=field, number=number, type=kind, label=_REPEATED if repeated else _OPTIONAL
            )
            if kind == _MESSAGE:
                made.type_name = f".{_PACKAGE}.{of}"
            elif of == "value":  # a member of a oneof is encoded even if it is zero
                if not message.oneof_decl:
                    message.oneof_decl.add(name="value")
                made.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _FIELDS
    }


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
