"""The cluster in one process, on virtual time, from a seed: production code under faults."""
