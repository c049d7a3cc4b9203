"""`manage.py work`: a worker of the app's tasks, until SIGTERM."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import close_old_connections

from goqueue.tasks import Ended, Worker
from shop.tasks import app


class Command(BaseCommand):
    help = "Run the tasks of the shop."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--concurrency", type=int, default=16)

    def handle(self, *args: Any, **options: Any) -> None:
        Worker(app, concurrency=options["concurrency"], ended=self.note).run()

    def note(self, ended: Ended) -> None:
        """A line a task; connections that the database has closed are not kept."""
        close_old_connections()
        self.stdout.write(ended.line())
        self.stdout.flush()
