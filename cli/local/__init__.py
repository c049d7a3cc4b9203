"""Commands about this machine: a cluster for development, the config file, generated dashboards.

Read `dev` (a cluster of real processes) with `layout` (its directory) and `processes`. `pod_stop`
is the preStop hook of a pod, `config` the named clusters in the config file, `generate` dashboards
and alert rules, `version` what is installed here and what answers there.
"""
