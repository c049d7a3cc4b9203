"""What a node says of itself: views, readiness, spans, and figures gathered at each look.

Begin with `status` (and `replay_watch`, whether a node that starts is ready); `node_metrics`
lists who is asked at a look: `cluster_metrics`, `replica_metrics` with `lag_metrics` and
`log_metrics`, `link_metrics`, `process_metrics`. `otel` exports spans. What parts count as they
work is set by themselves; the declarations are in `node.metrics`.
"""
