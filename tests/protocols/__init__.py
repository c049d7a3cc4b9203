"""Clients that others wrote, of the protocols beside HTTP, and a ledger of what they were told.

`client` has what all of them do: publish lines at a node, and consume as one of a group. `ledger`
counts, and judges what a topic and a group have in the end. One file for each client.
"""
