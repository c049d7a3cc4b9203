"""Read a topic back: all of it, one partition from an offset, or a window of time."""

from __future__ import annotations

import argparse
import os
import sys

from goqueue import Client, GoQueueError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("--partition", type=int)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--from", dest="from_time", help="RFC 3339 or milliseconds since 1970")
    parser.add_argument(
        "--to", dest="to_time", help="the same; messages at or after it are not read"
    )
    parser.add_argument("--follow", action="store_true", help="wait for more")
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    options = parser.parse_args()

    count = 0
    try:
        with Client(options.server) as client:
            for message in client.messages(
                options.topic,
                options.partition,
                options.offset,
                from_time=options.from_time,
                to_time=options.to_time,
                follow=options.follow,
            ):
                when = message.time.isoformat(timespec="milliseconds")
                value = message.value.decode(errors="backslashreplace")
                print(f"{message.id}  {when}  {message.key_text or '-'}  {value}")
                count += 1
    except GoQueueError as error:
        print(error.message, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:  # whoever reads this has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    print(f"{count} messages", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
