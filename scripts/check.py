"""`make check`: lint, types and the tests of what changed, in about two minutes on two cores.

Changed is what is not committed, and each commit since the merge base with origin/main (else main,
else only what is not committed; `--base REV` names another). `scripts/changed_tests.py` says which
tests belong to it. Lint and types run beside the tests; each kind runs, whichever fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from changed_tests import Plan, importers, plan

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
PYRIGHT = ("client/goqueue", "log", "raft", "delivery", "coordinator", "node", "cli", "monitoring")
"""What basedpyright reads of this tree, as pyproject.toml has it. It keeps no cache: here it reads
what changed and what imports that, and mypy all."""
PYRIGHT_FILES_MAX = 150
REASONS_MAX = 20


def main(base: str) -> int:
    try:
        since, changed = changes(base)
        listed = git("ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", "*.py")
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"can't tell what changed: {getattr(error, 'stderr', '') or error}", file=sys.stderr)
        return 2
    files = [path for path in listed.split("\0") if path and (ROOT / path).is_file()]
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path in files}
    chosen, types = plan(changed, sources), typed(changed, sources)
    tell(since, changed, chosen, types)
    os.environ.setdefault("PYTHONHASHSEED", "0")
    # this tree is judged, also where the tools are installed beside another one
    path = [str(ROOT), str(ROOT / "client"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    with ThreadPoolExecutor(max_workers=2) as pool:
        kinds = commands(chosen.tests, types).items()
        running = {pool.submit(run, kind, lines): kind for kind, lines in kinds}
        try:
            failed = sorted(running[one] for one in as_completed(running) if not one.result())
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            return 130
    print(f"check: {' and '.join(failed)} failed" if failed else "check: passed")
    return 1 if failed else 0


def changes(base: str) -> tuple[str, list[str]]:
    """The commit to compare with, and the paths that differ from it or are new. Raises
    CalledProcessError where `base` is no revision, and outside of a repository."""
    since = "HEAD"
    for branch in [base] if base else ["origin/main", "main"]:
        try:
            since = git("merge-base", "HEAD", branch).strip()
            break
        except subprocess.CalledProcessError:
            if base:
                raise
    differing = git("diff", "--name-only", "--no-renames", "-z", since)
    new = git("ls-files", "--others", "--exclude-standard", "-z")
    return since, sorted({path for path in (differing + new).split("\0") if path})


def git(*words: str) -> str:
    """What it prints. Raises CalledProcessError."""
    told = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return told.stdout


def typed(changed: Iterable[str], sources: Mapping[str, str]) -> list[str]:
    """What basedpyright reads: changed modules and those that import them, or all packages."""
    ours = [path for path in sources if path.startswith(tuple(f"{p}/" for p in PYRIGHT))]
    found = {path for path in changed if path in ours}
    found |= {other for path in changed for other in importers(path, ours, sources)}
    return sorted(found) if len(found) <= PYRIGHT_FILES_MAX else list(PYRIGHT)


def tell(since: str, changed: list[str], chosen: Plan, types: list[str]) -> None:
    print(f"{len(changed)} paths changed since {since[:12]}; {len(chosen.tests)} test files:")
    reasons = Counter(chosen.tests.values()).most_common()
    for why, many in reasons[:REASONS_MAX]:
        print(f"  {many:3} {why}")
    if rest := reasons[REASONS_MAX:]:
        print(f"  {sum(many for _, many in rest):3} for {len(rest)} other reasons")
    print(f"ruff, lint-imports and mypy: all; basedpyright: {len(types)} modules or packages")
    for line in chosen.left_out:
        print(f"left out: {line}")
    sys.stdout.flush()


def commands(tests: Iterable[str], types: list[str]) -> dict[str, list[list[str]]]:
    """What each kind of check runs; the longest first."""
    pytest = ["python", "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]
    return {
        "tests": [[*pytest, "--durations=10", "--durations-min=1", *sorted(tests)]],
        "lint": [["ruff", "format", "--check", "."], ["ruff", "check", "."], ["lint-imports"]],
        "types": [["mypy"], *([["basedpyright", *types]] if types else [])],
    }


def run(kind: str, lines: list[list[str]], folder: Path = BIN) -> bool:
    """Whether all went well. Prints at once when it is done: what failed, and the tests' lines."""
    began, told, well = time.monotonic(), "", True
    for program, *words in lines:
        try:
            done = subprocess.run(
                [str(folder / program), *words],
                cwd=ROOT,
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        except FileNotFoundError:
            told, well = told + f"no {program} in {folder}: make setup-dev\n", False
            continue
        if done.returncode or kind == "tests":
            told += done.stdout
        well = well and done.returncode == 0
    result = "passed" if well else "FAILED"
    print(f"{told}{kind}: {result} in {time.monotonic() - began:.0f} s", flush=True)
    return well


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", default="", help="compare with the merge base with this revision")
    sys.exit(main(parser.parse_args().base))
