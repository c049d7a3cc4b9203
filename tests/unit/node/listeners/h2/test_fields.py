"""Fields of answers: every decoder of HPACK reads them, and keeps none. Those of requests are what
the library's own decoder says."""

from __future__ import annotations

import random

import pytest
from hpack import Decoder, Encoder, HPACKError, NeverIndexedHeaderTuple, OversizedHeaderListError

from node.listeners.h2.fields import BLOCKS_MAX, FieldDecoder, FieldEncoder


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 255, 300, 20_000])
def test_fields_come_out_as_they_went_in(size: int) -> None:
    fields = [(b":status", b"201"), (b"server", b"goqueue"), (b"x-own", b"v" * size)]
    encoder, decoder = FieldEncoder(), Decoder()
    for _ in range(2):
        found = list(decoder.decode(encoder.encode(fields), raw=True))
        assert found == fields
        assert all(isinstance(one, NeverIndexedHeaderTuple) for one in found)
    assert not decoder.header_table.dynamic_entries


def test_names_in_any_number_are_read() -> None:
    encoder, decoder = FieldEncoder(), Decoder()
    for number in range(200):
        fields = [(b":status", b"200"), (b"x-%d" % number, b"%d" % number)]
        assert list(decoder.decode(encoder.encode(fields), raw=True)) == fields


def test_a_client_that_makes_its_table_smaller_is_told_that_it_is() -> None:
    encoder, decoder = FieldEncoder(), Decoder()
    encoder.header_table_size = decoder.max_allowed_table_size = 100
    assert encoder.header_table_size == 100
    decoder.decode(encoder.encode([(b":status", b"200")]))
    assert decoder.header_table_size == 100


def test_requests_say_what_the_librarys_decoder_says() -> None:
    """A table of some twenty entries, of which new ones push old ones out."""
    rng = random.Random(1)
    again = 0
    for _ in range(20):
        client, library, own = Encoder(), Decoder(), FieldDecoder(1 << 16)
        library.max_allowed_table_size = own.max_allowed_table_size = 1 << 16
        heard = []
        for _ in range(300):
            if rng.random() < 0.02:
                client.header_table_size = rng.choice([0, 100, 1000, 4096])
            number = rng.randrange(40 if rng.random() < 0.2 else 3)
            field = (b"x-%d" % (number % 5), b"v%d" % number)
            if rng.random() < 0.1:
                field = NeverIndexedHeaderTuple(*field)
            block = client.encode([(b":method", b"POST"), field])
            found = own.decode(block)
            assert found == list(library.decode(block, raw=True))
            again += any(found is one for one in heard)
            heard.append(found)
            assert len(own._known) <= BLOCKS_MAX
    assert again > 1000


def test_entries_of_a_table_that_changed_are_read_anew() -> None:
    decoder = FieldDecoder(1 << 16)
    first, second, newest = b"\x40\x01a\x01x", b"\x40\x01a\x01y", b"\xbe"
    decoder.decode(first)
    assert decoder.decode(newest) == decoder.decode(newest) == [(b"a", b"x")]
    decoder.decode(second)
    assert decoder.decode(newest) == [(b"a", b"y")]
    decoder.decode(b"\x20")  # the table becomes empty
    with pytest.raises(HPACKError):
        decoder.decode(newest)


def test_a_request_that_unpacks_to_too_much_is_refused_each_time() -> None:
    decoder = FieldDecoder(100)
    for _ in range(2):
        with pytest.raises(OversizedHeaderListError):
            decoder.decode(b"\x82" * 3)
    decoder.max_header_list_size = 1000
    assert decoder.decode(b"\x82" * 3) == [(b":method", b"GET")] * 3
    decoder.max_header_list_size = 50
    with pytest.raises(OversizedHeaderListError):
        decoder.decode(b"\x82" * 3)


def test_long_blocks_and_long_numbers_are_not_remembered() -> None:
    decoder = FieldDecoder(1 << 16)
    for block in (b"\x82" * 65, b"\xff\x00"):
        try:
            decoder.decode(block)
        except HPACKError:
            continue
    assert not decoder._known
