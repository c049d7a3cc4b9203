"""A mistyped option is refused by name, when it runs and when it is type-checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from goqueue import AsyncClient, Client, Consumer
from goqueue.api.options import ClientOptions, ClientSettings
from goqueue.errors import BadRequest
from goqueue.models.options import (
    ConsumerOptions,
    ConsumerSettings,
    ProducerOptions,
    ProducerSettings,
)

ROOT = Path(__file__).parents[4]
NOBODY = "http://127.0.0.1:1"
USED = """
from goqueue import AsyncClient, AsyncConsumer, Client, Consumer, OutgoingMessage, Producer, Settle
from goqueue.tasks import Retry, Tasks

async def work(client: AsyncClient) -> None:
    await client.create_topic("orders", {topic})
    await client.alter_topic("orders", {topic})
    client.producer({producer})
    Producer(client, {producer})
    AsyncConsumer(client, "g", "orders", {consumer})
    AsyncClient("http://127.0.0.1:8080", {client})
    await client.admin.drain_broker("node-1", {admin})
    await client.publish("orders", "x", priority={priority})
    OutgoingMessage("x", priority={priority})
    await client.put_group("g", {group})
    await client.put_group("g", ordering={ordering})
    await client.put_group("g", assignor={assignor})
    await client.create_schedule("s", "orders", "x", every="1h", missed={missed})
    Settle("r", {action})
    for message in await client.receive("g", "orders"):
        await message.nack("busy", position={position})

def block(client: Client) -> None:
    client.alter_topic("orders", {topic})
    client.producer({producer})
    client.publish("orders", "x", priority={priority})
    Consumer(client, "g", "orders", {consumer})
    Client("http://127.0.0.1:8080", {client})
    client.admin.drain_broker("node-1", {admin})
    client.put_group("g", {group})

app = Tasks()

@app.task({task})
def other() -> None: ...

@app.task(keep_result="1h")
def mail(address: str) -> int:
    return 1

@app.task(priority={priority})
def another() -> None: ...

@app.task
async def later(address: str) -> str:
    return address

@app.task
def plain(number: int) -> None: ...

async def send() -> None:
    mail.send({argument})
    await later.send_async({argument})
    mail.call("a").send({send})
    mail.send_after({delay}, "a")
    plain.every("1h", 1, {every})
    one: int = mail("a")
    two: int = mail.send("a").result()
    three: str = await later("a")
    four: str = await (await later.send_async("a")).result_async()
    text: {result} = mail.send("a").result()  # result
    Retry({retry})
"""


async def test_alter_topic_names_the_setting_that_was_meant() -> None:
    async with AsyncClient(NOBODY) as client:
        with pytest.raises(TypeError, match=r"'retension_bytes'.*did you mean 'retention_bytes'"):
            await client.alter_topic("orders", retension_bytes=5)  # type: ignore[call-arg]
    with Client(NOBODY) as blocking, pytest.raises(TypeError, match="retention_bytes"):
        blocking.alter_topic("orders", retension_bytes=5)  # type: ignore[call-arg]


async def test_a_producer_names_the_option_that_was_meant() -> None:
    async with AsyncClient(NOBODY) as client:
        with pytest.raises(TypeError, match=r"'linger'.*did you mean 'linger_ms'"):
            client.producer(linger=5)  # type: ignore[call-arg]
    with Client(NOBODY) as blocking, pytest.raises(TypeError, match="linger_ms"):
        blocking.producer(linger=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", [AsyncClient, Client])
def test_a_client_names_the_option_that_was_meant(kind: type) -> None:
    with pytest.raises(TypeError, match=r"'timeout'.*did you mean 'timeout_s'"):
        kind(NOBODY, timeout=5)


def test_a_consumer_names_the_option_that_was_meant() -> None:
    meant = pytest.raises(TypeError, match=r"'prefech'.*did you mean 'prefetch'")
    with Client(NOBODY) as client, meant:
        Consumer(client, "g", "orders", prefech=3)  # type: ignore[call-arg]


async def test_a_priority_that_is_none_is_refused() -> None:
    async with AsyncClient(NOBODY) as client, client.producer() as producer:
        with pytest.raises(BadRequest, match="want one of critical, high"):
            await producer.send("orders", "x", priority="urgent")  # type: ignore[arg-type]
        with pytest.raises(BadRequest, match="did you mean 'high'"):
            await producer.send("orders", "x", priority="hihg")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (ClientOptions, ClientSettings),
        (ProducerOptions, ProducerSettings),
        (ConsumerOptions, ConsumerSettings),
    ],
)
def test_every_option_has_a_default_of_its_type(options: type, settings: type) -> None:
    assert get_type_hints(options) == get_type_hints(settings)


def test_mypy_finds_mistyped_options(tmp_path: Path) -> None:
    """In a process of its own: what mypy keeps would slow each later collection of garbage here."""
    good = USED.format(
        topic="retention_bytes=5",
        producer="linger_ms=5",
        consumer="prefetch=3",
        priority='"high"',
        client="timeout_s=5",
        admin="throttle_bytes_s=5",
        group="max_attempts=5",
        ordering='"key"',
        assignor='"range"',
        missed='"skip"',
        action='"reject"',
        position='"back"',
        task='keep_result="1h"',
        argument='"a"',
        send='delay="1h"',
        delay='"1h"',
        every='missed="all"',
        result="int",
        retry="max_attempts=3",
    )
    bad = USED.format(
        topic="retension_bytes=5",
        producer="linger=5",
        consumer="prefech=3",
        priority='"urgent"',
        client="timout_s=5",
        admin="throttle=5",
        group="max_attemps=5",
        ordering='"by key"',
        assignor='"ranged"',
        missed='"never"',
        action='"drop"',
        position='"middle"',
        task='keepresult="1h"',
        argument="1234",
        send='dealy="1h"',
        delay="[60]",
        every='misssed="all"',
        result="bytes",
        retry="max_atempts=3",
    )
    (tmp_path / "good.py").write_text(good)
    (tmp_path / "bad.py").write_text(bad)
    files = [str(tmp_path / "good.py"), str(tmp_path / "bad.py")]
    options = ["--config-file=", "--follow-imports=silent", "--cache-dir=/dev/null"]

    told = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        env={**os.environ, "MYPYPATH": str(ROOT / "client")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert not told.stderr
    typos = ("retension", "linger", "prefech", "urgent", "timout_s", "throttle", "max_attemps")
    typos += ("by key", "ranged", "never", "drop", "middle", "keepresult", "1234", "dealy")
    typos += ("[60]", "misssed", "text: bytes", "max_atempts")
    errors = [line for line in told.stdout.splitlines() if ": error:" in line]
    wrong = [
        number
        for number, line in enumerate(bad.splitlines(), 1)
        if any(typo in line for typo in typos)
    ]
    found = {int(line.partition("bad.py:")[2].partition(":")[0]) for line in errors}
    assert all("bad.py" in line for line in errors), told.stdout
    assert found == set(wrong)
