"""A node as a pod of a StatefulSet: found by others, labelled, scaled and stopped in order."""
