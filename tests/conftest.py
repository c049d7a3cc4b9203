"""What all tests share: properties are not timed, as the machine they run on is shared."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")
