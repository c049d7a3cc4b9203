"""A directory in place of servers: opened here, or asked of the process that has it open.

Read `directory` first, the channel: it opens the directory by the `engine`, which is no part of
this library, and serves other processes over a `unix_socket`, or asks there itself.
"""
