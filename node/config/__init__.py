"""A node's configuration, read once and checked before anything starts.

Begin with `option` (how one option is declared) and `node` (NodeConfig, all parts together); each
further module declares the options of one part. `file` loads them from YAML, the environment and
flags, and reports all problems at once; `pod_names` fills in what a StatefulSet's pod knows. What
is looked at before a node listens or founds a cluster: `free_ports`, `open_listener` and
`secret_checks`.
"""
