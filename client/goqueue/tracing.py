"""Spans around your own work on messages; the library makes the others by itself."""

from goqueue.spans import processing

__all__ = ["processing"]
