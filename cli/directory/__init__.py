"""`goqueue-cli local`: a queue in a directory, looked at and mended without a server.

Read `command`; `files` is what stands in the directory's files.
"""
