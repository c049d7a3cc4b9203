"""The source's options: what is chosen, where it begins and ends, and what can't be meant."""

from __future__ import annotations

import json

import pytest

from pipeline.options import OptionError, Options
from pipeline.source.options import EARLIEST, LATEST, SourceOptions, parse

ORDERS = {"subscribe": "orders"}


def read(streaming: bool = False, **options: str) -> SourceOptions:
    return parse(Options({**ORDERS, **options}), streaming=streaming)


def refusal(options: dict[str, str], streaming: bool = False) -> str:
    with pytest.raises(OptionError) as raised:
        parse(Options(options), streaming=streaming)
    return str(raised.value)


def test_a_batch_is_from_the_earliest_to_the_latest_and_a_stream_begins_at_the_latest() -> None:
    assert (read().start.at, read().end.at) == (EARLIEST, LATEST)
    assert read(streaming=True).start.at == LATEST


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({"subscribe": "a, b,a"}, (("a", "b"), None, ())),
        ({"subscribePattern": "a.*"}, ((), "a.*", ())),
        ({"assign": '{"a": [2, 0, 2]}'}, ((), None, (("a", (0, 2)),))),
    ],
)
def test_topics_are_chosen_in_three_ways(options: dict[str, str], chosen: object) -> None:
    found = parse(Options(options), streaming=False).chosen

    assert (found.topics, found.pattern, found.assigned) == chosen


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subscribe": ","},
        {"subscribe": "a", "assign": '{"a": [0]}'},
        {"subscribePattern": "("},
        {"assign": "a"},
        {"assign": "[]"},
        {"assign": '{"a": []}'},
        {"assign": '{"a": [-1]}'},
        {"assign": "{}"},
    ],
)
def test_a_choice_that_names_nothing_is_refused(options: dict[str, str]) -> None:
    assert refusal(options).startswith(("subscribe", "assign"))


def test_a_start_by_timestamp_counts_before_one_by_partitions_and_before_offsets() -> None:
    offsets, times = '{"orders": {"0": 5, "1": -1}}', '{"orders": {"0": 7, "1": 8}}'
    every = {
        "startingOffsets": offsets,
        "startingOffsetsByTimestamp": times,
        "startingTimestamp": "2026-01-02T03:04:05Z",
    }

    by_moment = read(True, **every).start
    del every["startingTimestamp"]
    by_time = read(True, **every).start
    del every["startingOffsetsByTimestamp"]
    by_offset = read(True, **every).start

    assert (by_moment.time_ms, by_moment.places) == (1_767_323_045_000, None)
    assert by_time.by_time and by_time.places == {"orders": {0: 7, 1: 8}}
    assert not by_offset.by_time and by_offset.places == {"orders": {0: 5, 1: LATEST}}


def test_the_strategy_for_times_without_a_message_is_an_error_unless_told() -> None:
    assert not read().latest_where_none
    assert read(startingOffsetsByTimestampStrategy="LATEST").latest_where_none
    assert refusal({**ORDERS, "startingOffsetsByTimestampStrategy": "x"}).endswith("error, latest")


@pytest.mark.parametrize(
    ("options", "streaming"),
    [
        ({"startingOffsets": "latest"}, False),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, False),
        ({"endingOffsets": "earliest"}, False),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, False),
        ({"endingOffsets": "latest"}, True),
        ({"endingTimestamp": "5"}, True),
        ({"maxOffsetsPerTrigger": "5"}, False),
        ({"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}, True),
        ({"startingOffsets": "sometime"}, True),
        ({"startingOffsets": '{"orders": 5}'}, True),
        ({"startingOffsets": '{"orders": {"x": 5}}'}, True),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, True),
        ({"startingOffsets": '{"orders": {"0": true}}'}, True),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, True),
        ({"startingTimestamp": "yesterday"}, True),
        ({"minPartitions": "0"}, False),
        ({"startingOffset": "latest"}, True),
        ({"groupIdPrefix": "x"}, True),
        ({"kafka.bootstrap.servers": "x:9092"}, True),
        ({"includeHeaders": "maybe"}, True),
    ],
)
def test_what_can_not_be_meant_is_refused_in_a_sentence_that_names_the_option(
    options: dict[str, str], streaming: bool
) -> None:
    if "includeHeaders" in options:
        with pytest.raises(OptionError, match=r"^includeHeaders: "):
            Options(options).flag("includeHeaders", False)
        return
    told = refusal({**ORDERS, **options}, streaming)

    assert told.lower().startswith(next(iter(options)).lower() + ": ")
    assert "\n" not in told


def test_rates_and_splits_are_read() -> None:
    found = read(
        True,
        maxOffsetsPerTrigger="1000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="30s",
        minPartitions="8",
        maxRecordsPerPartition="500",
        maxBytesPerSecond="1000000",
        failOnDataLoss="false",
    )

    assert (found.offsets_max, found.offsets_min, found.trigger_delay_s) == (1000, 10, 30)
    assert (found.min_partitions, found.records_max) == (8, 500)
    assert (found.bytes_per_second, found.fail_on_data_loss) == (1_000_000, False)


def test_places_survive_the_way_through_json() -> None:
    places = {"orders": {"0": 2**62}}

    assert read(True, startingOffsets=json.dumps(places)).start.places == {"orders": {0: 2**62}}
