from __future__ import annotations

from datetime import date

import pytest

from goqueue.archive.layout import (
    FileRange,
    Kind,
    Series,
    day_of,
    file_name,
    parse_file_name,
    parse_id_folder,
    parse_manifest_name,
    parse_topic_folder,
)

ID = "00000000deadbeef-1f"
ORDERS = Series(Kind.MESSAGES, "orders", ID)


def test_a_file_of_messages_has_one_name() -> None:
    path = ORDERS.data_path(date(2026, 11, 22), 3, 1200, 2399)

    assert ORDERS.folder == f"archive/v1/kind=messages/topic=orders/id={ID}"
    assert path == (
        "date=2026-11-22/partition=00003/"
        "orders+00003+0000000000000001200-0000000000000002399.parquet"
    )


def test_names_sort_as_their_numbers_do() -> None:
    ranges = [(0, 9), (10, 99), (100, 10**18), (10**18 + 1, 2**63 - 1)]
    names = [file_name("t", 7, first, last) for first, last in ranges]

    assert sorted(names) == names
    assert sorted(ORDERS.manifest_path(n) for n in (1, 2, 10, 99_999)) == [
        ORDERS.manifest_path(n) for n in (1, 2, 10, 99_999)
    ]


@pytest.mark.parametrize("topic", ["orders", "a+b-c", "x.y_z-1", "__audit"])
def test_a_files_name_tells_its_range(topic: str) -> None:
    name = file_name(topic, 12, 5, 2**63 - 1)

    assert parse_file_name(name) == FileRange(12, 5, 2**63 - 1)
    assert not name.startswith("_")


@pytest.mark.parametrize(
    "name",
    [
        "part-00000-c000.zstd.parquet",
        "orders+00003+0000000000000000009-0000000000000000008.parquet",
        "orders+00003+9-10.parquet",
        "orders+00003+0000000000000000001-0000000000000000002.parquet.crc",
        "",
    ],
)
def test_other_files_are_not_taken_for_data(name: str) -> None:
    assert parse_file_name(name) is None


def test_manifests_are_told_from_what_lies_beside_them() -> None:
    name = ORDERS.manifest_path(42).rpartition("/")[2]

    assert parse_manifest_name(name) == 42
    assert parse_manifest_name(f".{name}.crc") is None
    assert parse_manifest_name("000000000000.json.zst") is None
    assert parse_manifest_name(f"{name}.tmp") is None


def test_folders_tell_topics_and_ids() -> None:
    assert parse_topic_folder("topic=orders") == "orders"
    assert parse_topic_folder("topic=../x") is None
    assert parse_topic_folder("id=orders") is None
    assert parse_id_folder(f"id={ID}") == ID
    assert parse_id_folder("id=nothing") is None


@pytest.mark.parametrize(
    ("topic", "id_"), [("../etc", ID), ("a/b", ID), ("", ID), ("orders", "..")]
)
def test_a_series_cannot_lead_out_of_its_folder(topic: str, id_: str) -> None:
    with pytest.raises(ValueError, match=r"not a topic|invalid literal"):
        Series(Kind.MESSAGES, topic, id_)


def test_days_are_in_utc() -> None:
    midnight = 1_795_305_600_000

    assert day_of(midnight - 1) == date(2026, 11, 21)
    assert day_of(midnight) == date(2026, 11, 22)
