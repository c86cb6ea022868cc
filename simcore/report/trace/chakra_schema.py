"""The protobuf messages of MLCommons Chakra that simcore writes.

Numbers and names: mlcommons/chakra, schema/protobuf/et_def.proto. Only the fields that simcore
writes are described here; a reader with the whole schema can parse them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from simcore.base.errors import UsageError

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
        raise UsageError("--chakra needs protobuf: pip install 'simcore[chakra]'") from None
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
