"""Stands in for `serve` in the tests of `dev`: takes its flags, answers /readyz, writes its pid."""

from __future__ import annotations

import argparse
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--node-id", "--data", "--http", "--pid-file"):
        parser.add_argument(name)
    given, _ = parser.parse_known_args()
    data = Path(given.data)
    data.mkdir(parents=True, exist_ok=True)
    (data / "kept").touch()
    if (data / "broken").exists():
        print("2025-01-15T10:30:00Z [error    ] the data is damaged", flush=True)
        sys.exit(1)
    Path(given.pid_file).write_text(str(os.getpid()))
    host, _, port = given.http.rpartition(":")
    HTTPServer((host, int(port)), Ready).serve_forever()


if __name__ == "__main__":
    main()
