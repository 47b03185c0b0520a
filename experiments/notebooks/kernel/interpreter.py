# SPDX-License-Identifier: Apache-2.0
"""cling for the kernel: runs cells, completes names and shows their documentation.

cppyy provides cling and its headers. Its Python interface is used only for names. Cells run through
cell_guard.inc, called by ctypes, so that Python's lock is free while C++ code runs.
"""
import ctypes
import os
import pathlib
import re
import signal

import cells

HERE = pathlib.Path(__file__).resolve().parent
# The compiler's messages are limited to one line each, because the kernel itself shows the line of the cell.
# With -fno-finite-loops `while (true) {}` is a loop; in the C++20 standard it is undefined behaviour.
ARGUMENTS = "-O2 -march=native -fno-finite-loops -fno-caret-diagnostics -fno-color-diagnostics"
WORD = re.compile(r"[A-Za-z_]\w*")
PATH = re.compile(r"((?:[A-Za-z_]\w*\s*(?:::|\.|->)\s*)*)([A-Za-z_]?\w*)$")
KEYWORDS = ("auto bool break case char class concept const const_cast constexpr continue decltype default "
            "delete do double else enum explicit false float for friend if inline int long namespace new "
            "noexcept nullptr operator private protected public requires return short signed sizeof static "
            "static_cast struct switch template this throw true try typename union unsigned using virtual "
            "void volatile while").split()
CRASHES = {
    signal.SIGSEGV: "segmentation fault: the cell read or wrote memory that is not its own, or its "
                    "calls went too deep",
    signal.SIGBUS: "bus error: the cell read or wrote memory that is not there",
    signal.SIGFPE: "arithmetic error: a whole number was divided by 0",
    signal.SIGILL: "illegal instruction: often a function that ends without a return",
    signal.SIGTRAP: "trap: often a function that ends without a return",
    signal.SIGABRT: "abort: an assertion failed, or an exception left a function that may not throw",
}
DAMAGED = "What the session holds may be damaged: restart the kernel when in doubt."


