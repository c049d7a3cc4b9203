"""Stubs made of the facts alone: of names and numbers that published clients speak, not of ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClassesForFiles

FACTS = Path(__file__).resolve().parents[1] / "unit/node/listeners/grpc/facts.txt"
FILE, PACKAGE = "facts.proto", "goqueue.v1"
_Field = descriptor_pb2.FieldDescriptorProto
_PLAIN = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
}
_FIELD = re.compile(r"(\w+)=(\d+) (repeated )?([\w.]+|map<string,string>)")
_METHOD = re.compile(r"(\w+)\((stream )?(\w+)\)returns\((stream )?(\w+)\)")


def messages() -> Callable[[str], Any]:
    """By a message's name its class, in a pool of their own."""
    file = descriptor_pb2.FileDescriptorProto(name=FILE, package=PACKAGE, syntax="proto3")
    file.dependency.extend(["google/protobuf/duration.proto", "google/protobuf/timestamp.proto"])
    lines = [line.split(" ", 1) for line in FACTS.read_text().splitlines() if line[:1] not in "#"]
    enums = {rest.partition(":")[0] for kind, rest in lines if kind == "enum"}
    for kind, rest in lines:
        name, _, body = rest.partition(":")
        if kind == "enum":
            enum = file.enum_type.add(name=name)
            for value in body.split(";"):
                word, _, number = value.strip().partition("=")
                enum.value.add(name=word, number=int(number))
        elif kind == "message":
            _describe(file.message_type.add(name=name), body, enums)
    pool = DescriptorPool()
    for known in (duration_pb2, timestamp_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    classes = GetMessageClassesForFiles([FILE], pool)
    return lambda name: classes[f"{PACKAGE}.{name}"]


def stub(channel: grpc.Channel, classes: Callable[[str], Any], service: str, method: str) -> Any:
    """A method as the facts have it."""
    (line,) = (
        line for line in FACTS.read_text().splitlines() if line.startswith(f"service {service}:")
    )
    (found,) = (m for m in _METHOD.finditer(line) if m[1] == method)
    kind = f"{'stream' if found[2] else 'unary'}_{'stream' if found[4] else 'unary'}"
    return getattr(channel, kind)(
        f"/{PACKAGE}.{service}/{method}",
        request_serializer=classes(found[3]).SerializeToString,
        response_deserializer=classes(found[5]).FromString,
    )


def _describe(message: Any, body: str, enums: set[str]) -> None:
    is_oneof = "oneof" in body
    if is_oneof:
        message.oneof_decl.add(name="payload")
    for found in _FIELD.finditer(body):
        name, number, repeated, kind = found.groups()
        field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
        if repeated or kind.startswith("map"):
            field.label = _Field.LABEL_REPEATED
        if is_oneof:
            field.oneof_index = 0
        if kind in _PLAIN:
            field.type = _PLAIN[kind]
        elif kind.startswith("map"):
            entry = message.nested_type.add(name=f"{name.title()}Entry")
            entry.options.map_entry = True
            for at, inner in enumerate(("key", "value"), 1):
                entry.field.add(
                    name=inner, number=at, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING
                )
            field.type = _Field.TYPE_MESSAGE
            field.type_name = f".{PACKAGE}.{message.name}.{entry.name}"
        else:
            field.type = _Field.TYPE_ENUM if kind in enums else _Field.TYPE_MESSAGE
            field.type_name = f".{kind}" if "." in kind else f".{PACKAGE}.{kind}"
