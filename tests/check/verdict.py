"""What every judge of a history answers: the broken promises, rule by rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SHOWN_MAX = 10


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    rule: str
    text: str


@dataclass
class Findings:
    """What was broken."""

    violations: list[Violation]

    @property
    def is_clean(self) -> bool:
        return not self.violations

    def rules(self) -> set[str]:
        return {violation.rule for violation in self.violations}

    def lines_of(self, rules: Iterable[str]) -> Iterator[str]:
        """At most ten violations of each rule, in this order, and how many more."""
        for rule in rules:
            found = [v for v in self.violations if v.rule == rule]
            yield from (f"{v.rule}: {v.text}" for v in found[:SHOWN_MAX])
            if len(found) > SHOWN_MAX:
                yield f"{rule}: and {len(found) - SHOWN_MAX} more"
