"""A planted bug: one attribute of the program is replaced before any test is imported."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Plant:
    """`where` is `module:name` or `module:Class.name`; what stands there is given to `faulty`,
    which makes what is to stand there instead. `test` is the id of a test that must fail then."""

    name: str
    where: str
    faulty: Callable[[Any], Any]
    test: str

    def place(self) -> tuple[Any, str]:
        """What has the attribute, and its name. Raises AttributeError where nothing has it."""
        module, _, path = self.where.partition(":")
        owner: Any = importlib.import_module(module)
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        if vars(owner).get(name) is None:
            raise AttributeError(f"{self.where} is nowhere")
        return owner, name

    def apply(self) -> None:
        """Plant it, in this process, for good. Raises AttributeError as `place` does."""
        owner, name = self.place()
        setattr(owner, name, self.faulty(vars(owner)[name]))


def nothing(_original: object) -> Callable[..., None]:
    """What does nothing, and answers None."""
    return lambda *_args, **_named: None


def always(answer: object) -> Callable[[object], Callable[..., object]]:
    """What has one answer for all."""
    return lambda _original: lambda *_args, **_named: answer
