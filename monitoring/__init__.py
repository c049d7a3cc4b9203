"""Where the dashboards and rules in `deploy/grafana` and `deploy/prometheus` come from.

`goqueue-cli generate` renders them, for a copy in `deploy/` and for sites of their own. Read
`alerts`, then `dashboards`, whose panels name the alerts that watch the same figure. Nothing here
needs a node.
"""
