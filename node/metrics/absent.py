"""Metrics of GoQueue that have no meaning here, and those with other labels, with the reason."""

from __future__ import annotations

_TRANSACTIONS = "there are no transactions"
_SCHEMAS = "there is no schema registry"
_PUSHED = (
    "followers fetch nothing: leaders send. See goqueue_cluster_replication_lag, "
    "goqueue_cluster_bytes_replicated_total and goqueue_cluster_inter_broker_latency_seconds"
)

ABSENT = {
    "goqueue_broker_transactions_started_total": _TRANSACTIONS,
    "goqueue_broker_transactions_committed_total": _TRANSACTIONS,
    "goqueue_broker_transactions_aborted_total": _TRANSACTIONS,
    "goqueue_broker_transaction_latency_seconds": _TRANSACTIONS,
    "goqueue_broker_schema_validations_total": _SCHEMAS,
    "goqueue_broker_schema_validation_latency_seconds": _SCHEMAS,
    "goqueue_cluster_unclean_leader_elections_total": (
        "there are none: who is elected holds all that is committed"
    ),
    "goqueue_cluster_fetch_requests_total": _PUSHED,
    "goqueue_cluster_fetch_latency_seconds": _PUSHED,
    "goqueue_consumer_heartbeat_timeouts_total": (
        "a heartbeat has no time of its own: goqueue_consumer_session_timeouts_total counts "
        "members that were silent for their session timeout"
    ),
}
"""Name -> why."""

_SHARED_WAL = "without `topic`: all partitions of a node share one write-ahead log, and its syncs"

LABELS_DIFFER = {
    "goqueue_storage_fsync_total": _SHARED_WAL,
    "goqueue_storage_fsync_latency_seconds": _SHARED_WAL,
    "goqueue_storage_fsync_errors_total": _SHARED_WAL,
}
"""Name -> in what, and why."""
