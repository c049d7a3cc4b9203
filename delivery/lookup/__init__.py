"""Answers about messages as they are now.

`why` says why a message is not delivered or not settled, in the words of `verdict`.
`message_states` finds all messages in a state, `search_hashes` hashes what messages are looked up
by. They may be read in any order.
"""
