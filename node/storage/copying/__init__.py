"""Copies of whole replicas: for new replicas, and those that lag or are damaged.

Begin with `copies` (both ends as one part of a node). `transfer` decides what is copied here,
`pull` fetches one copy chunk by chunk, `source` serves chunks to others. `limits` has the sizes
and times, `pace` slows copies down while publishes wait for the disk.
"""
