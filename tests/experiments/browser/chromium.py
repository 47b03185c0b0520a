# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, driven through a pipe (Chrome DevTools Protocol, JSON ended by a zero
byte) with the standard library alone."""
import base64
import json
import os
import select
import shutil
import struct
import subprocess
import tempfile
import time
import zlib

TIMEOUT_S = 120


def find_chromium():
    """The program, or None."""
    named = os.environ.get("CONVSCOPE_CHROMIUM")
    names = [named] if named else ["chromium", "chromium-browser", "google-chrome"]
    return next((path for path in map(shutil.which, names) if path), None)


class Browser:
    """One process; page() opens a tab in it."""

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        # No sandbox: CI runs as root in a container, and the pages are our own.
        words = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                 "--disable-dev-shm-usage", "--disable-background-networking",
                 "--disable-extensions", "--disable-component-update", "--mute-audio",
                 "--remote-debugging-pipe",
                 f"--user-data-dir={self.profile.name}", "about:blank"]
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(["bash", "-c", script, "bash", *words],
                                        pass_fds=(to_browser, from_browser),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.events = b"", 0, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(20)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        self.profile.cleanup()

    def _receive(self, deadline):
        while b"\0" not in self.buffer:
            left = max(0, deadline - time.monotonic())
            ready, _, _ = select.select([self.read_end], [], [], left)
            data = os.read(self.read_end, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("chromium ended" if ready else "chromium does not answer")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, event, session):
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            for at, message in enumerate(self.events):
                if message.get("method") == event and message.get("sessionId") == session:
                    return self.events.pop(at)
            self.events.append(self._receive(deadline))

    def page(self, path, **look):
        return Page(self, path, **look)


class Page:
    """A file, loaded and drawn at a given size."""

    def __init__(self, browser, path, width=1200, height=900, dark=False, script=True):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target,
                                    flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        if not script:
            self.call("Emulation.setScriptExecutionDisabled", value=True)
        self.url = path.resolve().as_uri()
        self.call("Page.navigate", url=self.url)
        browser.wait_for("Page.loadEventFired", self.session)
        self.target = target

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def evaluate(self, script):
        """The value of a JavaScript expression, or of the function body that returns one."""
        source = f"(() => {{ {script} }})()" if "return" in script else script
        answer = self.call("Runtime.evaluate", expression=source, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", script))
        return answer["result"].get("value")

    def complaints(self):
        """Console errors and warnings, exceptions, and requests of anything but the page itself."""
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            method, params = event["method"], event["params"]
            if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(f"console: {params['args']}")
            elif method == "Runtime.exceptionThrown":
                found.append(f"exception: {params['exceptionDetails'].get('text')}")
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(f"log: {params['entry']['text']}")
            elif method == "Network.requestWillBeSent":
                url = params["request"]["url"].split("#")[0]
                if url != self.url and not url.startswith("data:"):
                    found.append(f"request: {url}")
        return found

    def screenshot(self, clip=None, whole=False):
        """PNG bytes of what is seen, of a rectangle {x, y, width, height}, or of the whole page."""
        extra = {"clip": dict(clip, scale=1)} if clip else {}
        data = self.call("Page.captureScreenshot", format="png",
                         captureBeyondViewport=bool(clip) or whole, **extra)["data"]
        return base64.b64decode(data)


def pixels(png):
    """Rows of (r, g, b) of a PNG as Chromium writes it: 8 bits, RGB or RGBA, not interlaced."""
    at, packed = 8, b""
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, _, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and color in (2, 6) and not interlaced
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    size = 3 if color == 2 else 4
    data, stride = zlib.decompress(packed), width * size
    rows, before = [], bytearray(stride)
    for start in range(0, len(data), stride + 1):
        filtering, row = data[start], bytearray(data[start + 1:start + 1 + stride])
        for i in range(stride if filtering else 0):
            left = row[i - size] if i >= size else 0
            up, corner = before[i], before[i - size] if i >= size else 0
            if filtering == 4:  # Paeth: the neighbour that left + up - corner is nearest to
                guess = left + up - corner
                nearest = min((abs(guess - left), 0, left), (abs(guess - up), 1, up),
                              (abs(guess - corner), 2, corner))[2]
            else:
                nearest = (0, left, up, (left + up) // 2)[filtering]
            row[i] = (row[i] + nearest) & 255
        rows.append([tuple(row[i:i + 3]) for i in range(0, stride, size)])
        before = row
    return rows


def count_pixels(png, color, tolerance=24):
    """How many pixels are of this colour, "#rrggbb", but for the blur at edges."""
    wanted = [int(color[i:i + 2], 16) for i in (1, 3, 5)]
    return sum(all(abs(a - b) <= tolerance for a, b in zip(pixel, wanted))
               for row in pixels(png) for pixel in row)
