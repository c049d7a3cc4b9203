"""Imported as the last one by the process that nodes are forked from: what is there by then is not
looked through for garbage again by each of them."""

from __future__ import annotations

import gc

gc.collect()
gc.freeze()
