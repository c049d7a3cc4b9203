"""`make screenshots`: a picture of every page of the console, both schemes, desk and phone."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.cluster.processes import ROOT, Cluster
from tests.console.chromium import Chromium, find
from tests.console.scene import keep_publishing, make_scene

FOLDER = ROOT / "build" / "screenshots"
WIDTHS = {"": 1280, "-phone": 375}


async def pictures(program: str, url: str, paths: dict[str, str], suffix: str = "") -> None:
    async with Chromium(program) as browser:
        page = await browser.page()
        for scheme in ("light", "dark"):
            await page.prefer(scheme)
            for kind, width in WIDTHS.items():
                await page.size(width)
                for name, path in paths.items():
                    await page.goto(url + path)
                    if name == "topic":
                        await page.until("!!document.querySelector('.uplot')")
                    await page.picture(FOLDER / f"{name}{suffix}{kind}-{scheme}.png")
        for complaint in page.complaints:
            print("the browser complains:", complaint, file=sys.stderr)


def main() -> int:
    program = find()
    if program is None:
        print("no pictures: there is no chromium here", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="goqueue-console-") as folder,
        Cluster(Path(folder), 3).start() as cluster,
    ):
        scene, node = make_scene(cluster), cluster.nodes[0]
        keep_publishing(node, 8)
        asyncio.run(pictures(program, node.url, scene.paths()))
        cluster.nodes[2].kill()
        few = {name: scene.paths()[name] for name in ("cluster", "topic", "message")}
        asyncio.run(pictures(program, node.url, few, "-one-node-down"))
        cluster.nodes[1].kill()
        asyncio.run(pictures(program, node.url, few, "-no-leader"))
    print(f"{len(list(FOLDER.glob('*.png')))} pictures in {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
