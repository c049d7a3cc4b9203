"""`python -m tests.chaos --kills 100`: kill leaders under load, then judge what HTTP shows.

With `--nemesis kill,pause,power` (or `all`) and `--minutes 10` faults of these kinds, see
tests/chaos/storm; with `--each 200` until each was shown so often; with `--elastic 50` the
cluster grows and shrinks; `--clusters 4` does either on four clusters at once; `--ledger FILE` adds
a line of what it came to, `--sum FILE` tells what the lines add up to. With `--queue --minutes 2` a
leader is killed every 5 s while groups consume a queue. With `--groups --changes 100` consumers of
a group join, leave and are killed; with `--rolling` the brokers are restarted under such a group,
one by one. With `--transfers 100` nodes are stopped as planned until so many partitions were handed
over.

Exit status: 0 good, 1 a promise was broken, 2 the cluster did not come up or did not recover,
3 acks, or deliveries, resumed too slowly, 4 too little happened to tell.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.chaos import group_run, queue_run, report, transfers
from tests.chaos.cluster import Cluster, ClusterError
from tests.chaos.http import Http, NoAnswer
from tests.chaos.nemesis import Nemesis
from tests.chaos.publishers import Publisher
from tests.chaos.readers import Reader
from tests.chaos.storm import elastic, fleet, ledger
from tests.chaos.storm import run as storm_run
from tests.check.history import Event, History
from tests.check.logcheck import check

TOPIC = "chaos"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="of the choices made here")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--publishers", type=int, default=8)
    parser.add_argument(
        "--seconds-between", type=float, default=0.6, help="mean pause after health"
    )
    parser.add_argument("--seconds-down", type=float, default=2.0, help="mean time a node is down")
    parser.add_argument("--queue", action="store_true", help="kill under queue work, and judge it")
    parser.add_argument("--minutes", type=float, default=None, help="of faults")
    parser.add_argument("--groups", action="store_true", help="members of a group come and go")
    parser.add_argument("--changes", type=int, default=100, help="of the members of a group")
    parser.add_argument("--rolling", action="store_true", help="restart brokers under a group")
    parser.add_argument("--transfers", type=int, default=0, help="partitions to be handed over")
    parser.add_argument("--figures", type=Path, default=None, help="of --groups, written here")
    parser.add_argument("--folder", type=Path, default=None, help="keep data and history here")
    parser.add_argument("--sum", type=Path, default=None, metavar="FILE", help="of a ledger")
    storm_run.add_arguments(parser)
    return parser.parse_args()


async def create_topic(http: Http, cluster: Cluster, partitions: int) -> None:
    """The topic, with a replica on every node."""
    body = {
        "name": TOPIC,
        "num_partitions": partitions,
        "replication_factor": len(cluster.nodes),
    }
    said: object = None
    for _ in range(50):
        try:
            answer = await http.ask("POST", f"{cluster.nodes[0].url}/topics", json=body)
        except NoAnswer as error:
            raise ClusterError(f"no topic could be created: {error}") from None
        if answer.status in (200, 201, 409):
            return
        said = answer.body
        await asyncio.sleep(0.2)
    raise ClusterError(f"no topic could be created: {said}")


async def run(options: argparse.Namespace, folder: Path) -> int:
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    print(f"seed {seed}, folder {folder}", flush=True)
    cluster, http = Cluster(folder, options.nodes), Http()
    with History(folder / "history.jsonl") as history:
        nemesis = Nemesis(
            cluster,
            http,
            TOPIC,
            history,
            rng,
            down_s=(options.seconds_down * 0.7, options.seconds_down * 1.3),
            between_s=(options.seconds_between * 0.5, options.seconds_between * 1.5),
        )
        try:
            await cluster.start()
            await create_topic(http, cluster, options.partitions)
            await nemesis.wait_until_healthy()
            reader = Reader(cluster, http, TOPIC, history, rng)
            publishers = [
                Publisher(n, cluster, http, TOPIC, options.partitions, history, rng)
                for n in range(options.publishers)
            ]
            kills = await strike_under_load(nemesis, publishers, reader, options)
            await reader.read_everything()
        finally:
            await http.close()
            await cluster.stop()
        return conclude(history, nemesis, publishers, kills, options.kills)


async def strike_under_load(
    nemesis: Nemesis, publishers: list[Publisher], reader: Reader, options: argparse.Namespace
) -> int:
    """Strike until enough leaders were killed; how many. All workers have ended when it returns."""
    working: list[Publisher | Reader] = [*publishers, reader]
    kills = 0
    failure: ClusterError | None = None
    async with asyncio.TaskGroup() as tasks:
        for worker in working:
            tasks.create_task(worker.run())
        await asyncio.sleep(2)
        try:
            while kills < options.kills:
                hit = await nemesis.strike()
                kills += 1
                print(f"kill {kills}: {hit}, {progress(nemesis.history)}", flush=True)
        except ClusterError as error:
            failure = error
        for worker in working:
            worker.stop()
    if failure is not None:
        raise failure
    return kills


def progress(history: History) -> str:
    """The gaps of the last kill, and what was acked so far."""
    events = history.events
    at = max(n for n in range(max(0, len(events) - 50_000), len(events)) if is_kill(events[n]))
    gaps = [round(gap.seconds, 3) for gap in report.gaps(events[at:])]
    return f"gaps {gaps} s, {history.acked} acked"


def is_kill(event: Event) -> bool:
    return bool(event["type"] == "kill")


def conclude(
    history: History,
    nemesis: Nemesis,
    publishers: list[Publisher],
    kills: int,
    kills_wanted: int,
) -> int:
    started = time.monotonic()
    verdict, found = check(history), report.gaps(history)
    for line in report.lines(verdict, found, kills, nemesis.recoveries_s):
        print(line)
    errors: dict[str, int] = {}
    for publisher in publishers:
        for code, count in publisher.errors.items():
            errors[code] = errors.get(code, 0) + count
    print(f"errors seen           {dict(sorted(errors.items()))}")
    print(f"identities lost       {sum(p.identities_lost for p in publishers)}")
    print(f"checked in            {time.monotonic() - started:.1f} s")
    return report.exit_code(verdict, found, kills, kills_wanted)


def chosen(
    options: argparse.Namespace,
) -> Callable[[argparse.Namespace, Path], Coroutine[Any, Any, int]]:
    """What is to be run."""
    is_storm = options.elastic or options.nemesis is not None or options.each
    if is_storm and options.clusters > 1 and not options.part:
        return fleet.run
    if options.elastic:
        return elastic.run
    if options.nemesis is not None or options.each:
        return storm_run.run
    if options.transfers:
        return transfers.run
    if options.rolling:
        return group_run.roll
    if options.groups:
        return group_run.run
    return queue_run.run if options.queue else run


async def until_told(work: Coroutine[Any, Any, int]) -> int:
    """SIGTERM ends it as Ctrl-C does: with all that was made taken away."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work


def main() -> int:
    options = arguments()
    if options.sum is not None:
        return ledger.print_sum(options.sum, options.each, options.acked)
    folder: Path = options.folder or Path(tempfile.mkdtemp(prefix="goqueue-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        code = asyncio.run(until_told(chosen(options)(options, folder)))
    except ClusterError as error:
        print(f"the cluster failed: {error}\nits logs are in {folder}", file=sys.stderr)
        return 2
    except (asyncio.CancelledError, KeyboardInterrupt):
        print(f"interrupted; what was made is taken away, history and logs are in {folder}")
        return 130
    if code == 0 and options.folder is None:
        shutil.rmtree(folder)
    else:
        print(f"history and logs are kept in {folder}")
    return code


if __name__ == "__main__":
    sys.exit(main())
