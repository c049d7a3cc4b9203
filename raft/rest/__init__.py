"""Groups that have nothing to say: no beats and no timers, as long as their nodes are heard.

`replica` is one replica's rest: when its leader may begin it, and when a follower takes part.
`beats` is what a node keeps of all that rest: one beat between two nodes stands for them, tells who
went to rest and who was roused, and finds out where the two do not agree. `raft.host` owns it.
`handle` is a group's place in its host, which is what `beats` sees of a group.
"""
