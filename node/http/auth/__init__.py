"""Who may do what: keys and sessions, roles and prefixes, and browsers sent here by other sites.

Read `policies` first, what each route asks for; then `authenticator`, which holds a request against
it. `scoped_broker`, with `scope`, `scoped_groups` and `admins_broker`, is the broker as one key
reaches it: no way of naming a topic gets around that. `csrf_guard` keeps web pages from elsewhere
away; `addresses` tells where a request comes from, and `failures` makes those wait who guess keys.
"""
