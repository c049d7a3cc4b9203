"""How MessagePack and JSON of others fail to be read."""

from __future__ import annotations

from typing import Final

import msgspec

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec's decoders raise: a text that is not UTF-8 is no error of its own kind to them."""
