# SPDX-License-Identifier: Apache-2.0
"""Captures what C++ code writes to stdout and stderr, while it runs.

The file descriptors 1 and 2 become pipes, and one thread per pipe forwards the data. Messages of the compiler
are kept separately, because they belong to the error of a cell and not to its output.
"""
import codecs
import ctypes
import os
import re
import select
import threading
import time

MESSAGE = re.compile(r"^(?:cell \d+|input_line_\d+|/[^:\n]+|<[^>\n]+>):\d+:\d+: "
                     r"(?:fatal error|error|warning|note): |^In file included from |"
                     r"^ {15,}from |^\d+ (?:error|warning)s? generated\.|^Error importing decl|"
                     r"^IncrementalExecutor::executeFunction: symbol |^You are probably missing the definition of ")
THROWN = re.compile(r"^compilation failed(?:: (?P<what>.*)| with unknown error)$", re.DOTALL)
STARTS = ("cell ", "input_line_", "/", "<", "In file ", "     ", "compilation failed", "Error importing",
          "IncrementalExecutor::", "You are probably missing ")
UNKNOWN = "an exception that is not a std::exception, so there is no text"
TICK_S = 0.01    # text that arrives without a pause this long is sent as one message
LONGEST_S = 0.1  # and this is the longest wait


class Pipe:
    """One file descriptor as a pipe."""

    def __init__(self, descriptor, name, send):
        self.name, self.send = name, send
        read_end, write_end = os.pipe()
        self.original = os.dup(descriptor)
        os.dup2(write_end, descriptor)
        os.close(write_end)
        self.descriptor, self.read_end = descriptor, read_end
        self.mark = b"\0convscope-" + os.urandom(8).hex().encode() + b"\0"
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.seen = threading.Event()
        self.kept = []   # (kind, text): "message" of the compiler, "thrown" by the cell
        self.line = ""   # an unfinished line that may become a message
        threading.Thread(target=self._read, daemon=True, name=f"pipe of {name}").start()

    def drain(self):
        """Returns when everything written before has been forwarded."""
        self.seen.clear()
        os.write(self.descriptor, self.mark)
        self.seen.wait(10)

    def _read(self):
        data, since = b"", None  # arrival of the first byte that was not forwarded
        while True:
            waits = since is not None or self.line
            ready, _, _ = select.select([self.read_end], [], [], TICK_S if waits else None)
            now = time.monotonic()
            if ready:
                data += os.read(self.read_end, 1 << 16)
                since = since if since is not None else now
            while (at := data.find(self.mark)) >= 0:
                self._take(data[:at])
                self._flush_line()
                data, since = data[at + len(self.mark):], now
                self.seen.set()
            if not data:
                since = None
                if not ready:
                    self._flush_line()  # the rest of the line is missing: not a message
            elif not ready or now - since > LONGEST_S:
                # A mark may arrive in two parts.
                zero = data.rfind(b"\0")
                keep = len(data) - zero if zero >= 0 and self.mark.startswith(data[zero:]) else 0
                self._take(data[:len(data) - keep])
                data, since = data[len(data) - keep:], now if keep else None

    def _take(self, data):
        text = self.decoder.decode(data)  # a letter of several bytes may arrive in two parts
        if self.name == "stdout":
            self._send(text)
            return
        out = ""
        for part in re.findall(r"[^\n]*\n|[^\n]+", self.line + text):
            line = part.rstrip("\n")
            thrown = THROWN.match(line)
            if part.endswith("\n") and thrown:
                self.kept.append(("thrown", thrown["what"] or UNKNOWN))
            elif part.endswith("\n") and MESSAGE.match(line):
                self.kept.append(("message", line))
            elif not part.endswith("\n") and any(line.startswith(s) or s.startswith(line)
                                                 for s in STARTS):
                self._send(out)
                self.line = part
                return
            else:
                out += part
        self.line = ""
        self._send(out)

    def _flush_line(self):
        line, self.line = self.line, ""
        thrown = THROWN.match(line)
        if thrown:
            self.kept.append(("thrown", thrown["what"] or UNKNOWN))
        elif MESSAGE.match(line):
            self.kept.append(("message", line))
        else:
            self._send(line)

    def _send(self, text):
        if text:
            self.send(self.name, text)


class Streams:
    """stdout and stderr of this process; send(name, text) is called from other threads."""

    def __init__(self, send):
        self.libc = ctypes.CDLL(None)
        self.out, self.err = Pipe(1, "stdout", send), Pipe(2, "stderr", send)

    def drain(self):
        self.libc.fflush(None)
        self.out.drain()
        self.err.drain()

    def messages(self):
        """Returns the compiler's messages since the last call."""
        self.drain()
        kept, self.err.kept = self.err.kept, []
        return [(kind, text) for kind, text in kept
                if not text.startswith("Error importing decl") and "generated." not in text]
