"""Requests and answers as text: JSON, the names of fields, paths, and errors.

Read `json` first, with `known_fields`, the base of every body. `elements` finds the elements of a
large array without decoding it, `pieces` encodes a large answer a slice at a time. `router` finds
a path in a table of routes; `errors` is the one shape in which anything is refused.
"""
