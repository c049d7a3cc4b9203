"""A FastAPI service that answers at once and leaves the work to a task.

GOQUEUE_SERVER names the queue: a folder, a server or a cluster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from goqueue.tasks import Retry, Tasks, current

tasks = Tasks()


class Order(BaseModel):
    number: int
    address: str


@tasks.task(
    queue="orders",
    retry=Retry(max_attempts=5, backoff="1s"),
    dedup_id=lambda order: str(order.number),
)
async def confirm(order: Order) -> None:
    """Sends the confirmation; the same order is not sent twice."""
    print(f"order {order.number}: confirmed to {order.address} ({current().id})", flush=True)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    tasks.close()


api = FastAPI(lifespan=lifespan)


@api.post("/orders", status_code=202)
async def accept(order: Order) -> dict[str, str]:
    """On disk when it is answered, whatever becomes of this process."""
    sent = await confirm.send_async(order)
    if sent.duplicate:
        raise HTTPException(409, f"order {order.number} was accepted before")
    return {"task": sent.id}
