# SPDX-License-Identifier: Apache-2.0
"""A Jupyter kernel for C++20: cling, through cppyy, with the output functions of Convscope.

  python kernel.py -f CONNECTION_FILE      (kernel.json contains this command; set_up.py writes it)

Environment: CONVSCOPE_INCLUDE, folders of headers joined by ':'; CONVSCOPE_LIBRARY, libconvscope.so.
README.md in the parent folder lists features and limits.
"""
import ctypes
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from ipykernel.kernelapp import IPKernelApp  # noqa: E402
from ipykernel.kernelbase import Kernel  # noqa: E402

import cells  # noqa: E402
from interpreter import CellError, Interpreter  # noqa: E402
from streams import Streams  # noqa: E402

SINK = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
RED, PLAIN = "\x1b[31m", "\x1b[0m"


class ConvscopeKernel(Kernel):
    implementation = "convscope"
    implementation_version = "1"
    language = "C++"
    language_version = "20"
    language_info = {"name": "C++", "version": "20", "mimetype": "text/x-c++src",
                     "codemirror_mode": "text/x-c++src", "pygments_lexer": "cpp",
                     "file_extension": ".cpp"}
    banner = "C++20 by cling, with #include <convscope/notebook.h>"

    def __init__(self, **options):
        super().__init__(**options)
        self.parent_of_cell = {}
        self.streams = Streams(self.send_text)
        folders = [folder for folder in os.environ.get("CONVSCOPE_INCLUDE", "").split(":") if folder]
        self.interpreter = Interpreter(folders, lambda text: self.send_text("stderr", text))
        self.sink = SINK(self.show)  # kept alive while the library may call it
        self.load_library(os.environ.get("CONVSCOPE_LIBRARY", ""))
        self.streams.messages()

    def load_library(self, path):
        """Tells the library where to send pictures. Without a library, this is a kernel for plain C++."""
        if not path or not os.path.exists(path):
            return
        library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_GLOBAL | os.RTLD_NODELETE)
        library.convscope_set_display_sink.argtypes = [SINK]
        library.convscope_set_display_sink(self.sink)

    def publish(self, kind, content):
        """Sends output of the current or last cell to the front end, from any thread."""
        self.session.send(self.iopub_socket, kind, content, parent=self.parent_of_cell,
                          ident=self._topic(kind))

    def send_text(self, name, text):
        self.publish("stream", {"name": name, "text": text})

    def show(self, mime, data, size):
        """Shows data; the library calls it in the thread of the cell."""
        self.streams.drain()  # earlier text output appears above
        text = ctypes.string_at(data, size).decode(errors="replace")
        data = {mime.decode(): text}
        if mime != b"text/plain":
            data["text/plain"] = f"[{mime.decode()}]"
        self.publish("display_data", {"data": data, "metadata": {}, "transient": {}})

    async def do_execute(self, code, silent, store_history=True, user_expressions=None,
                         allow_stdin=False, **_):
        self.parent_of_cell = self.get_parent()
        try:
            self.interpreter.run(code, self.execution_count, self.streams.messages)
        except CellError as error:
            self.streams.drain()
            answer = {"ename": error.kind, "evalue": error.text,
                      "traceback": [f"{RED}{error.kind}{PLAIN}: {error.text}"]}
            if not silent:
                self.publish("error", answer)
            return {"status": "error", "execution_count": self.execution_count, **answer}
        self.streams.drain()
        return {"status": "ok", "execution_count": self.execution_count, "payload": [],
                "user_expressions": {}}

    async def do_complete(self, code, cursor_pos):
        matches, start = self.interpreter.complete(code, cursor_pos)
        return {"status": "ok", "matches": matches, "cursor_start": start, "cursor_end": cursor_pos,
                "metadata": {}}

    async def do_inspect(self, code, cursor_pos, detail_level=0, omit_sections=()):
        text = self.interpreter.inspect(code, cursor_pos)
        return {"status": "ok", "found": text is not None, "metadata": {},
                "data": {"text/plain": text} if text else {}}

    async def do_is_complete(self, code):
        try:
            cells.split(code)
        except cells.Unfinished:
            return {"status": "incomplete", "indent": "  "}
        return {"status": "complete"}

    async def do_shutdown(self, restart):
        return {"status": "ok", "restart": restart}


if __name__ == "__main__":
    # The kernel has its own pipes for C++ output.
    IPKernelApp.launch_instance(kernel_class=ConvscopeKernel, capture_fd_output=False)
