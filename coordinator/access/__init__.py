"""Who may come in, and by which secrets: none of them is stored, only digests are.

Read `api_keys` first, with `sessions` of the console that were ended early. `receipt_keys` are the
cluster's own keys, by which its nodes vouch for receipts.
"""
