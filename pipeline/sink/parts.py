"""How many Spark partitions earlier attempts had: known only when all tasks have ended.

Spark tells a Python task its number, and not how many there are; nor does it tell whoever plans the
write. So rows of tasks that this attempt does not have are looked for when it is committed. They
came by in other tasks this time, which could not know them for theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.broker import Broker
from pipeline.sink.errors import SinkError
from pipeline.sink.identity import Identity
from pipeline.sink.standing import standings
from pipeline.sink.task import topic_facts

QUESTIONS_MAX = 1000
"""Of one commit, one for each partition of a topic and each Spark partition that is looked for."""
PARTS_MIN = 8
"""So many Spark partitions beyond those that there are, however many partitions topics have."""


def check_parts(broker: Broker, topics: Sequence[str], identity: Identity, parts: int) -> None:
    """Raises SinkError where an attempt at the same write stored rows of a Spark partition that is
    none of these `parts`, as far as `QUESTIONS_MAX` reaches; GoQueueError."""
    facts = [topic_facts(broker, name) for name in topics]
    reach = max(PARTS_MIN, QUESTIONS_MAX // max(1, sum(one.partitions for one in facts)))
    for part in range(parts, parts + reach):
        other = identity.of_partition(part)
        for one in facts:
            if standings(broker, one, other):
                raise SinkError(
                    f"topic {one.name}: an earlier attempt stored rows of {other.task}, and this "
                    f"one has {parts} Spark partitions only, so rows came by in other tasks than "
                    "before and are stored twice. Repeat a write with as many Spark partitions as "
                    "it had at first (no other coalesce, repartition, or options of the source)"
                )
