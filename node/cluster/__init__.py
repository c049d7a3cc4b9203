"""The cluster group on this node: the state that all nodes share, and who belongs to it.

Begin with `host` (ClusterHost: the group's state machine and its commands). `membership` follows,
with `hello` (what nodes tell each other), `admission` (nodes that ask to be let in) and `voters`
(who takes part in the group). `newest_state` and `changes` tell of the state, `topic_finder` and
`topic_defaults` of topics, `tenant_quotas` of what one tenant may hold.
"""
