"""grpc.health.v1 as grpc_health_probe asks it: one unary Check, on a channel of its own."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClassesForFiles

from tests.protocols.client import Door

SERVICES = ("", "goqueue.v1.PublishService")
PROBE_S = 2.0
PAUSE_S = 0.2
SERVING, NOT_SERVING = 1, 2
UNREACHABLE = ("UNAVAILABLE", "DEADLINE_EXCEEDED")
_Field = descriptor_pb2.FieldDescriptorProto


def classes() -> tuple[Any, Any]:
    """HealthCheckRequest and HealthCheckResponse, as the published protocol has them: field 1 is
    the service's name, field 1 is the status."""
    file = descriptor_pb2.FileDescriptorProto(
        name="probe.proto", package="grpc.health.v1", syntax="proto3"
    )
    for name, field, kind in (
        ("HealthCheckRequest", "service", _Field.TYPE_STRING),
        ("HealthCheckResponse", "status", _Field.TYPE_INT32),  # an enum, as it is on the wire
    ):
        file.message_type.add(name=name).field.add(
            name=field, number=1, label=_Field.LABEL_OPTIONAL, type=kind
        )
    pool = DescriptorPool()
    pool.Add(file)
    found = GetMessageClassesForFiles(["probe.proto"], pool)
    return (
        found["grpc.health.v1.HealthCheckRequest"],
        found["grpc.health.v1.HealthCheckResponse"],
    )


class HealthWatch:
    """Asks each node again and again, on a thread of its own, and holds the answer against what
    /readyz says before and after it. A context."""

    def __init__(self, doors: Sequence[Door], pid_of: Callable[[int], int | None]) -> None:
        """`pid_of`: the process of a node, by its place in the list, while it runs."""
        self._doors = doors
        self._pid_of = pid_of
        self._request, self._response = classes()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="health")
        self.answers: Counter[str] = Counter()
        self.wrong: list[str] = []

    def __enter__(self) -> HealthWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def line(self) -> str:
        told = ", ".join(f"{count} × {what}" for what, count in sorted(self.answers.items()))
        return f"health: {told}, {len(self.wrong)} wrong"

    def _run(self) -> None:
        turn = 0
        while not self._is_over.wait(PAUSE_S):
            for at in range(len(self._doors)):
                self._look(at, SERVICES[turn % len(SERVICES)])
            turn += 1

    def _look(self, at: int, service: str) -> None:
        door = self._doors[at]
        pid, ready = self._pid_of(at), _is_ready(door)
        answer = self._probe(door, service)
        still = self._pid_of(at), _is_ready(door)
        self.answers[answer] += 1
        if answer not in ("SERVING", "NOT_SERVING", "unreachable"):
            self.wrong.append(f"health of {door.grpc} is {answer}")
        if still != (pid, ready):
            return  # it changed meanwhile: either answer is right
        expected = {True: "SERVING", False: "NOT_SERVING", None: "unreachable"}[ready]
        if pid is None:
            expected = "unreachable"
        if answer != expected and answer != "unreachable":
            self.wrong.append(f"health of {door.grpc} is {answer}, and {expected} by /readyz")

    def _probe(self, door: Door, service: str) -> str:
        with grpc.insecure_channel(f"{door.host}:{door.grpc}") as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=self._request.SerializeToString,
                response_deserializer=self._response.FromString,
            )
            try:
                status = check(self._request(service=service), timeout=PROBE_S).status
            except grpc.RpcError as error:
                code: str = error.code().name
                return "unreachable" if code in UNREACHABLE else code
        return {SERVING: "SERVING", NOT_SERVING: "NOT_SERVING"}.get(status, f"status {status}")


def _is_ready(door: Door) -> bool | None:
    """None where it does not answer."""
    link = http.client.HTTPConnection(door.host, door.http, timeout=PROBE_S)
    try:
        link.request("GET", "/readyz")
        return link.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return None
    finally:
        link.close()
