"""A real browser, driven by its own protocol over a pair of pipes: no driver package, no open port."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE = 30.0  # seconds for anything a page does
# the browser reads commands from 3 and answers on 4
START = (
    "import os, sys; a, b = map(int, sys.argv[1:3]); os.dup2(a, 3); os.dup2(b, 4); os.execvp(sys.argv[3], sys.argv[3:])"
)


def find_chromium() -> str | None:
    """Return the browser's path, from SHARDFIT_CHROMIUM or by its usual names; None if there is none."""
    return os.environ.get("SHARDFIT_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab. Commands are those of the DevTools protocol; `messages` is what the page complained about."""

    def __init__(self, write: int, read: int):
        self.write, self.read = write, read
        self.number, self.rest, self.session = 0, b"", None
        self.messages: list[str] = []
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **params: Any) -> dict:
        """Send a command and return its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._heard(answer)

    def open(self, address: str) -> None:
        """Go to an address and wait until the gallery has drawn itself."""
        self.command("Page.navigate", url=address)
        self.wait("document.body && document.body.dataset.drawn && !document.body.classList.contains('starting')")

    @contextlib.contextmanager
    def visit(self, address: str) -> Iterator[None]:
        """Open an address, and leave it afterwards, so that its server may end."""
        try:
            self.open(address)
            yield
        finally:
            self.command("Page.navigate", url="about:blank")

    def size(self, width: int, height: int, dark: bool = False) -> None:
        """Set the size of the window and the colour scheme."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression, awaited."""
        found = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = PATIENCE) -> Any:
        """Wait until an expression is true; return it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.run(condition):
                return value
            time.sleep(0.02)
        raise TimeoutError(f"never true: {condition}. The page said: {self.messages}")

    def frame(self) -> None:
        """Wait until what was changed is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def click(self, selector: str) -> None:
        """Press and release the mouse in the middle of an element."""
        self.drag(self.middle(selector))

    def middle(self, selector: str) -> tuple[float, float]:
        """Return the middle of an element."""
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y, width, height = self.run(f"(({{x, y, width, height}}) => [x, y, width, height])({box})")
        return x + width / 2, y + height / 2

    def drag(self, start: tuple[float, float], end: tuple[float, float] | None = None) -> None:
        """Move the mouse with the button held."""
        mouse = {"button": "left", "clickCount": 1}
        self.command("Input.dispatchMouseEvent", type="mousePressed", x=start[0], y=start[1], **mouse)
        for share in (0.5, 1.0) if end else ():
            x, y = (a + share * (b - a) for a, b in zip(start, end, strict=True))
            self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, buttons=1, **mouse)
        x, y = end or start
        self.command("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, **mouse)
        self.frame()

    def key(self, name: str) -> None:
        """Press a key, such as 'ArrowRight' or 'Escape'."""
        code = {"ArrowRight": 39, "ArrowLeft": 37, "Escape": 27}[name]
        for kind in ("keyDown", "keyUp"):
            self.command("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)
        self.frame()

    def saved(self, folder: Path, selector: str) -> Path:
        """Click on a link and return the one file that it puts into an empty folder."""
        self.command("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        self.click(selector)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = [path for path in folder.iterdir() if path.suffix != ".crdownload" and path.stat().st_size]
            if found:
                return found[0]
            time.sleep(0.05)
        raise TimeoutError(f"{selector} saved nothing. The page said: {self.messages}")

    def screenshot(self, path: str | Path) -> None:
        """Write what is seen as PNG."""
        Path(path).write_bytes(base64.b64decode(self.command("Page.captureScreenshot")["data"]))

    def _receive(self) -> dict:
        while b"\0" not in self.rest:
            if not select.select([self.read], [], [], PATIENCE)[0]:
                raise TimeoutError("the browser does not answer.")
            piece = os.read(self.read, 1 << 20)
            if not piece:
                raise ConnectionError("the browser has ended.")
            self.rest += piece
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def _heard(self, event: dict) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.messages.append(details.get("exception", {}).get("description") or details["text"])
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.messages.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Page.javascriptDialogOpening":
                self.messages.append(f"dialog: {params['message']}")


@contextlib.contextmanager
def browsing(binary: str) -> Iterator[Page]:
    """Start the browser with a fresh profile; end it and remove the profile afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        (commands, write), (read, answers) = os.pipe(), os.pipe()
        start = [
            sys.executable,
            "-c",
            START,
            str(commands),
            str(answers),
            binary,
            *OPTIONS,
            f"--user-data-dir={profile}",
        ]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(start, pass_fds=(commands, answers), **quiet)
        os.close(commands)
        os.close(answers)
        try:
            yield Page(write, read)
        finally:
            os.close(write)
            os.close(read)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)  # it ends when the pipes are closed
            if process.poll() is None:
                process.kill()
                process.wait()