class CellError(Exception):
    """The reason why a cell ended early: its kind, and a text of one or more lines."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind, self.text = kind, text


class Interpreter:
    def __init__(self, include_folders=(), warn=print):
        self.warn = warn
        os.environ["EXTRA_CLING_ARGS"] = ARGUMENTS
        import cppyy
        self.cpp = cppyy.gbl
        for folder in include_folders:
            cppyy.add_include_path(str(folder))
        self.include_folders = [pathlib.Path(folder) for folder in include_folders]
        if not self.cpp.gInterpreter.Declare((HERE / "cell_guard.inc").read_text()):
            raise RuntimeError("cell_guard.inc does not parse")
        run, parse = (self._address(name) for name in ("convscope_run_piece", "convscope_parse"))
        self._run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int))(run)
        self._parse = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(parse)
        self.seen = set()  # words of cells, for completion
        self._header_words = None

    def _address(self, name):
        # The interpreter compiles the function for this expression.
        return int(self.cpp.gInterpreter.ProcessLine(f"(intptr_t)&{name};"))

    def run(self, code, number, messages):
        """Runs a cell. `messages` returns and clears the compiler's messages since the last call. Raises
        CellError; the effects of statements before the error remain."""
        try:
            pieces = cells.split(code)
        except cells.Unfinished as error:
            raise CellError("compile error", f"cell {number} ends inside {error}") from None
        self.seen.update(WORD.findall(cells.without_comments(code)))
        # Between two pieces of a cell, an interrupt is only recorded, because it must not stop Python code at
        # any point.
        interrupts = []
        before = signal.signal(signal.SIGINT, lambda *_: interrupts.append(True))
        try:
            for piece in pieces:
                self._run_piece(piece, number, code.split("\n"), messages)
                if interrupts:
                    raise CellError("interrupted", f"the cell was interrupted below line {piece.line}")
        finally:
            signal.signal(signal.SIGINT, before)

    def _run_piece(self, piece, number, lines, messages):
        head = f'#line {piece.line} "cell {number}"\n' + " " * (piece.column - 1)
        stopped = ctypes.c_int(0)
        status = self._run((head + piece.text).encode(), ctypes.byref(stopped))
        said = messages()
        if stopped.value == signal.SIGINT:
            raise CellError("interrupted", f"the cell was interrupted in line {piece.line} or below")
        if stopped.value:
            raise CellError("crash", f"{CRASHES[stopped.value]} (statement in line {piece.line}). {DAMAGED}")
        thrown = [text for kind, text in said if kind == "thrown"]
        if thrown:
            raise CellError("exception", "\n".join(thrown) + f"\n(statement in line {piece.line})")
        if status != 0:
            errors = self._errors(said, piece, head, messages)
            raise CellError("compile error", self._with_source(errors, number, lines))
        for _, text in said:  # warnings: would be taken for messages again through stderr
            self.warn(text + "\n")

    def _errors(self, said, piece, head, messages):
        """Returns the errors of a statement. cling looks up an unknown name only when the statement runs, and
        then reports no line. When the statement is parsed as the body of a function, cling reports the line."""
        found = [text for kind, text in said if kind == "message"]
        if any(text.startswith("cell ") and "error:" in text for text in found):
            return found
        self._parse(f"void convscope_never_called() {{\n{head}{piece.text}\n;}}".encode())
        again = [text for kind, text in messages() if kind == "message"]
        return again if any("error:" in text for text in again) else found

    @staticmethod
    def _with_source(messages, number, lines):
        out = []
        for message in messages:
            place = re.match(rf"cell {number}:(\d+):(\d+): (.*)", message)
            if not place:
                out.append(message)
                continue
            line, column, text = int(place[1]), int(place[2]), place[3]
            out.append(f"cell {number}, line {line}: {text}")
            if 1 <= line <= len(lines):
                out += ["    " + lines[line - 1], "    " + " " * (column - 1) + "^"]
        return "\n".join(out) or "the cell does not compile, and the compiler says nothing about it"

    def _lookup(self, path):
        """Returns the object or class that `a::b.c` names, as cppyy shows it, or None."""
        for start in (self.cpp, getattr(self.cpp, "convscope", None)):
            found = start
            for name in path:
                try:
                    found = getattr(found, name)
                except Exception:  # cppyy may fail on any name
                    found = None
                if found is None:
                    break
            if found is not None:
                return found
        return None

    def complete(self, code, cursor):
        """Returns the names that may follow at the cursor, and where the word begins."""
        match = PATH.search(code[:cursor])
        path, begin = WORD.findall(match[1]), match[2]
        if path:
            owner = self._lookup(path)
            names = dir(owner) if owner is not None else []
            if owner is not None and path == ["convscope"]:
                names = set(names) | self._words_of_headers()
        else:
            names = set(KEYWORDS) | self.seen | self._words_of_headers()
        good = sorted(name for name in names if name.startswith(begin) and WORD.fullmatch(name) and
                      not (name.startswith("__") and not begin.startswith("_")))
        return [name for name in good if name != begin or path], cursor - len(begin)

    def _headers(self):
        for folder in self.include_folders:
            for below in ("framework", "layers", "experiments/notebooks", "experiments/report/chart"):
                yield from sorted((folder / below).rglob("*.h"))

    def _words_of_headers(self):
        """Returns what the headers of the library declare."""
        if self._header_words is None:
            declared = re.compile(r"\b(?:struct|class|enum(?: class)?|using|CONVSCOPE_API [\w:<>&* ]*?)"
                                  r"\s*\b([A-Za-z]\w+)\s*(?=[({:=;])")
            self._header_words = set()
            for header in self._headers():
                self._header_words.update(declared.findall(header.read_text(errors="replace")))
            self._header_words.discard("CONVSCOPE_API")
        return self._header_words

    def inspect(self, code, cursor):
        """Returns the facts about the name at the cursor: signatures, type, the comment in its header."""
        end = cursor
        while end < len(code) and re.match(r"\w", code[end]):
            end += 1
        match = PATH.search(code[:end])
        path = WORD.findall(match[1]) + ([match[2]] if match[2] else [])
        if not path:
            return None
        parts = []
        found = self._lookup(path)
        if found is not None:
            kind = type(found).__name__
            if kind in ("CPPOverload", "TemplateProxy"):
                parts.append(found.__doc__ or "")
            elif isinstance(found, type):
                parts.append(f"class {getattr(found, '__cpp_name__', found.__name__)}")
            else:
                parts.append(f"{path[-1]}: {getattr(type(found), '__cpp_name__', kind)}")
        owner = self._lookup(path[:-1]) if len(path) > 1 else None
        owner = owner if isinstance(owner, type) else type(owner)
        parts.append(self._comment_of(path[-1], owner.__name__ if len(path) > 1 else ""))
        text = "\n\n".join(part for part in parts if part)
        return text or None

    def _comment_of(self, name, owner):
        """Returns the comment above the first declaration of a name, and the declaration itself. For a member,
        searches only the header that declares its class."""
        declaration = re.compile(rf"^(?!\s*//)(?:[\w:<>&*,\[\]= ]*?[\s&*]|){name}\b\s*[({{:=;]")
        owner_pattern = re.compile(rf"\b(?:class|struct)\s+(?:CONVSCOPE_API\s+)?{re.escape(owner)}\b\s*[:{{]")
        for header in self._headers():
            text = header.read_text(errors="replace")
            begin = owner_pattern.search(text) if owner else None
            if name not in text or owner not in ("", "module") and not begin:
                continue
            lines = text.split("\n")
            first_line = text.count("\n", 0, begin.start()) if begin else 0
            for at in range(first_line, len(lines)):
                if not declaration.search(lines[at]) or lines[at].strip().startswith(("return", "#")):
                    continue
                first = last = at
                while first > 0 and lines[first - 1].strip().startswith("//"):
                    first -= 1
                while last < min(len(lines) - 1, at + 6) and not re.search(r";|\{\s*$|\}", lines[last]):
                    last += 1
                return "\n".join(lines[first:last + 1]) + f"\n// {header.name}:{at + 1}"
        return ""
