"""The web console at `/ui`: pages made on the server from the broker's answers, served by any node.

Nothing is built, nothing is fetched from elsewhere, and nothing but dead letters can be changed.
"""
