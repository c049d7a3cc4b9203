"""The HTTP front: routes, bodies, limits and errors over a `Broker`; knows nothing of disks."""
