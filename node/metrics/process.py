"""One process: HTTP, forwarding, the event loop, memory, and the metrics themselves."""

from __future__ import annotations

from node.metrics.declare import Declarations
from node.metrics.family import Distribution, Value
from node.metrics.meaning import Moves, Teller

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Methods shown by name; a client may invent others without end."""


class HttpMetrics:
    """What clients asked of this node, and what it asked of others for them."""

    def __init__(self, of: Declarations) -> None:
        front, http = Teller.FRONT, Moves.HTTP
        self.requests = of.counter(
            "goqueue_http_requests_total",
            "Answers of the HTTP front; a route is its template",
            ("method", "route", "status"),
            told=front,
            moves=http,
        )
        self.latency = of.histogram(
            "goqueue_http_request_seconds",
            "From a request's head to its answer, with the waiting it asked for",
            ("route",),
            told=front,
            moves=http,
        )
        self.in_flight = of.gauge(
            "goqueue_http_requests_in_flight",
            "Requests that are being answered; the one that asks is one",
            told=Teller.NODE,
            moves=http,
        )
        self.body_bytes = of.gauge(
            "goqueue_http_body_bytes",
            "Bytes of requests' bodies that are held",
            told=Teller.NODE,
            moves=Moves.LOADED,
        )
        self.forwarded = of.counter(
            "goqueue_forwarded_requests_total",
            "Requests sent on to a leader",
            ("method",),
            told=front,
            moves=Moves.CLUSTER,
        )
        self.forward_latency = of.histogram(
            "goqueue_forward_latency_seconds",
            "From sending a request on to its answer",
            told=front,
            moves=Moves.CLUSTER,
        )
        self.retried = of.counter(
            "goqueue_retried_requests_total",
            "Attempts repeated within a deadline",
            told=front,
            moves=Moves.FAILURE,
        )
        self._known: dict[tuple[str, str, int], tuple[Value, Distribution]] = {}

    def observe(
        self, method: str, route: str, status: int, seconds: float, trace_id: str = ""
    ) -> None:
        """One answer; `route` is the template. Series are kept at hand: labels cost a look-up."""
        key = (method if method in METHODS else "other", route, status)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = (
                self.requests.labels(key[0], route, str(status)),
                self.latency.labels(route),
            )
        known[0].inc()
        known[1].observe(seconds, trace_id)


class ProcessMetrics:
    """The process under the names that every Prometheus client uses, and its loop."""

    def __init__(self, of: Declarations) -> None:
        node, always = Teller.NODE, Moves.ALWAYS
        self.up = of.gauge("goqueue_up", "1 while the node serves", told=node, moves=always)
        self.build_info = of.gauge(
            "goqueue_build_info",
            "1, with what runs",
            ("version", "python_version"),
            told=node,
            moves=always,
        )
        self.loop_lag = of.histogram(
            "goqueue_loop_lag_seconds",
            "How late the event loop runs a timer",
            told=node,
            moves=always,
        )
        self.loop_lag_worst = of.gauge(
            "goqueue_loop_lag_worst_seconds",
            "The latest timer of the last ten seconds",
            told=node,
            moves=always,
        )
        self._declare_memory(of)
        self._declare_budgets(of)
        self._declare_looks(of)

    def _declare_budgets(self, of: Declarations) -> None:
        self.budget_used = of.gauge(
            "goqueue_memory_charged_bytes",
            "Memory that clients decide about and that is held, by what it is for",
            ("kind",),
            told=Teller.NODE,
            moves=Moves.LOADED,
        )
        self.budget_bound = of.gauge(
            "goqueue_memory_bound_bytes",
            "The most that the node holds of it",
            ("kind",),
            told=Teller.NODE,
            moves=Moves.ALWAYS,
        )
        self.budget_refused = of.counter(
            "goqueue_memory_refusals_total",
            "Requests refused for want of room, by the bound: connection, holder, share or node",
            ("kind", "bound"),
            told=Teller.FRONT,
            moves=Moves.LOADED,
        )

    def _declare_memory(self, of: Declarations) -> None:
        node, always = Teller.NODE, Moves.ALWAYS
        self.cpu_seconds = of.counter(
            "process_cpu_seconds_total",
            "CPU time of the process, user and system",
            told=node,
            moves=always,
        )
        self.resident_bytes = of.gauge(
            "process_resident_memory_bytes", "Resident memory", told=node, moves=always
        )
        self.virtual_bytes = of.gauge(
            "process_virtual_memory_bytes", "Virtual memory", told=node, moves=always
        )
        self.open_fds = of.gauge(
            "process_open_fds", "Open file descriptors", told=node, moves=always
        )
        self.max_fds = of.gauge(
            "process_max_fds", "The most file descriptors allowed", told=node, moves=always
        )
        self.start_time = of.gauge(
            "process_start_time_seconds",
            "When the process began, in Unix time",
            told=node,
            moves=always,
        )
        self.threads = of.gauge("process_threads", "Threads", told=node, moves=always)
        self.gc_collections = of.counter(
            "python_gc_collections_total",
            "Runs of the garbage collector",
            ("generation",),
            told=node,
            moves=always,
        )
        self.gc_collected = of.counter(
            "python_gc_objects_collected_total",
            "Objects that it freed",
            ("generation",),
            told=node,
            moves=Moves.LOADED,
        )

    def _declare_looks(self, of: Declarations) -> None:
        node, always = Teller.NODE, Moves.ALWAYS
        self.folded = of.counter(
            "goqueue_metrics_folded_total",
            "How often a metric had no series left for a topic, partition or group: counted "
            "under _other, or not shown",
            ("metric",),
            told=node,
            moves=Moves.LOADED,
        )
        self.series = of.gauge(
            "goqueue_metrics_series", "Series shown at the last look", told=node, moves=always
        )
        self.look_seconds = of.histogram(
            "goqueue_metrics_look_seconds",
            "Gathering and writing all metrics for one look, in slices of the loop's time",
            told=node,
            moves=always,
        )
        self.slice_worst = of.gauge(
            "goqueue_metrics_slice_worst_seconds",
            "The longest that the last look kept the loop at a time",
            told=node,
            moves=always,
        )
