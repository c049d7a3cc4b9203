"""A node in a program's own process: the engine of `goqueue.open("./jobs")`.

All its floors run, with one voter and no listener, over the program's directory. `settings` is what
such a node is configured with; `engine` is its life, in a thread and a loop of its own, and how the
library asks it. It is a guest: see docs/adr/0025.
"""
