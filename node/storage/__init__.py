"""This node's disk: threads that sync it, room and speed, and syncs over several nodes.

Begin with `flusher` (the threads that wait for the disk), `disk_pace` and `space_watch` (slow, or
nearly full), then `disks` (the same of all nodes). `sync` makes what was acked durable on a
majority. Above: `copying` (whole replicas from other nodes), and `repair` on top of that.
"""
