# SPDX-License-Identifier: Apache-2.0
"""Splits a cell into pieces that the interpreter can run one at a time.

In one call, cling takes either statements or one function. A cell of a notebook may hold several functions,
includes and classes, so split() cuts the cell at its top level. Every piece keeps the number of its first line,
so that messages name the line of the cell.
"""
import re
from dataclasses import dataclass

OPEN, CLOSE = "([{", ")]}"
GOES_ON = re.compile(r"\s*(?:else|catch|while)\b")  # after a block: part of it
CONTROL = re.compile(r"(?:if|for|while|do|switch|try|else)\b")
BODY = re.compile(r'(?:inline\s+)?namespace\b|extern\s*"')
# cling recognises a function by its first word and does not expand macros first, so these CUDA keywords are removed.
# emulated_gpu.h defines them as empty macros.
CUDA_WORDS = re.compile(r"(?:__(?:global|device|host|forceinline)__\s+)+")
NAMED_TYPE = re.compile(r"(?:template\s*<.*>\s*)?(?:struct|class|union|enum)\b", re.DOTALL)


class Unfinished(ValueError):
    """Raised when the cell ends inside a bracket, a comment or a string."""


@dataclass
class Piece:
    text: str
    line: int    # of the cell, from 1
    column: int  # of its first letter, from 1


def skip_text(code, at):
    """Returns the end of a string, a character or a raw string that begins here, or None."""
    raw = re.compile(r'(?:u8|[uUL])?R"([^()\\\s]{0,16})\(').match(code, at)
    if raw:
        end = code.find(")" + raw.group(1) + '"', raw.end())
        if end < 0:
            raise Unfinished("a raw string")
        return end + len(raw.group(1)) + 2
    quote = code[at]
    if quote not in "\"'":
        return None
    if quote == "'" and at > 0 and re.match(r"[0-9a-fA-F]", code[at - 1]):
        number = re.search(r"(?<![\w])[0-9][0-9a-fA-FxXb']*$", code[:at])
        if number:  # 1'000'000
            return at + 1
    end = at + 1
    while end < len(code) and code[end] not in (quote, "\n"):
        end += 2 if code[end] == "\\" else 1
    if end >= len(code) or code[end] == "\n":
        raise Unfinished("a string" if quote == '"' else "a character")
    return end + 1


def skip_comment(code, at):
    if code.startswith("//", at):
        end = code.find("\n", at)
        return len(code) if end < 0 else end
    if code.startswith("/*", at):
        end = code.find("*/", at + 2)
        if end < 0:
            raise Unfinished("a comment")
        return end + 2
    return None


def without_comments(code):
    out, at = [], 0
    while at < len(code):
        behind = skip_comment(code, at)
        if behind is not None:
            out.append(re.sub(r"[^\n]", " ", code[at:behind]))
            at = behind
            continue
        behind = skip_text(code, at) or at + 1
        out.append(code[at:behind])
        at = behind
    return "".join(out)


def directive_end(code, at):
    """Returns the end of a preprocessor line; a condition extends to its #endif."""
    depth = 0
    while True:
        end = at
        while True:
            end = code.find("\n", end)
            if end < 0:
                end = len(code)
                break
            if code[end - 1] != "\\":
                break
            end += 1
        word = re.match(r"\s*#\s*(\w*)", code[at:end])
        if word:
            depth += word.group(1) in ("if", "ifdef", "ifndef")
            depth -= word.group(1) == "endif"
        if depth <= 0 or end >= len(code):
            if depth > 0:
                raise Unfinished("an #if without #endif")
            return end
        at = end + 1


def is_body(head):
    """Returns whether the text before a brace opens a body, such as that of a function, a namespace or a
    loop."""
    words = head.strip()
    if not words or CONTROL.match(words) or BODY.match(words):
        return True
    if words.startswith("["):
        return False  # a lambda
    outside = words
    while outside != (shorter := re.sub(r"\([^()]*\)|<[^<>]*>", "", outside)):
        outside = shorter
    if re.search(r"(?<!operator)(?<!operator[=!<>+*/-])=", outside):
        return False  # auto f = [](int x)
    return bool(re.search(r"\)\s*(?:(?:const|noexcept|override|final|&&?)\s*)*(?:->[^{}]*)?$", words))


def block_ends(head, rest):
    """Returns whether a closing brace ends the piece. Decides by the text before the opening brace and the text
    after the closing one: `f() {}` ends, but `= {1, 2};` and `struct S {};` extend to their semicolon."""
    follows = rest.lstrip()
    if GOES_ON.match(follows):
        behind_do = head.strip().startswith("do")
        return follows.startswith("while") and not behind_do
    if re.search(r"\brequires\s*(?:\([^()]*\))?\s*$", head):
        return False
    if not follows:
        return True
    if follows[0] in ";,).=?":
        return False
    if NAMED_TYPE.match(head.strip()) and "(" not in head:
        return False  # struct S { } s;
    return is_body(head) or follows[0] not in "([{*&+-<>:!~/%|^"


def split(code):
    """Returns the pieces of a cell, in order. Raises Unfinished when brackets are open at its end."""
    pieces, at, begin, depth = [], 0, 0, []

    def add(end):
        nonlocal begin
        text = code[begin:end]
        plain = without_comments(text)
        if plain.strip() and plain.strip() != ";":
            lead = len(plain) - len(plain.lstrip())  # leading comments are left out
            first = begin + lead
            text = text[lead:].rstrip()
            words = CUDA_WORDS.match(text)
            if words:
                text = re.sub(r"\S", " ", words[0]) + text[words.end():]
            pieces.append(Piece(text, code.count("\n", 0, first) + 1,
                                first - (code.rfind("\n", 0, first) + 1) + 1))
        begin = end

    while at < len(code):
        char = code[at]
        behind = skip_comment(code, at)
        if behind is None and char == "#" and not depth and \
                not without_comments(code[begin:at]).strip():
            begin, at = at, directive_end(code, at)
            add(at)
            continue
        behind = behind if behind is not None else skip_text(code, at)
        if behind is not None:
            at = behind
            continue
        at += 1
        if char in OPEN:
            depth.append((char, at - 1))
        elif char in CLOSE:
            if not depth or OPEN.index(depth[-1][0]) != CLOSE.index(char):
                depth = []
                at = len(code)  # the compiler reports the error
                break
            opened = depth.pop()[1]
            if char == "}" and not depth and \
                    block_ends(without_comments(code[begin:opened]), without_comments(code[at:])):
                add(at)
        elif char == ";" and not depth:
            head = without_comments(code[begin:at])
            if CONTROL.match(head.strip()) and re.match(r"\s*else\b", without_comments(code[at:])):
                continue  # if (a) b(); else c();
            add(at)
    if depth:
        raise Unfinished(f"a '{depth[-1][0]}'")
    add(len(code))
    return pieces
