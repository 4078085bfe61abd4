"""Debian's Chromium without a window, driven through its own driver (the W3C protocol over HTTP):
no library needed.

Nothing but 127.0.0.1 can be reached from it: everything else goes to a proxy that does not exist.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

LOCAL = "127.0.0.1"
START_S, PAGE_S, SCRIPT_S = 60, 120, 120
_NOBODY = f"{LOCAL}:1"
KEYS = {
    "Escape": "\ue00c", "Enter": "\ue007", "Tab": "\ue004", "ArrowLeft": "\ue012", "ArrowUp": "\ue013",
    "ArrowRight": "\ue014", "ArrowDown": "\ue015", "Shift": "\ue008", "Control": "\ue009", "Alt": "\ue00a",
    "Space": " ", "Home": "\ue011", "End": "\ue010", "Backspace": "\ue003",
}  # fmt: skip
_REMEDY = "apt-get install chromium chromium-driver"


def found() -> tuple[str, str]:
    """Where the browser and its driver are. Without them nothing would be tested, so that is a
    failure.
    """
    paths = shutil.which("chromium"), shutil.which("chromedriver")
    assert all(paths), f"chromium and chromedriver are needed: {_REMEDY}"
    return str(paths[0]), str(paths[1])


class Page:
    """One browser with one page."""

    def __init__(self, driver: str, session: str) -> None:
        self._address = f"{driver}/session/{session}"

    def open(self, url: str) -> None:
        """Go to `url` and wait until it is loaded."""
        _ask(f"{self._address}/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """What the body of an async function returns; its arguments are `args`."""
        body = (
            "const done = arguments[arguments.length - 1], args = [...arguments].slice(0, -1);"
            "(async () => {"
            + script
            + "})().then(value => done({value}), error => done({error: String(error)}))"
        )
        answer = _ask(f"{self._address}/execute/async", {"script": body, "args": list(arguments)})
        assert "error" not in answer, answer["error"]
        return answer.get("value")

    def wait(self, condition: str, timeout_s: float = PAGE_S) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + timeout_s
        while not self.run(f"return Boolean({condition})"):
            assert time.monotonic() < end, f"not true within {timeout_s} s: {condition}"
            time.sleep(0.03)

    def mouse(self, x: float, y: float, click: bool = False) -> None:
        """Move the mouse to a place in the window, as a user would; press its button there."""
        moves: list[dict[str, Any]] = [
            {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}
        ]
        if click:
            moves += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        about = {
            "type": "pointer",
            "id": "mouse",
            "parameters": {"pointerType": "mouse"},
            "actions": moves,
        }
        _ask(f"{self._address}/actions", {"actions": [about]})

    def keys(self, *keys: str) -> None:
        """Press keys one after the other: characters, or the numbers that WebDriver gives to others
        (`KEYS`).
        """
        presses = [
            {"type": kind, "value": KEYS.get(key, key)}
            for key in keys
            for kind in ("keyDown", "keyUp")
        ]
        _ask(
            f"{self._address}/actions",
            {"actions": [{"type": "key", "id": "keyboard", "actions": presses}]},
        )

    def chord(self, *keys: str) -> None:
        """Press the last of these keys while the others are held."""
        held, pressed = keys[:-1], keys[-1]
        strokes = [
            *(("keyDown", key) for key in held),
            ("keyDown", pressed),
            ("keyUp", pressed),
            *(("keyUp", key) for key in reversed(held)),
        ]
        self._act({"type": "key", "id": "keyboard", "actions": _strokes(strokes)})

    def drag(
        self, start: tuple[float, float], end: tuple[float, float], held: str | None = None
    ) -> None:
        """Move the mouse from one place to another with its button down, a key `held` or none."""
        half = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        if held:
            self._act({"type": "key", "id": "keyboard", "actions": _strokes([("keyDown", held)])})
        moves = [
            _move(start),
            {"type": "pointerDown", "button": 0},
            _move(half),
            _move(end),
            {"type": "pointerUp", "button": 0},
        ]
        self._act({**_MOUSE, "actions": moves})
        if held:
            self._act({"type": "key", "id": "keyboard", "actions": _strokes([("keyUp", held)])})

    def wheel(self, x: float, y: float, down: int = 0, right: int = 0, held: str = "") -> None:
        """Turn the wheel over a place in the window, with a key `held` or none."""
        if held:
            self._act({"type": "key", "id": "keyboard", "actions": _strokes([("keyDown", held)])})
        turn = {"type": "scroll", "x": round(x), "y": round(y), "deltaX": right, "deltaY": down}
        self._act({"type": "wheel", "id": "wheel", "actions": [{**turn, "duration": 0}]})
        if held:
            self._act({"type": "key", "id": "keyboard", "actions": _strokes([("keyUp", held)])})

    def _act(self, *sources: dict[str, Any]) -> None:
        _ask(f"{self._address}/actions", {"actions": list(sources)})

    def complaints(self) -> list[str]:
        """What the browser complained of since the last question: errors of scripts, and what the
        page's own security policy refused.
        """
        entries = _ask(f"{self._address}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def prefer_less_motion(self) -> None:
        """As a user whose system asks for as little motion as there can be."""
        features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
        body = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}
        _ask(f"{self._address}/goog/cdp/execute", body)

    def prefer_nothing(self) -> None:
        """As a user who has not asked for anything."""
        body = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": []}}
        _ask(f"{self._address}/goog/cdp/execute", body)

    @contextlib.contextmanager
    def frame(self, selector: str) -> Iterator[None]:
        """Be in a frame of the page for a while: scripts and the mouse's places are its own."""
        found = _ask(f"{self._address}/element", {"using": "css selector", "value": selector})
        _ask(f"{self._address}/frame", {"id": found})
        try:
            yield
        finally:
            _ask(f"{self._address}/frame", {"id": None})

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        _ask(f"{self._address}/window/rect", {"width": width, "height": height})

    def screenshot(self, path: Path) -> None:
        """Save what the window shows as a PNG."""
        path.write_bytes(base64.b64decode(_ask(f"{self._address}/screenshot", method="GET")))

    def printed(self) -> bytes:
        """The page on paper, as a PDF, with its backgrounds."""
        return base64.b64decode(_ask(f"{self._address}/print", {"background": True}))

    def prefer(self, scheme: str) -> None:
        """`dark` or `light`, as the user's system may ask for."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        body = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}
        _ask(f"{self._address}/goog/cdp/execute", body)

    def console_errors(self) -> list[str]:
        """What the browser has complained about since the last question: exceptions, what a policy
        forbids, what was not found.
        """
        entries = _ask(f"{self._address}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def answered_from_outside(self) -> list[str]:
        """Addresses beyond this machine that answered since the last question. There must be
        none.
        """
        urls = []
        for entry in _ask(f"{self._address}/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.responseReceived":
                urls.append(message["params"]["response"]["url"])
        return [
            url
            for url in urls
            if urlsplit(url).scheme in ("http", "https") and urlsplit(url).hostname != LOCAL
        ]


_MOUSE = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}}


def _move(to: tuple[float, float]) -> dict[str, Any]:
    return {"type": "pointerMove", "duration": 0, "x": round(to[0]), "y": round(to[1])}


def _strokes(strokes: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"type": kind, "value": KEYS.get(key, key)} for kind, key in strokes]


@contextlib.contextmanager
def page(folder: Path) -> Iterator[Page]:
    """A fresh browser whose files are in `folder`."""
    browser, driver = found()
    with (folder / "driver.log").open("wb") as log:
        process = subprocess.Popen([driver, "--port=0"], stdout=log, stderr=subprocess.STDOUT)
        try:
            address = f"http://{LOCAL}:{_port(folder / 'driver.log', process)}"
            session = _ask(
                f"{address}/session", {"capabilities": {"alwaysMatch": _wanted(browser, folder)}}
            )["sessionId"]
            try:
                yield Page(address, session)
            finally:
                _ask(f"{address}/session/{session}", method="DELETE")
        finally:
            process.terminate()
            process.wait(START_S)


def _wanted(browser: str, folder: Path) -> dict[str, Any]:
    words = [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--window-size=1600,900", f"--user-data-dir={folder / 'profile'}",
        f"--proxy-server={_NOBODY}", f"--proxy-bypass-list={LOCAL}", "--js-flags=--max-old-space-size=4096",
    ]  # fmt: skip
    return {
        "browserName": "chrome",
        "goog:chromeOptions": {"binary": browser, "args": words},
        "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"},
        "timeouts": {"pageLoad": PAGE_S * 1000, "script": SCRIPT_S * 1000},
    }


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        if told := re.search(r"successfully on port (\d+)", log.read_text()):
            return int(told[1])
        time.sleep(0.05)
    raise AssertionError(f"chromedriver does not start: {log.read_text()}")


def _ask(url: str, body: Any = None, method: str = "POST") -> Any:
    data = None if method in ("DELETE", "GET") else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    # Whatever proxy the environment names, this stays on the machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=PAGE_S + SCRIPT_S) as response:
            return json.load(response)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{url}: {json.load(error)['value']['message'][:2000]}") from error
