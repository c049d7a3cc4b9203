"""The smallest Django project with tasks: `manage.py remind` sends them, `manage.py work` runs
them. GOQUEUE_SERVER names the queue."""

from __future__ import annotations

import sys

from django.conf import settings
from django.core.management import execute_from_command_line

settings.configure(INSTALLED_APPS=["shop"], DATABASES={}, USE_TZ=True)

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
