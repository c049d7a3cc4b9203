"""Errors as a person at a terminal sees them: a text, a code, a hint, and a stable exit code.

Exit codes: 0 done, 1 error, 2 the command line is wrong, 3 not found, 4 timeout or unavailable
(the same command may succeed later), 130 interrupted.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from cli.output.terminal import write_marked
from goqueue.errors import GoQueueError

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_UNAVAILABLE = 4
EXIT_INTERRUPTED = 130

UNREACHABLE_HINT = (
    "is the cluster running? Start one with `goqueue-cli dev`, or name another with -s/--server"
)
TLS_HINT = "-s/--server names it with https:// where it speaks TLS, else with http://"
UNTRUSTED_HINT = "--ca-file PEM names the authorities to trust (env GOQUEUE_CA_FILE)"
HINTS = {
    "unknown_topic": "`goqueue-cli topic list` shows the topics; `topic create NAME` makes one",
    "unknown_partition": "`goqueue-cli topic describe NAME` shows the partitions",
    "topic_exists": "`goqueue-cli topic alter NAME` changes one; `topic describe NAME` shows it",
    "invalid_name": "names ending in `.dlq` are reserved",
    "no_quorum": "most replicas can't be reached: see `goqueue-cli cluster health`",
    "unavailable": "see `goqueue-cli cluster health`",
    "not_leader": "a leader is being elected; try again",
    "busy": "the node is overloaded; try again",
    "timeout": (
        "it may or may not have happened; see `goqueue-cli cluster health`; "
        "--timeout SECONDS waits longer"
    ),
    "outcome_unknown": "it may or may not have happened; look before you repeat it",
    "unknown_group": "`goqueue-cli group list` shows the groups; `group create NAME` makes one",
    "not_in_flight": "it was settled before, or the receipt is of another cluster",
    "receipt_expired": "receive it again; `consume --visibility 5m` and `extend` hold it longer",
    "invalid_receipt": "`goqueue-cli consume TOPIC --group G --no-ack` prints receipts",
    "group_active": (
        "`goqueue-cli group members NAME` shows them; it works when they have gone, or with --force"
    ),
    "unknown_member": "`goqueue-cli group members NAME` shows the members",
    "stale_generation": (
        "the message is delivered again, to who has the partition: see `group members NAME`"
    ),
    "group_halted": "`goqueue-cli group resume NAME` lets it go on; `dlq counts` says what failed",
    "too_many_in_flight": "settle some first, or raise it: `group set NAME --in-flight-max N`",
    "too_many_delayed": "`topic alter NAME --delayed-max N` raises the bound of a partition",
    "delay_too_long": "`topic alter NAME --delay-max 30d` raises the topic's bound",
    "already_due": "`goqueue-cli delayed get ID` says what became of it",
    "disk_full": "free space on the nodes, or lower a topic's retention",
    "unknown_broker": "`goqueue-cli cluster status` shows the brokers",
    "broker_gone": "what this node knows of the cluster is old: ask another one, with -s/--server",
    "too_few_brokers": "add a broker (`cluster add`), or lower the topics' replication factor",
    "broker_not_empty": "`goqueue-cli cluster drain NAME --wait` empties it",
    "unknown_reassignment": "`goqueue-cli cluster moves --all` shows them",
    "other_archive": "`goqueue-cli topic archive NAME -o wide` shows it; --replace takes its place",
    "overtaken": "look where the partitions are now, and plan again",
    "payload_too_large": "`topic alter NAME --max-message-bytes N` raises a topic's limit",
    "connection_failed": UNREACHABLE_HINT,
    "messages_missing": "--skip-damaged goes on with what follows, and tells what it left out",
    "certificate_required": "--cert-file and --key-file show one",
}


class CliError(Exception):
    """What the CLI itself refuses; `exit_code` is one of this module's constants."""

    def __init__(
        self, message: str, *, hint: str = "", exit_code: int = EXIT_ERROR, code: str = ""
    ) -> None:
        """`code`: what a cluster calls it, where the CLI says it in its place."""
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Report:
    """One failure, ready to print."""

    message: str
    code: str
    hint: str
    exit_code: int


def explain(error: BaseException) -> Report | None:
    """The report for an error of operation; None for a programmer's error."""
    if isinstance(error, CliError):
        return Report(error.message, error.code, error.hint, error.exit_code)
    if isinstance(error, GoQueueError):
        return Report(_text(error), error.code, _hint(error), _exit_code(error))
    if isinstance(error, TimeoutError):
        return Report("no answer in time", "timeout", HINTS["timeout"], EXIT_UNAVAILABLE)
    if isinstance(error, OSError):
        return Report(_os_text(error), "", "", EXIT_ERROR)
    return None


def print_report(report: Report) -> None:
    """`Error: text (code)` and `Hint: ...` on standard error."""
    code = f" ({report.code})" if report.code else ""
    write_marked(sys.stderr, ("Error: ", "bold red"), f"{report.message}{code}")
    if report.hint:
        write_marked(sys.stderr, ("Hint: ", "bold"), report.hint)


def _exit_code(error: GoQueueError) -> int:
    if error.http_status == 404:
        return EXIT_NOT_FOUND
    if error.retriable or error.http_status in (408, 502, 503, 504):
        return EXIT_UNAVAILABLE
    return EXIT_ERROR


def _text(error: GoQueueError) -> str:
    return getattr(error, "message", "") or str(error) or type(error).__name__


def _hint(error: GoQueueError) -> str:
    if error.code == "connection_failed":
        if "tls" in error.data:
            return TLS_HINT
        return UNREACHABLE_HINT if error.retriable else UNTRUSTED_HINT
    if error.outcome == "unknown":
        return HINTS["outcome_unknown"] if error.code != "timeout" else HINTS["timeout"]
    if error.code == "invalid_name" and "topic" not in error.message:
        return ""
    return HINTS.get(error.code, "")


def _os_text(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return where + (error.strerror or str(error))
