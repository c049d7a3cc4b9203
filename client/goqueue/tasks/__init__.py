"""Tasks: functions that workers call, elsewhere and later, on the queues of a directory, a server
or a cluster.

`Tasks` is an application's; its `task` makes a `Task` of a function. `Retry` and `Reject` say what
becomes of a message, `current` tells a task which one it runs for. `all_of`, `Call.then` and
`RESULT` join calls. `goqueue-cli worker MODULE:app` runs a `Worker`.

Read `app` first, then `task` (with `options` and `arguments`), `calls`, `steps` (what messages
carry), `sending`, `results`, `schedules`; `running` and `worker` are the other side, `eager` is
for tests.
"""

from goqueue.models.outcomes import Reject, Retry
from goqueue.tasks.app import Tasks
from goqueue.tasks.arguments import RESULT, BadArguments
from goqueue.tasks.calls import Call, Sent, all_of
from goqueue.tasks.eager import Eager
from goqueue.tasks.results import NoResult, TaskFailed
from goqueue.tasks.running import Current, current
from goqueue.tasks.task import Task
from goqueue.tasks.worker import Ended, Worker

__all__ = [
    "RESULT",
    "BadArguments",
    "Call",
    "Current",
    "Eager",
    "Ended",
    "NoResult",
    "Reject",
    "Retry",
    "Sent",
    "Task",
    "TaskFailed",
    "Tasks",
    "Worker",
    "all_of",
    "current",
]
