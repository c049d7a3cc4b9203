"""The front itself: it serves a table of routes.

Read `routes` first: every operation, with its handler and types; `openapi` is that table as a
document. `app` accepts, routes and answers requests, whatever happens on the way; `local` makes
those of this process.
"""
