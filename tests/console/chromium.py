"""A headless Chromium over its DevTools protocol: pages, keys, pictures, and what it complains of.

It asks nothing of the network but what pages ask; that is recorded.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

START_S = 30.0
ANSWER_S = 20.0
MESSAGE_BYTES_MAX = 64 << 20
NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)
KEYS = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Space": (" ", 32, " "),
    "Escape": ("Escape", 27, ""),
}


def find() -> str | None:
    """Where the browser is, if there is one."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """A tab. `complaints` are console errors, exceptions and violations of the security policy;
    `requests` the addresses of all that was asked for."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session
        self._loaded = asyncio.Event()
        self.complaints: list[str] = []
        self.requests: list[str] = []

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        return await self._browser.send(method, params, self._session)

    def heard(self, method: str, params: dict[str, Any]) -> None:
        """An event of this tab."""
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            told = details.get("exception", {}).get("description", details["text"])
            self.complaints.append(f"exception: {told}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            words = [str(one.get("value", one.get("description"))) for one in params["args"]]
            self.complaints.append(f"{params['type']}: {' '.join(words)}")
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            entry = params["entry"]
            self.complaints.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
        elif method == "Audits.issueAdded":
            issue = params["issue"]
            if issue["code"] in ("ContentSecurityPolicyIssue", "MixedContentIssue"):
                self.complaints.append(f"issue: {json.dumps(issue)[:600]}")

    async def goto(self, url: str) -> None:
        """Returns once the page has loaded."""
        self._loaded.clear()
        await self.send("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), ANSWER_S)

    async def leads_on(self) -> None:
        """Waits until a page that something leads to has loaded; `expect` comes before."""
        await asyncio.wait_for(self._loaded.wait(), ANSWER_S)

    def expect(self) -> None:
        self._loaded.clear()

    async def evaluate(self, script: str) -> Any:
        """The value of an expression, or what its promise comes to."""
        told = await self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in told:
            raise AssertionError(f"{script[:200]}: {told['exceptionDetails']}")
        return told["result"].get("value")

    async def until(self, script: str, deadline_s: float = 10.0) -> Any:
        """The first truthy value of the expression."""
        end = asyncio.get_running_loop().time() + deadline_s
        while True:
            with suppress(AssertionError):
                value = await self.evaluate(script)
                if value:
                    return value
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"not within {deadline_s} s: {script}; {self.complaints}")
            await asyncio.sleep(0.05)

    async def key(self, name: str, *, shift: bool = False) -> None:
        key, code, text = KEYS[name]
        common = {
            "key": key,
            "code": name,
            "windowsVirtualKeyCode": code,
            "modifiers": 8 if shift else 0,
        }
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        await self.send("Input.dispatchKeyEvent", **common, **down)
        await self.send("Input.dispatchKeyEvent", **common, type="keyUp")

    async def type(self, text: str) -> None:
        await self.send("Input.insertText", text=text)

    async def size(self, width: int, height: int = 900) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    async def prefer(self, scheme: str) -> None:
        """`light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def picture(self, path: Path, height_max: int = 4000) -> None:
        """The whole page as a PNG, cut at the bottom where it is very long."""
        metrics = await self.send("Page.getLayoutMetrics")
        size = metrics["cssContentSize"]
        height = min(size["height"], height_max)
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1}
        told = await self.send(
            "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
        )
        await asyncio.to_thread(_write, path, base64.b64decode(told["data"]))


class Chromium:
    """One process with a profile of its own, which is gone afterwards."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._profile = Path(tempfile.mkdtemp(prefix="goqueue-chromium-"))
        self._process: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._listening: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}

    async def __aenter__(self) -> Chromium:
        try:
            self._process = await asyncio.create_subprocess_exec(
                self._program,
                *_FLAGS,
                f"--user-data-dir={self._profile}",
                "about:blank",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env={**os.environ, "HOME": str(self._profile)},
            )
            port, path = await self._address()
            self._session = aiohttp.ClientSession()
            self._socket = await self._session.ws_connect(
                f"ws://127.0.0.1:{port}{path}", max_msg_size=MESSAGE_BYTES_MAX
            )
            self._listening = asyncio.create_task(self._listen())
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._socket is not None:
            with suppress(Exception):
                await asyncio.wait_for(self.send("Browser.close", {}), 3)
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
        if self._session is not None:
            await self._session.close()
        if self._process is not None:
            try:
                await asyncio.wait_for(self._process.wait(), 5)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    async def page(self) -> Page:
        """A new tab that records what goes wrong in it."""
        target = await self.send("Target.createTarget", {"url": "about:blank"})
        told = await self.send(
            "Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}
        )
        page = self._pages[told["sessionId"]] = Page(self, told["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            await page.send(f"{domain}.enable")
        return page

    async def send(
        self, method: str, params: dict[str, Any], session: str | None = None
    ) -> dict[str, Any]:
        """Raises AssertionError where the browser refuses."""
        assert self._socket is not None, "not started"
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        await self._socket.send_json(message)
        told = await asyncio.wait_for(answer, ANSWER_S)
        if "error" in told:
            raise AssertionError(f"{method}: {told['error']}")
        result: dict[str, Any] = told["result"]
        return result

    async def _address(self) -> tuple[str, str]:
        """The port and path that the browser writes down when it listens."""
        listing = self._profile / "DevToolsActivePort"
        end = asyncio.get_running_loop().time() + START_S
        while True:
            lines = listing.read_text().splitlines() if listing.exists() else []
            if len(lines) == 2:
                return lines[0], lines[1]
            assert self._process is not None and self._process.returncode is None, "it ended"
            assert asyncio.get_running_loop().time() < end, "the browser does not listen"
            await asyncio.sleep(0.05)

    async def _listen(self) -> None:
        assert self._socket is not None
        async for message in self._socket:
            told = json.loads(message.data)
            waiting = self._waiting.pop(told.get("id", 0), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(told)
            page = self._pages.get(told.get("sessionId", ""))
            if page is not None and "method" in told:
                page.heard(told["method"], told.get("params", {}))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
