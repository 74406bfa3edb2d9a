"""Drives a headless Chromium over its pipe, with the standard library alone."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
TIMEOUT = 120  # seconds, for anything


def find():
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser with one page, which no network can reach. Use it in a with statement."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="fp8q-browser-")
        self.requests = []  # addresses that the page asked for
        self.errors = []  # of its scripts
        self._number = 0
        self._pending = b""
        self._events = []
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        self._process = self._spawn(theirs_in, theirs_out)
        os.close(theirs_in)
        os.close(theirs_out)
        self._session = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def _spawn(self, theirs_in, theirs_out):
        """Starts the browser, which reads descriptor 3 and writes 4."""
        ends = (theirs_in, theirs_out)
        first, second = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in ends)
        actions = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, first, 3), (os.POSIX_SPAWN_DUP2, second, 4)]
        line = [find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--hide-scrollbars", "--no-first-run", f"--user-data-dir={self.profile}",
                "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe"]  # fmt: skip
        process = os.posix_spawn(line[0], line, os.environ, file_actions=actions, setsid=True)
        os.close(first)
        os.close(second)
        return process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self.profile, ignore_errors=True)

    def _receive(self):
        end = time.monotonic() + TIMEOUT
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._in], [], [], max(0, end - time.monotonic()))
            data = os.read(self._in, 1 << 16) if ready else b""
            if not data:
                raise RuntimeError("the browser does not answer")
            self._pending += data
        message, _, self._pending = self._pending.partition(b"\0")
        message = json.loads(message)
        kind, details = message.get("method"), message.get("params", {})
        if kind == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
        elif kind == "Runtime.exceptionThrown":
            self.errors.append(details["exceptionDetails"]["text"])
        elif kind == "Log.entryAdded" and details["entry"]["level"] == "error":
            self.errors.append(details["entry"]["text"])
        elif kind:
            self._events.append(kind)
        return message

    def _call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def show(self, width, dark=False, scripts=True, media=""):
        """How the next pages are shown: CSS pixels, colours, screen or print."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=844,
                   deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._call("Emulation.setScriptExecutionDisabled", value=not scripts)

    def open(self, path):
        """Opens a file, and waits until it is there."""
        self.requests.clear()
        self.errors.clear()
        self._events.clear()
        self._call("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._receive()

    def value(self, expression):
        """The value of an expression in the page."""
        result = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def screenshot(self, path):
        """The whole page, as a PNG."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000),
                "scale": 1}  # fmt: skip
        shot = self._call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def print_pdf(self, path):
        """The page as it is printed."""
        path.write_bytes(base64.b64decode(self._call("Page.printToPDF")["data"]))
