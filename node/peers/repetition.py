"""What a node may send again by itself, after an answer was lost, and why that is harmless.

One row for each operation of a queue, each command of the cluster group and each request of the
peer link. `Forwarder` and `QueueCalls` act by it; a test holds it against what there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from coordinator.commands import codec as commands
from coordinator.commands import keys as key_commands
from coordinator.commands import members as member_commands
from coordinator.commands import placement as placement_commands
from coordinator.commands import queue as queue_commands
from coordinator.commands.codec import Command
from delivery.entries import ops as queue_ops
from delivery.entries.ops import Op
from goqueue.wire.errors import OutcomeUnknown

FORGOTTEN = "forgotten"
"""The name in an `OutcomeUnknown` error's data that says: another attempt would not learn it."""


class Repeats(Enum):
    """Whether an operation may be sent again, and by what a second time changes nothing."""

    READS = "it changes nothing"
    BY_REQUEST = "under its request id, which is remembered with the result"
    IDEMPOTENT = "it comes to the same when it happens twice, whatever happened in between"
    NEVER = "it would take back what others have done in between: the outcome is told as unknown"
    BY_CONTENTS = "as what it carries may be"
    BY_LEADER = "a leader makes it of what it knows, and nobody sends it"


Rows = Mapping[Repeats, Mapping[type, str]]

_QUEUE_OPS: Rows = {
    Repeats.BY_REQUEST: {
        queue_ops.Delivered: "the same messages are granted again while they are its own",
        queue_ops.DeliveredToStream: "as Delivered",
        queue_ops.Settled: "an extension would shorten a later one, the rest be answered 404",
        queue_ops.Committed: "it would undo a seek",
        queue_ops.Sought: "it would bring back what was settled since",
        queue_ops.Purged: "it would forget what has died since",
        queue_ops.Redriven: "it would count a redrive twice",
        queue_ops.Parked: "it would park a key that was released",
        queue_ops.Unparked: "it would release a key that was parked since",
        queue_ops.Resumed: "it would resume a group that was halted since",
    },
    Repeats.IDEMPOTENT: {
        queue_ops.OpenGroup: "an older version, or another group's of the name, changes nothing",
        queue_ops.DropGroup: "the group's id is never another one's",
        queue_ops.Cancelled: "a message that is cancelled stays so",
        queue_ops.Own: "an older generation, or the same, changes nothing",
        queue_ops.StreamsEnded: "a stream that is over is given nothing more",
        queue_ops.Archived: "a position that was passed changes nothing; `anew` is never repeated",
    },
    Repeats.BY_LEADER: {
        queue_ops.Configure: "the topic's settings, where the partition's differ",
        queue_ops.RequireArchive: "as Configure",
        queue_ops.Tick: "something is due",
        queue_ops.Expired: "leases that are over: each is named by its delivery",
        queue_ops.Halted: "kept for logs that hold it",
    },
}

_COMMANDS: Rows = {
    Repeats.BY_REQUEST: {
        queue_commands.StartRedrive: "it is answered with the job that it made",
        placement_commands.Reassign: "it is answered with the reassignment that it made",
        key_commands.CreateKey: "it is answered as it was",
        key_commands.RotateKey: "it is answered as it was",
    },
    Repeats.IDEMPOTENT: {
        commands.RegisterBroker: "a broker tells of itself, one call after the other",
        commands.CreateTopic: "a repeat says since when the name must not have come and gone",
        commands.DeleteTopic: "it names the topic's id",
        commands.AllocateProducer: "a producer id, or an epoch, too many costs nothing",
        queue_commands.DeleteGroup: "it names the group's id",
        queue_commands.AssignGroup: "it names the group's id, and the owner",
        queue_commands.DeleteSchedule: "it names the schedule's id",
        queue_commands.PlanRun: "it names the schedule's id, and moves no run that has begun",
        queue_commands.BeginRun: "it names the run",
        queue_commands.EndRun: "it names the run",
        queue_commands.RedriveStep: "it names the cursor that the job must be at",
        queue_commands.StopRedrive: "it names the job, and one that is over stays so",
        member_commands.JoinGroup: "it names the member; one that has left meanwhile is not heard "
        "of, and expires",
        member_commands.LeaveGroup: "a member's name is never another one's",
        member_commands.ExpireMembers: "as LeaveGroup",
        member_commands.LetGo: "only while the partition is the member's, or is to be",
        member_commands.HandOver: "it tells what a partition's log holds, by its generation",
        placement_commands.CancelReassignment: "it names the reassignment",
        placement_commands.RemoveBroker: "only of a drained broker, which does not come back",
        placement_commands.AddPartitions: "it names how many there are to be in all, and none goes",
        placement_commands.ReplicasChanged: "older tidings are left out, by their index",
        placement_commands.FinishLevel: "a level that is finished stays so",
        key_commands.RevokeKey: "one that is revoked stays so",
        key_commands.AddReceiptKey: "one that came later than another is left out",
        key_commands.EndSession: "one that is over stays so",
    },
    Repeats.NEVER: {
        commands.AlterTopic: "settings that another one has altered since",
        queue_commands.PutGroup: "as AlterTopic; one that only ensures that the group is there may",
        queue_commands.PutSchedule: "as AlterTopic",
        queue_commands.PauseSchedule: "as AlterTopic",
        placement_commands.SetReplicationFactor: "as AlterTopic",
        placement_commands.DrainBroker: "as AlterTopic",
        placement_commands.UndrainBroker: "as AlterTopic",
    },
}

