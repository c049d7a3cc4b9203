"""Who calls, what a key may do, and what is noted of each request.

Read `principal` first: an API key that was proved, with its role and prefixes. `key_verifier` and
`sessions` are how the front learns whose a request is, `keys` is how keys are made. `access` is one
request and its end, and `audit` what the audit log keeps of it; `hosts` reads addresses.
"""
