"""How seeds are run: which kind of cluster, which faults, which planted bug."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.sim.faults import Fault
from tests.sim.mutants import MUTANTS
from tests.sim.world import FAULTS, Verdict, World


@dataclass(frozen=True)
class Setup:
    """Everything that a run depends on but its seed."""

    mutant: str = ""
    faults: int = FAULTS
    kind: str | None = None
    nemesis: tuple[str, ...] = ()
    only: tuple[int, ...] | None = None
    """Of the faults of the plan, those that strike, by their numbers; else all."""

    @classmethod
    def hunting(cls, mutant: str, *, faults: int = FAULTS) -> Setup:
        """Where a planted bug is looked for."""
        planted = MUTANTS[mutant]
        return cls(mutant, faults, planted.kind, planted.nemesis)

    def world(self, seed: int, *, keep_trace: bool = False) -> World:
        """The cluster of this seed, before its run."""
        world = World(
            seed,
            mutant=MUTANTS.get(self.mutant),
            faults=self.faults,
            keep_trace=keep_trace,
            kind=self.kind,
            nemesis=self.nemesis,
        )
        if self.only is not None:
            world.plan = [fault for at, fault in enumerate(world.plan) if at in self.only]
        return world

    def run(self, seed: int) -> Verdict:
        """One seed, from its beginning to its end."""
        return self.world(seed).run()

    def sound(self) -> Setup:
        """The same without a planted bug."""
        return replace(self, mutant="")

    def shows_the_bug(self, verdict: Verdict) -> bool:
        """Whether the planted bug was found: without it this seed violates nothing."""
        return bool(verdict.violations) and not self.sound().run(verdict.seed).violations

    def having(self, plan: list[Fault], whole: list[Fault]) -> Setup:
        """The same with a part of a plan."""
        return replace(self, only=tuple(at for at, fault in enumerate(whole) if fault in plan))

    def command(self, seed: int) -> str:
        """What runs this seed again."""
        words = [f"python -m tests.sim --seeds {seed}:{seed + 1}"]
        if self.faults != FAULTS:
            words.append(f"--faults {self.faults}")
        if self.kind is not None:
            words.append(f"--kind {self.kind}")
        if self.nemesis:
            words.append(f"--nemesis {','.join(self.nemesis)}")
        if self.mutant:
            words.append(f"--mutant {self.mutant}")
        if self.only is not None:
            words.append(f"--only {','.join(map(str, self.only)) or 'none'}")
        return " ".join(words)
