"""A headless Chromium for the tests, driven over a pipe: no package, no port, no network."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

from runs import limit

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """Path of this machine's Chromium; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a headless Chromium, by the DevTools protocol."""

    def __init__(self, profile: Path) -> None:
        self.timeout, self.number, self.buffer = limit(), 0, b""
        self.events: list[dict] = []
        to_read, self.to_write = os.pipe()
        self.to_hear, to_say = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4.
        command = f'exec "$0" "$@" 3<&{to_read} 4>&{to_say}'
        options = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        options += ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--disable-background-networking", "--disable-component-update"]
        self.process = subprocess.Popen(
            ["bash", "-c", command, str(chromium()), *options, "about:blank"],
            pass_fds=(to_read, to_say),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_say)
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict:
        """Send a command, wait for the answer; keep the events that come before the answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict:
        end = time.monotonic() + self.timeout
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.to_hear], [], [], max(0, end - time.monotonic()))
            assert ready, f"Chromium said nothing for {self.timeout} s"
            heard = os.read(self.to_hear, 1 << 16)
            assert heard, "Chromium ended"
            self.buffer += heard
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def open(self, file: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show `file`, and wait until its script has run or failed."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=file.resolve().as_uri())
        end = time.monotonic() + self.timeout
        while not self.run("document.readyState === 'complete' && location.href !== 'about:blank'"):
            assert time.monotonic() < end, f"{file} was not loaded"
            time.sleep(0.05)

    def run(self, script: str) -> object:
        """Value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def click(self, selector: str, number: int = 0) -> None:
        """Click with the mouse in the middle of the element."""
        x, y = self.place(selector, number)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def point(self, selector: str, number: int = 0) -> None:
        """Move the mouse over the middle of the element."""
        x, y = self.place(selector, number)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def place(self, selector: str, number: int = 0) -> list[float]:
        """Scroll the element into sight; return the coordinates of its middle.

        Return two frames later, when the page has handled the scroll event, at which it hides the
        tip.
        """
        place = self.run(
            "(async () => {"
            f"const e = document.querySelectorAll({json.dumps(selector)})[{number}];"
            "e.scrollIntoView({block: 'center'});"
            "for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);"
            "const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        assert isinstance(place, list)
        return place

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions, since the start."""
        found = []
        for event in self.events:
            what, said = event.get("method"), event.get("params", {})
            if what == "Runtime.exceptionThrown":
                found.append(json.dumps(said["exceptionDetails"]))
            elif what == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
                found.append(said["entry"]["text"])
            elif what == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
                found.append(json.dumps(said["args"]))
        return found

    def requests(self) -> list[str]:
        """Every address that was asked for, since the start."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def screenshot(self, whole: bool = True) -> bytes:
        """The page as a PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def print(self) -> bytes:
        """The page as a PDF."""
        answer = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(answer["data"])

    def close(self) -> None:
        """End the browser that was started here."""
        self.session = None
        try:
            self.call("Browser.close")
            self.process.wait(20)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to_write)
        os.close(self.to_hear)
