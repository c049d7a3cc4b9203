"""`manage.py remind CUSTOMER ...`: a task for each."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from shop.tasks import app, remind


class Command(BaseCommand):
    help = "Remind customers: a task for each."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("customers", type=int, nargs="+")

    def handle(self, *args: Any, **options: Any) -> None:
        sent = remind.send_many([(customer,) for customer in options["customers"]])
        app.close()
        self.stdout.write(f"{len(sent)} sent")
