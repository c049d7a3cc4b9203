"""Every fault that this machine can make, on real processes, under load."""
