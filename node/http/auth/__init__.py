"""Who may do what: keys and sessions, roles and prefixes, and browsers sent here by other sites.

Read `policies` first, what each route asks for; then `authenticator`, which holds a request against
it. `scoped_broker` is the broker as one key reaches it, derived from the rules that its methods are
declared with (`node.api.rules`): no way of naming a topic gets around that. `csrf_guard` keeps web
pages from elsewhere away; `addresses` tells where a request comes from, and `failures` makes those
wait who guess keys.
"""
