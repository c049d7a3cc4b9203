"""Removing what no manifest names: files of runs that were killed, their staging, and what
compaction has replaced, each once it is old enough that nobody uses it any more."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from goqueue.archive.layout import MANIFESTS, STAGING, TEMPORARY, Series, parse_file_name
from goqueue.archive.manifest import Manifest, commit, newest

if TYPE_CHECKING:  # this module itself needs no Spark
    from pipeline.archive.run import Run


@dataclass(frozen=True, slots=True)
class Swept:
    """How many were removed."""

    replaced: int = 0
    orphans: int = 0


def sweep(run: Run, series: Series) -> Swept:
    """Remove what is older than the run's grace. Killed in here, it leaves orphans, no more."""
    before_ms = time.time_ns() // 1_000_000 - int(run.grace_s * 1000)
    store = run.store
    held = newest(store, series)
    retired = _removable(held, before_ms)
    if retired:
        commit(
            store,
            series,
            lambda manifest: manifest.swept(before_ms),
            writer=run.id,
            now_ms=time.time_ns() // 1_000_000,
        )
        for path in retired:
            store.remove(f"{series.folder}/{path}")
    orphans = 0
    listed = list(store.files(series.folder))
    stagings = list(store.folders(series.staging_folder))
    named = newest(store, series).named()  # after the listing: what it misses was not listed
    for file in listed:
        path = file.path.removeprefix(f"{series.folder}/")
        is_data = parse_file_name(path.rpartition("/")[2]) is not None
        beneath = path.partition("/")[0]
        if file.modified_ms >= before_ms or beneath == MANIFESTS:
            continue
        if beneath == STAGING or (is_data and path not in named):
            store.remove(file.path)
            orphans += 1
    for folder in stagings:
        if folder.modified_ms < before_ms and not any(store.files(folder.path)):
            store.remove(folder.path)
    for file in list(store.files(TEMPORARY)):
        if file.modified_ms < before_ms:
            store.remove(file.path)
    return Swept(len(retired), orphans)


def _removable(manifest: Manifest, before_ms: int) -> list[str]:
    """Retired files of before that time. A manifest may say anything: what is not named as data
    files are, or is still committed, is left alone. That paths stay below the series' folder has
    been checked as the manifest was read."""
    committed = {file.path for file in manifest.files}
    paths = (item.path for item in manifest.retired if item.at_ms < before_ms)
    return [
        path
        for path in paths
        if parse_file_name(path.rpartition("/")[2]) is not None and path not in committed
    ]
