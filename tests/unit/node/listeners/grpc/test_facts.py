"""The .proto says what published clients speak, and what is generated is of this very .proto."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from node.listeners.grpc.protocol import goqueue_pb2 as pb

ROOT = Path(__file__).resolve().parents[5]
FACTS = Path(__file__).with_name("facts.txt")
PLAIN = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
}


def type_of(field: Any) -> str:
    kind = field.message_type or field.enum_type
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (type_of(kind.fields_by_name[name]) for name in ("key", "value"))
        return f"map<{key},{value}>"
    name = PLAIN.get(field.type) or kind.full_name.removeprefix("goqueue.v1.")
    return f"repeated {name}" if field.is_repeated else name


def described() -> Iterator[str]:
    """Each message, enum and service as a line of the facts, with spaces left out."""
    file = pb.DESCRIPTOR
    for message in file.message_types_by_name.values():
        fields = ";".join(f"{f.name}={f.number}{type_of(f)}" for f in message.fields)
        oneof = [one.name for one in message.oneofs if not one.name.startswith("_")]
        told = f"oneof{oneof[0]}{{;{fields};}}" if oneof else fields
        yield f"message{message.name}:{told}"
    for enum in file.enum_types_by_name.values():
        yield f"enum{enum.name}:" + ";".join(f"{one.name}={one.number}" for one in enum.values)
    for service in file.services_by_name.values():
        yield f"service{service.name}:" + ";".join(
            f"{one.name}({'stream' * one.client_streaming}{one.input_type.name})"
            f"returns({'stream' * one.server_streaming}{one.output_type.name})"
            for one in service.methods
        )


def test_names_and_numbers_are_those_that_clients_speak() -> None:
    lines = [line for line in FACTS.read_text().splitlines() if line and line[0] != "#"]
    facts = {re.sub(r"\s", "", line if ":" in line else f"{line}:") for line in lines}

    assert len(facts) == 66
    assert {line.replace(" ", "") for line in described()} == facts


def test_what_is_committed_is_what_the_compiler_makes(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    from scripts import protos

    assert protos.main(tmp_path) == 0

    for made in tmp_path.iterdir():
        assert (ROOT / protos.ROOM / made.name).read_text() == made.read_text(), "make protos"
    assert len(list(tmp_path.iterdir())) == 2
