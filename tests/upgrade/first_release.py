"""Makes `first_release.tar.xz`: the data directories of three nodes of release 0.1.0.

    python -m tests.upgrade.first_release     needs the commit 3cb8046, the last one of 0.1.0

Something of everything that such a directory can hold: `content.json` in it says what, and
`test_first_release.py` looks for it. Made once: 0.1.0 does not change any more.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

from goqueue import BlockingReceived, Client
from tests.cluster.processes import ROOT, Cluster, eventually
from tests.upgrade.versions import Version

COMMIT = "3cb8046"
ARCHIVE = Path(__file__).parent / "first_release.tar.xz"
SETTINGS = ("storage.walFileBytes=1MiB", "storage.reserveBytes=1MiB", "storage.snapshotEntries=50")
LEFT_OUT = ("RESERVE", "LOCK")

TOPIC, COMPACTED, GROUP = "orders", "prices", "workers"
ACKED, DEAD, LEASED, DELAYED, MESSAGES = 20, 3, 5, 2, 60
LEASE_S = 60
"""Over by the time that anybody opens the directories: then these messages come again."""
CONTENT = "content.json"
FOR_EVER = {"retention_ms": -1, "retention_bytes": -1, "dead_retention_ms": -1}
TOPICS: dict[str, dict[str, object]] = {
    TOPIC: {"partitions": 2, "delay_max": "366d"},
    COMPACTED: {"partitions": 1, "cleanup": "compact"},
}
KEY, SCHEDULE, PRODUCER = "first-key", "nightly", "loader"


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        unpack(folder / "release")
        version = Version("0.1.0", (folder / "release", folder / "release" / "client"), 0)
        with Cluster(folder / "cluster", 3, SETTINGS) as cluster:
            for node in cluster.nodes:
                version.start(node)
            cluster.wait_until_ready(60)
            for name, settings in TOPICS.items():
                body = {"name": name, **settings, **FOR_EVER}
                assert cluster[0].ask("POST", "/v1/topics", body).status == 201
            with Client([node.url for node in cluster.nodes]) as client:
                told = fill(client)
            key = {"id": KEY, "role": "producer", "prefixes": [TOPIC]}
            assert cluster[0].ask("POST", "/v1/admin/keys", key).status == 201
            eventually("snapshots", lambda: len(list(folder.rglob("*.snapshot"))) > 6)
            for node in cluster.nodes:
                assert node.stop() == 0
            pack(cluster, told)
    print(f"{ARCHIVE.name}: {ARCHIVE.stat().st_size:,} bytes")


def unpack(folder: Path) -> None:
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", COMMIT]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


def fill(client: Client) -> dict[str, object]:
    """Something of everything; what it was, for whoever looks for it."""
    told: dict[str, object] = {}
    client.put_group(GROUP, max_attempts=5, visibility_timeout=f"{LEASE_S}s")
    for number in range(MESSAGES):
        client.publish(TOPIC, f"order {number}", key=f"k{number % 7}", message_id=f"id-{number}")
    for number in range(DELAYED):
        client.publish(TOPIC, f"later {number}", delay="366d")
    for key, value in (("a", "1"), ("b", "2"), ("a", "3")):
        client.publish(COMPACTED, value, key=key)
    told["acked"] = [_done(one) for one in client.receive(GROUP, TOPIC, limit=ACKED, wait="5s")]
    told["dead"] = [_rejected(one) for one in client.receive(GROUP, TOPIC, limit=DEAD, wait="5s")]
    leased = client.receive(GROUP, TOPIC, limit=LEASED, wait="5s")
    told["leased"] = [one.text for one in leased]
    told["producers"] = [client.init_producer(PRODUCER).producer_id for _ in range(2)]
    client.create_schedule(SCHEDULE, TOPIC, "count", cron="0 0 0 1 1 *", missed="skip")
    return told


def _done(message: BlockingReceived) -> str:
    message.ack()
    return message.text


def _rejected(message: BlockingReceived) -> str:
    message.reject("not an order")
    return message.text


def pack(cluster: Cluster, told: dict[str, object]) -> None:
    """One folder a node; what is made anew at each start is left out."""
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as files:
        content = json.dumps(told).encode()
        info = tarfile.TarInfo(CONTENT)
        info.size = len(content)
        files.addfile(_plain(info), io.BytesIO(content))
        for node in cluster.nodes:
            for path in sorted(node.data.rglob("*")):
                if path.is_file() and path.name not in LEFT_OUT:
                    files.add(path, f"{node.id}/{path.relative_to(node.data)}", filter=_plain)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode, info.mtime = 0o644, 0
    return info


if __name__ == "__main__":
    main()