METHODS: Mapping[str, Repeats] = {
    # publishing and reading
    "append": Repeats.BY_REQUEST,  # the producer's sequence, or the request id beside the batch
    "read": Repeats.READS,
    "offset_at": Repeats.READS,
    "ends": Repeats.READS,
    "trace": Repeats.READS,
    "sync": Repeats.IDEMPOTENT,  # what is synced stays so
    "entry": Repeats.READS,
    "search": Repeats.READS,
    "search_hashes": Repeats.READS,
    "events": Repeats.READS,
    "message_why": Repeats.READS,
    "archived": Repeats.BY_CONTENTS,  # not with `anew`
    "trim_settled": Repeats.IDEMPOTENT,  # what has gone is gone; what was settled since goes, too
    "compaction": Repeats.IDEMPOTENT,  # a run that finds nothing to take does nothing
    # the queue
    "queue_take": Repeats.BY_REQUEST,
    "queue_wait": Repeats.READS,
    "queue_leave": Repeats.IDEMPOTENT,  # it names a wait
    "queue_ops": Repeats.BY_CONTENTS,
    "queue_peek": Repeats.READS,
    "queue_dead": Repeats.READS,
    "queue_pending": Repeats.READS,
    "queue_delayed": Repeats.READS,
    "queue_figures": Repeats.READS,
    "group_lag": Repeats.READS,
    "groups_begun": Repeats.READS,
    "group_would_reset": Repeats.READS,
    # the cluster group and the members of groups
    "command": Repeats.BY_CONTENTS,
    "cluster_index": Repeats.READS,
    "admit": Repeats.IDEMPOTENT,  # as RegisterBroker
    "group_heard": Repeats.IDEMPOTENT,  # it tells that a member was heard of
    "group_silent": Repeats.READS,
    "group_in_flight": Repeats.READS,
    # replicas
    "move_seen": Repeats.READS,
    "move_step": Repeats.IDEMPOTENT,  # it names the configuration that it changes
    "move_told": Repeats.IDEMPOTENT,  # older tidings are left out
    "move_progress": Repeats.READS,
    "transfer_offer": Repeats.IDEMPOTENT,  # one that copies already goes on
    "transfer_open": Repeats.IDEMPOTENT,  # another session; the one before ends by its time
    "transfer_read": Repeats.READS,
    "transfer_close": Repeats.IDEMPOTENT,  # it names the session
    "scrub": Repeats.IDEMPOTENT,  # a pass that runs goes on
    "scrub_hashes": Repeats.READS,
    "scrub_diverged": Repeats.IDEMPOTENT,  # it names the range that differs
    "ping": Repeats.READS,
}
"""The peer link's requests."""

QUEUE_OPS = {op: how for how, rows in _QUEUE_OPS.items() for op in rows}
COMMANDS = {command: how for how, rows in _COMMANDS.items() for command in rows}


def may_repeat_method(method: str) -> bool:
    """Whether a request of the peer link may be sent again; not asked `BY_CONTENTS`."""
    how = METHODS[method]
    assert how is not Repeats.BY_CONTENTS, f"{method} may be repeated as its contents may"
    return how is not Repeats.NEVER


def may_repeat_command(command: Command) -> bool:
    """Whether a command whose outcome was lost may be sent again, unasked."""
    if isinstance(command, queue_commands.PutGroup):
        return command.ensure  # whoever uses the group makes it, if it is not there
    how = COMMANDS[type(command)]
    if how is Repeats.BY_REQUEST:
        return getattr(command, "request", 0) != 0
    return how is Repeats.IDEMPOTENT


def may_repeat_ops(ops: Iterable[Op]) -> bool:
    """Whether all of a queue's operations may be sent again; not without their request ids."""
    return all(
        getattr(op, "request", 0) != 0
        if QUEUE_OPS[type(op)] is Repeats.BY_REQUEST
        else QUEUE_OPS[type(op)] is Repeats.IDEMPOTENT
        for op in ops
    )


def is_remembered(op: Op) -> bool:
    """Whether an operation is known by a request id when it comes again."""
    return QUEUE_OPS[type(op)] is Repeats.BY_REQUEST


def forgotten() -> OutcomeUnknown:
    """Why a repeat is refused: whether the first attempt was applied is not known any more."""
    error = OutcomeUnknown(
        "an answer was lost, and by now the partition has forgotten whether the request was "
        "applied: look before it is made again"
    )
    error.data[FORGOTTEN] = True
    return error
