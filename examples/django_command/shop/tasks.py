"""The app's tasks. A worker has Django set up: models may be imported here."""

from __future__ import annotations

from goqueue.tasks import Retry, Tasks

app = Tasks(group="shop")


@app.task(queue="reminders", retry=Retry(max_attempts=5, backoff="10s"))
def remind(customer: int) -> None:
    print(f"customer {customer} was reminded", flush=True)
