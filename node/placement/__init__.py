"""Where replicas are and who leads them: moves, drains, and regular maintenance.

Begin with `moves` (brings replicas to where they should be, where the cluster group is led) and
`steps` (single steps, as a partition's leader judges and makes them); `views` shows plans and
moves. `maintenance` is what a node does from time to time, `leadership_shedder` gives leaderships
away while the disk is in trouble.
"""
