"""Pages from templates. Every value is escaped by the engine; a page is made in slices of the loop.

The engine is loaded, and the templates compiled, in a thread at the first visit: a node that nobody
looks at pays nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from node.http.budget.slices import pause
from node.http.console import cells

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent / "templates"
SLICE_S = 0.001
"""Of making a page, before the loop does other things."""


class Templates:
    """The console's templates. `asset_url` tells where a page finds a file."""

    def __init__(self, asset_url: Callable[[str], str]) -> None:
        self._asset_url = asset_url
        self._loaded: Environment | None = None
        self._loading = asyncio.Lock()

    async def render(self, name: str, values: Mapping[str, Any]) -> str:
        """Raises what a template that is at fault raises: an unknown name is one."""
        if self._loaded is None:
            async with self._loading:
                if self._loaded is None:
                    self._loaded = await asyncio.to_thread(load, self._asset_url)
        chunks: list[str] = []
        began_s = time.perf_counter()
        for chunk in self._loaded.get_template(name).generate(values):
            chunks.append(chunk)
            if time.perf_counter() - began_s > SLICE_S:
                await pause()
                began_s = time.perf_counter()
        return "".join(chunks)


@cache
def load(asset_url: Callable[[str], str]) -> Environment:
    """The engine with every template compiled: once a process where `asset_url` is the same."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(cells.FILTERS)
    environment.globals.update(asset=asset_url, url=cells.url, **cells.FUNCTIONS)
    for path in FOLDER.glob("*.html"):
        environment.get_template(path.name)
    return environment
