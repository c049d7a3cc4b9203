"""A topic's settings: defaults by the size of the cluster, all problems told at once."""

from __future__ import annotations

import pytest

from coordinator.errors import BadConfig
from coordinator.topics.settings import (
    TopicConfig,
    alter_config,
    config_warnings,
    create_config,
    queue_config,
)
from delivery.config import QueueConfig


@pytest.mark.parametrize(("brokers", "factor"), [(0, 1), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_the_replication_factor_is_three_or_the_number_of_brokers(
    brokers: int, factor: int
) -> None:
    assert create_config({}, brokers).replication_factor == factor


def test_defaults_are_a_week_ten_gibibytes_six_partitions() -> None:
    config = create_config({}, 3)

    assert config == TopicConfig(
        partitions=6,
        replication_factor=3,
        retention_ms=604_800_000,
        retention_bytes=10 * 2**30,
        durability="majority",
        lanes=5,
    )


def test_a_setting_of_none_takes_its_default() -> None:
    assert create_config({"partitions": None, "labels": {"a": "b"}}, 3).partitions == 6


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(BadConfig) as refused:
        create_config(
            {
                "partitions": 0,
                "durability": "maybe",
                "retention_ms": "long",
                "lanes": True,
                "colour": "red",
                "labels": {"a": 1},
            },
            3,
        )

    problems = refused.value.data["problems"]
    assert [text.split(":")[0] for text in problems] == [  # type: ignore[union-attr]
        "colour",
        "durability",
        "labels",
        "lanes",
        "partitions",
        "retention_ms",
    ]
    assert refused.value.http_status == 400


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partitions", 10_001),
        ("replication_factor", 8),
        ("retention_ms", 0),
        ("retention_ms", -2),
        ("retention_bytes", 0),
        ("flush_interval_ms", 0),
        ("lanes", 6),
        ("lanes", 4),
        ("lanes", 1),
        ("lanes", 5.0),
        ("ttl_ms", -1),
        ("delay_ms_max", 366 * 86_400_000 + 1),
        ("delayed_max", -1),
        ("dedup_window_ms", 8 * 86_400_000),
        ("dedup_max", 10_000_001),
        ("dedup_producers_bytes", (1 << 20) - 1),
        ("dedup_requests_bytes", (1 << 30) + 1),
        ("dead_retention_ms", 0),
        ("dead_retention_ms", -2),
        ("max_message_bytes", (16 << 20) + 1),
        ("max_message_bytes", 1.5),
        ("durability", None),
        ("labels", ["a"]),
        ("labels", {"": "x"}),
        ("labels", {str(at): "" for at in range(65)}),
        ("labels", {"a": "x" * 257}),
    ],
)
def test_a_value_out_of_range_names_the_setting(name: str, value: object) -> None:
    with pytest.raises(BadConfig, match=name):
        alter_config(TopicConfig(), {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention_ms", -1),
        ("retention_bytes", -1),
        ("durability", "relaxed"),
        ("flush_interval_ms", 5),
        ("max_message_bytes", 1),
        ("labels", {"team": "pay"}),
        ("ttl_ms", 60_000),
        ("delay_ms_max", 3_600_000),
        ("delayed_max", 0),
        ("dedup_window_ms", 0),
        ("dedup_max", 10),
        ("dedup_producers_bytes", 1 << 20),
        ("dedup_requests_bytes", 1 << 30),
        ("dead_retention_ms", -1),
    ],
)
def test_what_can_be_altered_is(name: str, value: object) -> None:
    assert getattr(alter_config(TopicConfig(), {name: value}), name) == value


@pytest.mark.parametrize("name", ["partitions", "replication_factor", "lanes"])
def test_what_is_fixed_at_creation_may_only_be_repeated(name: str) -> None:
    config = TopicConfig()

    assert alter_config(config, {name: getattr(config, name)}) == config
    with pytest.raises(BadConfig, match="can't be changed"):
        alter_config(config, {name: 2})


def test_a_topic_has_three_lanes_or_five() -> None:
    assert [create_config({"lanes": lanes}, 3).lanes for lanes in (3, 5)] == [3, 5]


def test_partitions_get_the_queue_settings_with_the_same_defaults() -> None:
    assert QueueConfig(**queue_config(TopicConfig())) == QueueConfig()


def test_partitions_get_every_queue_setting_of_their_topic() -> None:
    changed = {
        "lanes": 3,
        "retention_ms": 1,
        "ttl_ms": 2,
        "delay_ms_max": 3,
        "delayed_max": 4,
        "dedup_window_ms": 5,
        "dedup_max": 6,
        "dead_retention_ms": 7,
        "dedup_producers_bytes": 1 << 20,
        "dedup_requests_bytes": 1 << 21,
    }

    assert set(changed) == set(QueueConfig.__struct_fields__)
    assert queue_config(create_config(changed, 3)) == changed


def test_two_replicas_are_warned_about() -> None:
    (warning,) = config_warnings(create_config({}, 2))

    assert "stops publishing" in warning


def test_safe_settings_bring_no_warning() -> None:
    assert config_warnings(create_config({}, 3)) == []


def test_relaxed_durability_says_what_may_be_lost() -> None:
    (warning,) = config_warnings(TopicConfig(durability="relaxed", flush_interval_ms=20))

    assert "20 ms" in warning
