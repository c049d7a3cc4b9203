"""A node as a pod of a StatefulSet: found by others, labelled, scaled and stopped in order.

Begin with `api` (what is asked of Kubernetes) and `pod` (the service over all the rest):
`discovery` and `founding` at the start, `watching`, `scaling` and `face` while it runs,
`stopping` and `quorums` at the end.
"""
