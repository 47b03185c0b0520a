# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, driven through a pipe (Chrome DevTools Protocol, JSON ended by a zero
byte) with the standard library alone."""
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

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
        self.buffer, self.number, self.events, self.blank = b"", 0, [], None

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

    def open_tab(self):
        """The names of a new tab and of the session that drives it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        return target, self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]

    def evaluate(self, session, source):
        answer = self.call("Runtime.evaluate", session, expression=source, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", source))
        return answer["result"].get("value")

    def page(self, path, **look):
        return Page(self, path, **look)

    def count_pixels(self, png, condition):
        """How many pixels of a PNG (base64) fulfil a JavaScript condition on r, g and b. The
        browser decodes it, in a tab of its own."""
        if self.blank is None:
            _, self.blank = self.open_tab()
        return self.evaluate(self.blank, """(async () => {
            const image = new Image();
            image.src = "data:image/png;base64,%s";
            await image.decode();
            const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
            canvas.drawImage(image, 0, 0);
            const data = canvas.getImageData(0, 0, image.width, image.height).data;
            let count = 0;
            for (let i = 0; i < data.length; i += 4) {
              const [r, g, b] = data.subarray(i, i + 3);
              if (%s) ++count;
            }
            return count;
        })()""" % (png, condition))


class Page:
    """A file, loaded and drawn at a given size."""

    def __init__(self, browser, path, width=1200, height=900, dark=False, script=True):
        self.browser = browser
        self.target, self.session = browser.open_tab()
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

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def evaluate(self, script):
        """The value of a JavaScript expression, or of the function body that returns one."""
        source = f"(() => {{ {script} }})()" if "return" in script else script
        return self.browser.evaluate(self.session, source)

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
        """A PNG (base64) of what is seen, of a rectangle {x, y, width, height}, or of all."""
        extra = {"clip": dict(clip, scale=1)} if clip else {}
        return self.call("Page.captureScreenshot", format="png",
                         captureBeyondViewport=bool(clip) or whole, **extra)["data"]
