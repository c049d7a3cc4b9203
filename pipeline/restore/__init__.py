"""Restore: a range of an archive is published again, marked, at a bounded rate, each message once.

`plan` says what, `marks` how a message looks, `state` remembers a run, `target` stores rows at the
numbers that they have in the run, `run` does it all, `verbs` is the command line.
"""
