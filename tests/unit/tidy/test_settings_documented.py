"""docs/reference/settings.md lists every setting of topics, groups and schedules."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from coordinator.groups.settings import GroupSettings as StoredGroupSettings
from coordinator.topics.settings import TopicConfig
from node.http.groups.settings import GroupSettings
from node.http.queue.schedules import ScheduleBody
from node.http.topics.catalog import TopicSettings

SETTINGS = (Path(__file__).parents[3] / "docs/reference/settings.md").read_text()
TOPICS, GROUPS, SCHEDULES = SETTINGS.split("\n## ")[1:4]
FOREIGN = {"replicationFactor", "config"}


def listed(section: str) -> set[str]:
    """What stands in code in the columns before the default."""
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    columns = 2 if section is TOPICS else 1
    return {name for row in rows for cell in row.split("|")[1 : 1 + columns] for name in code(cell)}


def code(cell: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", cell)


def test_every_setting_of_a_topic_is_listed_and_no_other() -> None:
    stored = {field.name for field in dataclasses.fields(TopicConfig)}
    spoken = set(TopicSettings.__struct_fields__) - FOREIGN

    assert listed(TOPICS) - {"config", "priority.lanes"} == stored | spoken


def test_every_setting_of_a_group_is_listed_and_no_other() -> None:
    assert listed(GROUPS) == set(GroupSettings.__struct_fields__)
    assert len(GroupSettings.__struct_fields__) == 1 + len(dataclasses.fields(StoredGroupSettings))


def test_every_setting_of_a_schedule_is_listed_and_no_other() -> None:
    encodings = {"value_encoding", "key_encoding"}

    assert listed(SCHEDULES) == set(ScheduleBody.__struct_fields__) - encodings - {"name"}
