"""Publish every line of a file: `{"key": ..., "value": ...}` or any text, one message a line."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator

import msgspec

from goqueue import Client, GoQueueError, OutgoingMessage, PublishFailed

CHUNK_MESSAGES = 1000


class Line(msgspec.Struct):
    """The form of examples/orders.jsonl; `value` keeps the bytes it has in the file."""

    value: msgspec.Raw
    key: str | None = None


def messages(path: str) -> Iterator[OutgoingMessage]:
    with open(path, "rb") as file:
        for line in file:
            text = line.rstrip(b"\r\n")
            try:
                parsed = msgspec.json.decode(text, type=Line)
            except msgspec.DecodeError:
                yield OutgoingMessage(text)
            else:
                yield OutgoingMessage(bytes(parsed.value), key=parsed.key)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("file")
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    options = parser.parse_args()

    rows = list(messages(options.file))
    partitions: Counter[int] = Counter()
    try:
        with Client(options.server, compression="zstd") as client:
            for start in range(0, len(rows), CHUNK_MESSAGES):
                for result in client.publish_many(
                    options.topic, rows[start : start + CHUNK_MESSAGES]
                ):
                    partitions[result.partition] += 1
    except PublishFailed as failed:
        for number, outcome in enumerate(failed.results):
            if isinstance(outcome, GoQueueError):
                print(f"message {number}: {outcome.message}", file=sys.stderr)
        return 1
    except GoQueueError as error:
        print(f"{error.message} (outcome: {error.outcome})", file=sys.stderr)
        return 1
    spread = ", ".join(f"{count} to partition {p}" for p, count in sorted(partitions.items()))
    print(f"{partitions.total()} messages published: {spread}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
