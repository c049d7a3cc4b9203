"""Messages that come later: in a while, at a time, again and again, or not after all."""

from __future__ import annotations

import argparse
import sys
import time

from goqueue import Client, GoQueueError

VALUES_DUE = {"reminder: pay the invoice", "it is time"}


def publish(client: Client, topic: str, delay_s: float) -> None:
    """Two messages to come, one that is cancelled, and a schedule."""
    reminder = client.publish(topic, "reminder: pay the invoice", delay=delay_s, priority="high")
    print(f"{reminder.id} comes in {delay_s:g} s")

    at_ms = time.time_ns() // 1_000_000 + int(delay_s * 1000)
    timed = client.publish(topic, "it is time", deliver_at=at_ms, ttl="1h")
    print(f"{timed.id} comes at {at_ms}, and not after an hour")

    regretted = client.publish(topic, "never mind", delay="1d")
    client.cancel_delayed(topic, regretted.partition, regretted.offset)
    print(f"{regretted.id} was cancelled")

    schedule = client.create_schedule("report", topic, "the morning report", cron="0 8 * * 1-5")
    print(f"report comes every working day, next {schedule.next_at}")

    for message in client.delayed(topic):
        print(f"waiting: {message.id} until {message.deliver_at}")


def receive(client: Client, topic: str, group: str, until_s: float) -> list[str]:
    """What came until nothing more is expected, or the time is up."""
    values: list[str] = []
    while not set(values) >= VALUES_DUE and time.monotonic() < until_s:
        for message in client.receive(group, topic, wait=1):
            took_s = time.time() - message.timestamp_ms / 1000
            print(f"received after {took_s:.1f} s: {message.text}")
            values.append(message.text)
            message.ack()
    return values


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("--group", default="reminders")
    parser.add_argument("--delay", type=float, default=3.0, metavar="SECONDS")
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    options = parser.parse_args()

    try:
        with Client(options.server) as client:
            publish(client, options.topic, options.delay)
            until_s = time.monotonic() + options.delay + 20
            values = receive(client, options.topic, options.group, until_s)
            client.delete_schedule("report")
    except GoQueueError as error:
        print(error.message, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0 if set(values) == VALUES_DUE else 1


if __name__ == "__main__":
    sys.exit(main())
