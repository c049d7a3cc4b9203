"""A broker inside the tests: a real node on a disk in memory, on time that tests move.

`Broker` is the way in; with pytest there are the fixtures of `plugin`. It needs the server
(`pip install "goqueue[local]"`), of which nothing is imported before a broker is opened.

Read `broker` first; `checks` says what became of messages. `traffic` stands between clients and the
node, and fails what tests want to fail; a `channel` asks it in memory, a `listener` for those who
come by HTTP. `engine` is what the server's distribution gives.
"""

from __future__ import annotations

from goqueue.testing.broker import Broker, Clock, NotIdle

__all__ = ["Broker", "Clock", "NotIdle"]
