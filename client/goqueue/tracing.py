"""Spans around your own work on messages; the library makes the others by itself."""

from goqueue.transport.spans import processing

__all__ = ["processing"]
