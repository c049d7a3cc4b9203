"""How many Spark partitions earlier attempts had: known only when all tasks have ended.

Spark tells a Python task its number, and not how many there are; nor does it tell whoever plans the
write. So rows of tasks that this attempt does not have are looked for when it is committed. They
came by in other tasks this time, which could not know them for theirs. With the option
`sparkPartitions` every task looks for them before it writes anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.broker import Broker, TopicFacts
from pipeline.sink.errors import SinkError
from pipeline.sink.identity import Identity
from pipeline.sink.standing import standings

QUESTIONS_MAX = 1000
"""Of one commit, one for each partition of a topic and each Spark partition that is looked for."""
PARTS_MIN = 8
"""So many Spark partitions beyond those that there are, however many partitions topics have."""


def check_parts(
    broker: Broker, topics: Sequence[TopicFacts], identity: Identity, parts: int, *, too_late: bool
) -> None:
    """Raises SinkError where an attempt at the same write stored rows of a Spark partition that is
    none of these `parts`, as far as `QUESTIONS_MAX` reaches; GoQueueError. `too_late`: all rows
    have been written."""
    reach = max(PARTS_MIN, QUESTIONS_MAX // max(1, sum(one.partitions for one in topics)))
    for part in range(parts, parts + reach):
        other = identity.of_partition(part)
        for facts in topics:
            if standings(broker, facts, other):
                raise SinkError(
                    f"topic {facts.name}: an earlier attempt stored rows of {other.task}, and this "
                    f"one has {parts} Spark partitions only, so rows come by in other tasks than "
                    f"before{', and are stored twice' if too_late else ''}. Repeat a write with as "
                    "many Spark partitions as it had at first (the same coalesce, repartition, and "
                    "options of the source)"
                )


def check_told(parts: int, told: int | None) -> None:
    """Raises SinkError where `sparkPartitions` does not tell how many there were."""
    if told is not None and told != parts:
        raise SinkError(f"sparkPartitions: it tells {told}, and {parts} Spark partitions wrote")
