"""Fields of answers: every decoder of HPACK reads them, and keeps none."""

from __future__ import annotations

import pytest
from hpack import Decoder, NeverIndexedHeaderTuple

from node.listeners.h2.fields import FieldEncoder


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
