"""Work that counts once, however often its task comes: PostgreSQL notes the message's id in the
transaction that does the work.

Books transfers to an account. Each third one fails after its transaction was committed, as a
worker that dies there would, and comes again; the account has each sum once.
"""

from __future__ import annotations

import argparse
import asyncio

import psycopg

from goqueue.tasks import Ended, Retry, Tasks, Worker, current

TABLES = """
CREATE TABLE IF NOT EXISTS account (id int PRIMARY KEY, balance int NOT NULL);
CREATE TABLE IF NOT EXISTS done (message_id text PRIMARY KEY);
"""


def once(connection: psycopg.Connection, message_id: str) -> bool:
    """Whether this message was not worked on before. Within a transaction: it is noted with what
    that does, or not at all; a second worker waits for the first one's end."""
    noted = connection.execute("INSERT INTO done VALUES (%s) ON CONFLICT DO NOTHING", (message_id,))
    return noted.rowcount == 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default=None, help="a folder, a server or a cluster")
    parser.add_argument("--dsn", default="", help="of the database, as libpq takes it")
    parser.add_argument("--count", type=int, default=12)
    given = parser.parse_args()
    app = Tasks(given.server, group="bank")

    @app.task(queue="transfers", retry=Retry(max_attempts=5, delay="10ms"))
    def book(account: int, amount: int) -> None:
        with psycopg.connect(given.dsn) as connection, connection.transaction():
            if once(connection, current().id):
                connection.execute(
                    "UPDATE account SET balance = balance + %s WHERE id = %s", (amount, account)
                )
        if amount % 3 == 0 and current().attempt == 1:
            raise RuntimeError("the worker fails after its transaction was committed")

    with psycopg.connect(given.dsn) as connection:
        connection.execute(TABLES)
        connection.execute("INSERT INTO account VALUES (1, 0) ON CONFLICT DO NOTHING")
    book.send_many([(1, amount) for amount in range(1, given.count + 1)])
    app.close()
    asyncio.run(work(app, given.count))
    with psycopg.connect(given.dsn) as connection:
        (balance,) = connection.execute("SELECT balance FROM account WHERE id = 1").fetchone() or (
            0,
        )
    print(f"balance {balance}, and {sum(range(given.count + 1))} was sent")


async def work(app: Tasks, count: int) -> None:
    """Runs tasks until so many are done."""
    outcomes: list[str] = []

    def note(ended: Ended) -> None:
        outcomes.append(ended.outcome)
        if outcomes.count("done") == count:
            worker.stop()

    worker = Worker(app, concurrency=4, ended=note)
    await worker.run_async()
    print(f"{count} done, {outcomes.count('retried')} of them again")


if __name__ == "__main__":
    main()
