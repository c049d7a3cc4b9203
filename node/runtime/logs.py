"""How a node's words reach its standard error: lines for people, JSON for machines."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import EventDict

from node.config.node import LoggingConfig


def configure_logging(config: LoggingConfig, node: str) -> None:
    """Set up structlog and the standard library's logging for this process."""
    level = getattr(logging, config.level.upper())
    json = config.format == "json" or (config.format == "auto" and not sys.stderr.isatty())

    def name_node(_logger: object, _method: str, event: EventDict) -> EventDict:
        event.setdefault("node", node)
        return event

    shared: list[structlog.typing.Processor] = [
        name_node,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    rendering: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta
    ]
    if json:
        rendering += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        rendering += [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=rendering)
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("asyncio").setLevel(max(level, logging.WARNING))
    logging.getLogger("aiohttp").setLevel(max(level, logging.WARNING))
