"""Memory that is freed goes back to the system.

glibc gives a large buffer a mapping of its own, and unmaps it when it is freed; but each such
buffer raises the size from which it does so, up to 32 MiB (mallopt(3), M_MMAP_THRESHOLD). Later
buffers of some MiB then lie in the heap among what stays, and the heap keeps what they took: after
a flood of large bodies a node kept 270 MiB that it did not use. A size that is set is not raised.
"""

from __future__ import annotations

import ctypes

MAPPED_BYTES_MIN = 1024 * 1024
"""A buffer of so much has a mapping of its own: bodies and pages of some MiB do, batches don't."""
TOP_BYTES_MAX = 1024 * 1024
"""What may be free at the heap's end before it is given back."""
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def give_back() -> bool:
    """For this process, from now on. False where the C library is not glibc: nothing is done."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) and mallopt(_M_TRIM_THRESHOLD, TOP_BYTES_MAX)
    )
