"""Arrays are cut between their elements, whatever those hold; what is no JSON stays none."""

from __future__ import annotations

import json
import random

import msgspec
import pytest

from goqueue.wire.errors import BadRequest
from node.http.text import elements
from node.http.text.elements import Elements

NAMES = ["value", "key", 'a"b', "messages", "\\", "ü", "x" * 30]
SCALARS = [None, True, False, 0, -1.5e300, "", "plain", 'q"u\\o\tte', "]}[{,:", "ü☃𝄞", "\\" * 7]


def any_value(rng: random.Random, depth: int):
    kind = rng.random()
    if depth == 0 or kind < 0.5:
        return rng.choice(SCALARS) if rng.random() < 0.9 else "long " * rng.randrange(60)
    if kind < 0.75:
        return [any_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(NAMES): any_value(rng, depth - 1) for _ in range(rng.randrange(4))}


def document(rng: random.Random) -> bytes:
    members = {"producer_id": 7, "other": any_value(rng, 6)}
    found = [any_value(rng, rng.choice([1, 2, 6])) for _ in range(rng.randrange(12))]
    items = [*members.items(), ("messages", found)]
    rng.shuffle(items)
    text = json.dumps(
        dict(items),
        ensure_ascii=rng.random() < 0.5,
        indent=rng.choice([None, 1]),
        separators=rng.choice([None, (",", ":")]),
    )
    return text.encode()


def decode(text: bytes) -> list:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(str(error)) from None


def cut(text: bytes, decode=None) -> tuple[list, object]:
    """The elements and the rest, each decoded as whoever uses them does."""
    walked = Elements(text, b"messages", decode)
    found: list = []
    for piece in walked.walk():
        if piece is not None:
            some = msgspec.json.decode(b"[%s]" % text[piece.start : piece.end])
            assert piece.decoded in (None, some)
            found += some
    return found, msgspec.json.decode(walked.rest)


@pytest.fixture(params=[16, 40, 300, 64 * 1024])
def slices(request, monkeypatch) -> int:
    monkeypatch.setattr(elements, "SLICE_BYTES", request.param)
    return request.param


@pytest.fixture(params=[None, decode], ids=["by brackets", "guessed"])
def guess(request):
    return request.param


def test_elements_and_rest_are_what_the_document_holds(slices: int, guess) -> None:
    rng = random.Random(slices)
    for _ in range(400):
        text = document(rng)
        if slices == 16 and b"300" in text:
            continue  # a number of more than a slice
        whole = msgspec.json.decode(text)

        found, rest = cut(text, guess)

        assert found == whole["messages"], text
        assert rest == {**whole, "messages": []}, text


def test_what_is_no_json_is_refused_somewhere(slices: int, guess) -> None:
    rng, refused = random.Random(slices), 0
    for _ in range(1500):
        text = bytearray(document(rng))
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(len(text))
            text[at : at + rng.randrange(2)] = rng.choice(
                [b"", b",", b"[", b"]", b"{", b"}", b'"', b"\\", b":", b" ", b"1"]
            )
        try:
            whole = msgspec.json.decode(bytes(text))
        except (msgspec.DecodeError, UnicodeDecodeError):
            refused += 1
            with pytest.raises((BadRequest, msgspec.DecodeError, UnicodeDecodeError)):
                cut(bytes(text), guess)
            continue
        try:
            found, rest = cut(bytes(text), guess)
        except BadRequest:
            continue  # given twice, or beyond a bound
        if isinstance(rest, dict) and isinstance(whole.get("messages"), list):
            assert found == whole["messages"] or rest.get("messages") != [], bytes(text)
    assert refused > 500


@pytest.mark.parametrize(
    "element",
    [b"{}", b'{"value":"v"}', b'"%s"' % (b'\\"' * 90_000), b"[" * 50 + b"]" * 50, b"[[[[[]]]]]"],
    ids=["empty", "plain", "escapes", "deep", "nested"],
)
@pytest.mark.parametrize("frame", [b"%s", b'{"value":[%s]}', b"[" * 11 + b"%s" + b"]" * 11])
def test_no_step_looks_at_much_more_than_a_slice(element: bytes, frame: bytes, guess) -> None:
    held = frame % b",".join([element] * (2**20 // len(element)))
    text = b'{"messages":[' + held + b"]}"
    walked, before, steps = Elements(text, b"messages", guess), 0, 0
    for piece in walked.walk():
        assert walked._at - before <= 2 * elements.SLICE_BYTES
        before, steps = walked._at, steps + 1
        if piece is not None and piece.end - piece.start > elements.SLICE_BYTES:
            assert text[piece.start : piece.end] in (element, held)
    assert steps >= len(text) // elements.SLICE_BYTES - 1


@pytest.mark.parametrize("first", [b"{}", b'{"a":[' + b"{}," * 5000 + b"1]}"])
def test_of_small_objects_few_are_decoded_at_once(first: bytes, guess) -> None:
    text = b'{"messages":[' + first + b",{}" * 100_000 + b"]}"

    pieces = [piece for piece in Elements(text, b"messages", guess).walk() if piece is not None]

    assert cut(text, guess)[0] == [json.loads(first)] + [{}] * 100_000
    for start, end, _ in pieces:
        assert text[start:end].removeprefix(first).count(b"{") <= elements.SIGNS_AT_ONCE


@pytest.mark.parametrize(
    ("element", "guessed"),
    [
        ({"value": "v" * 50}, 1.0),
        ({"value": '},{"x', "headers": {"a": "b"}}, 1.0),
        ({"value": "},{"}, 0.0),
        ({"value": [{"a": "b"}, {"a": "b"}]}, 0.0),
        ("receipt", 1.0),
        (["receipt"], 0.0),
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_a_cut_is_guessed_and_wrong_once_at_most(element, guessed: float, separators) -> None:
    asked: list[int] = []
    text = json.dumps({"messages": [element] * 10_000}, separators=separators).encode()
    walked = Elements(text, b"messages", lambda piece: asked.append(len(piece)) or decode(piece))

    found = [piece for piece in walked.walk() if piece is not None]

    right = [piece for piece in found if piece.decoded is not None]
    assert len(right) >= guessed * (len(found) - 1)
    assert len(asked) - len(right) <= 1
    assert max(asked, default=0) <= elements.SLICE_BYTES + 2
    assert cut(text, decode)[0] == [element] * 10_000


@pytest.mark.parametrize(
    "text",
    [
        b'{"messages":[{}],"messages":[]}',
        b'{"messages":[{}' + b" " * 70_000 + b"]}",
        b'{"x":"' + b"y" * 70_000 + b'","messages":[{}]}',
        b'{"messages":[' + b"[" * 1000 + b"]" * 1000 + b"]}",
        b'{"messages":[{} {}]}',
        b'{"messages":[{},]}',
        b'{"messages":[,{}]}',
        b'{"messages":[{}',
        b'{"messages":["abc',
        b'{"messages":[' + b"1" * 70_000 + b"]}",
        b"",
        b"[]",
    ],
)
def test_odd_documents_are_refused(text: bytes, guess) -> None:
    with pytest.raises(BadRequest):
        list(Elements(text, b"messages", guess).walk())
