"""What stands between clients and the node: it fails or holds what a test wants to see fail."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from goqueue.local.engine import EngineAnswer
from goqueue.testing.engine import VirtualEngine
from goqueue.wire.errors import BadRequest, GoQueueError, OutcomeUnknown

What = Literal["publish", "receive", "settle", "any"]

_KINDS: dict[str, re.Pattern[str]] = {
    "publish": re.compile(r"POST /v1/topics/[^/]+(/partitions/\d+)?/(messages(/batch)?|publish)"),
    "receive": re.compile(r"(POST|GET) /v1/groups/[^/]+/(receive|poll)"),
    "settle": re.compile(
        r"POST /v1/(groups/[^/]+/(settle|ack|nack|reject|extend|release)"
        r"|messages/(ack|nack|reject|visibility)|topics/[^/]+/ack)"
    ),
    "any": re.compile(r".*"),
}


@dataclass(frozen=True, slots=True)
class MadeAnswer:
    """An answer with all of its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of the next `times` requests of a kind: the `error` in place of their being
    done, or without one, they are done and the answer is lost."""

    what: What
    error: GoQueueError | None
    times: int


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    answer: Future[EngineAnswer]


class Traffic:
    """Carries requests to a node and answers back; each method may be called from any thread."""

    def __init__(self, engine: VirtualEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._is_paused = False
        self._held: list[Callable[[], None]] = []
        """Requests and answers, in the order in which they came."""
        self._under_way: set[Future[EngineAnswer]] = set()

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Future[EngineAnswer]:
        """The answer; fails with OutcomeUnknown where it is lost. Cancelled, the client has hung
        up."""
        asked = _Asked(method, target, headers, body, Future())
        self._pass(lambda: self._let_in(asked))
        with self._lock:
            self._under_way.add(asked.answer)
        asked.answer.add_done_callback(self._under_way.discard)
        return asked.answer

    def fail_next(self, fault: Fault) -> None:
        """Raises BadRequest for what is no kind of request."""
        if fault.what not in _KINDS:
            raise BadRequest(f"{fault.what}: want one of {', '.join(_KINDS)}")
        if fault.times < 1:
            raise BadRequest(f"times: {fault.times} is less than 1")
        with self._lock:
            self._faults.append(fault)

    def pause(self) -> None:
        """Hold requests, and answers, until `resume`."""
        with self._lock:
            self._is_paused = True

    def resume(self) -> None:
        with self._lock:
            self._is_paused = False
            held, self._held = self._held, []
        for go_on in held:
            go_on()

    @property
    def waiting_requests(self) -> int:
        """How many have come in, and are not answered."""
        return len(self._under_way)

    def cut(self) -> None:
        """Whoever waits for an answer gets none."""
        with self._lock:
            lost = list(self._under_way)
        for answer in lost:
            _fail(answer, OutcomeUnknown("the broker is gone"))

    def turn_to(self, engine: VirtualEngine) -> None:
        """Another node answers from now on, and nothing fails or is held any more."""
        with self._lock:
            self._engine = engine
            self._faults, self._held, self._is_paused = [], [], False

    # private

    def _pass(self, go_on: Callable[[], None]) -> None:
        with self._lock:
            if self._is_paused:
                self._held.append(go_on)
                return
        go_on()

    def _let_in(self, asked: _Asked) -> None:
        if asked.answer.cancelled():
            return
        fault = self._fault_of(asked)
        if fault is not None and fault.error is not None:
            _tell(asked.answer, _answer(fault.error))
            return
        try:
            done = self._engine.ask(asked.method, asked.target, asked.headers, asked.body)
        except GoQueueError as error:
            _fail(asked.answer, error)
            return
        is_lost = fault is not None
        done.add_done_callback(lambda _: self._pass(lambda: _pass_on(done, asked.answer, is_lost)))
        asked.answer.add_done_callback(lambda answer: answer.cancelled() and done.cancel())

    def _fault_of(self, asked: _Asked) -> Fault | None:
        text = f"{asked.method} {asked.target.partition('?')[0]}"
        with self._lock:
            for row, fault in enumerate(self._faults):
                if _KINDS[fault.what].fullmatch(text):
                    left = replace(fault, times=fault.times - 1)
                    self._faults[row : row + 1] = [left] if left.times else []
                    return fault
        return None


def _pass_on(done: Future[EngineAnswer], answer: Future[EngineAnswer], is_lost: bool) -> None:
    if done.cancelled() or is_lost:
        _fail(answer, OutcomeUnknown("the answer was lost"))
    elif (error := done.exception()) is not None:
        _fail(answer, error)
    else:
        _tell(answer, done.result())


def _tell(answer: Future[EngineAnswer], told: EngineAnswer) -> None:
    with suppress(Exception):  # InvalidStateError: it was cancelled or cut meanwhile
        answer.set_result(told)


def _fail(answer: Future[EngineAnswer], error: BaseException) -> None:
    with suppress(Exception):
        answer.set_exception(error)


def _answer(error: GoQueueError) -> MadeAnswer:
    """As a node tells an error."""
    body = msgspec.json.encode(error.to_body())
    return MadeAnswer(error.http_status, {"Content-Type": "application/json"}, body)
