"""A long list, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Paged:
    """Where a page is: items `first` to `last`, counted from 1, of `total`; 0 to 0 of nothing."""

    page: int
    pages: int
    total: int
    size: int

    @property
    def begin(self) -> int:
        """As an index from 0."""
        return (self.page - 1) * self.size

    @property
    def first(self) -> int:
        return min(self.begin + 1, self.total)

    @property
    def last(self) -> int:
        return min(self.begin + self.size, self.total)


def paged(total: int, page: int, size: int) -> Paged:
    """The page, or the last one there is."""
    pages = max(1, -(-total // size))
    return Paged(min(page, pages), pages, total, size)


def page_of(items: Sequence[T], page: int, size: int) -> tuple[Sequence[T], Paged]:
    where = paged(len(items), page, size)
    return items[where.begin : where.begin + size], where
