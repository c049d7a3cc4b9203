"""The text formats that Prometheus reads: its own, and OpenMetrics 1.0 with exemplars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from node.metrics.family import Family

SLICE_S = 0.001
"""For how long a look keeps the loop at a time, about."""
END = b"# EOF\n"

_MEDIA = "application/openmetrics-text"
_PARAMETERS_MAX = 16


@dataclass(frozen=True, slots=True)
class Format:
    """One of the two."""

    content_type: str
    is_openmetrics: bool


TEXT = Format("text/plain; version=0.0.4; charset=utf-8", False)
OPENMETRICS = Format(f"{_MEDIA}; version=1.0.0; charset=utf-8", True)


def accepted(accept: str) -> Format:
    """What a client that sends this header wants: OpenMetrics where it is named and nothing plain
    is liked better, else the plain text that anybody reads."""
    best = {_MEDIA: -1.0, "text/plain": -1.0}
    for item in accept.split(",")[:_PARAMETERS_MAX]:
        media, *parameters = [part.strip().lower() for part in item.split(";")]
        quality = _quality(parameters)
        if media == _MEDIA and not _is_other_version(parameters):
            best[_MEDIA] = max(best[_MEDIA], quality)
        elif media in ("text/plain", "text/*"):
            best["text/plain"] = max(best["text/plain"], quality)
    wanted = best[_MEDIA] > 0 and best[_MEDIA] >= best["text/plain"]
    return OPENMETRICS if wanted else TEXT


def head(family: Family[Any], form: Format) -> str:
    """The lines that say what a family is."""
    name = family.name
    if form.is_openmetrics and family.kind == "counter":
        name = name.removesuffix("_total")
    text = f"{family.text}. Told by {family.meaning.told.value}"
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f"# HELP {name} {text}\n# TYPE {name} {family.kind}\n"


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def _is_other_version(parameters: list[str]) -> bool:
    return any(p.startswith("version=") and p != "version=1.0.0" for p in parameters)
