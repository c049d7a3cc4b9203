"""Where is my message? Finds messages by what they carry or by state, and tells their stories."""

from __future__ import annotations

import argparse
import sys

from goqueue import Client, FoundMessage, GoQueueError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("--key")
    parser.add_argument("--message-id")
    parser.add_argument("--trace-id", help="of the traceparent that the message carries")
    parser.add_argument("--group", help="whose state is meant")
    parser.add_argument("--state", help="ready, in_flight, retrying, dead, ...")
    parser.add_argument("--limit", type=int, default=10)
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    options = parser.parse_args()

    try:
        with Client(options.server) as client:
            page = client.search(
                options.topic,
                key=options.key,
                message_id=options.message_id,
                trace_id=options.trace_id,
                group=options.group,
                state=options.state,
                limit=options.limit,
            )
            for message in page:
                tell(client, message)
    except GoQueueError as error:
        print(error.message, file=sys.stderr)
        return 1
    for missing in page.not_searched:
        print(f"{missing.topic}:{missing.partition}: {missing.reason}", file=sys.stderr)
    if page.next:
        print("there may be others", file=sys.stderr)
    return 0


def tell(client: Client, message: FoundMessage) -> None:
    states = ", ".join(f"{group}: {state}" for group, state in message.states.items())
    print(f"{message.id}  {message.status}  {states}".rstrip())
    for event in client.timeline(message.id):
        facts = " ".join(f"{name}={value}" for name, value in event.attributes.items())
        print(f"  {event.time.isoformat(timespec='milliseconds')}  {event.type}  {facts}".rstrip())


if __name__ == "__main__":
    sys.exit(main())
