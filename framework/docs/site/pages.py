# SPDX-License-Identifier: Apache-2.0
"""Documents, headers and sources of the repository as Markdown pages.

The pages have the same folders as the repository, so links between documents work. A link to a file or
folder that is not a document becomes a link to a page that shows the file. So does the name of a file in
backticks. A page that shows a file is made for every file that a document names, and for every
public header. """

import os
import pathlib
import re

from repository import FOLDERS, PICTURES, SOURCES

LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)(#[^)]*)?\)")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.) ")
LANGUAGES = {
    ".h": "cpp",
    ".cpp": "cpp",
    ".cu": "cuda",
    ".cuh": "cuda",
    ".py": "python",
    ".sh": "bash",
    ".cmake": "cmake",
    ".yaml": "yaml",
    ".txt": "text",
    ".inc": "cpp",
}


def page_of(name):
    """Returns the page that shows a file of the repository."""
    suffix = pathlib.PurePosixPath(name).suffix
    if suffix == ".md":
        return name
    return name[:-6] + ".md" if suffix == ".ipynb" else name + ".md"


class Pages:
    def __init__(self, repository, out):
        self.repository, self.out = repository, out
        self.sources = set()  # files that a page names
        self.listed = set()  # folders without a README that a page links to
        self.pictures = set()  # and records: copied
        self.written = set()

    def write(self, page, text):
        path = self.out / page
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text() != text:  # mkdocs looks at times
            path.write_text(text)
        self.written.add(page)

    def link(self, name, page):
        """Returns the relative link from a page to the page of a file or folder, or None."""
        if name in self.repository.folders:
            inside = "README.md" if name == "." else f"{name}/README.md"
            if inside not in self.repository.known:
                self.listed.add(name)
                inside = f"{name}/index.md"
            target = inside
        else:
            suffix = pathlib.PurePosixPath(name).suffix
            if suffix in PICTURES:
                self.pictures.add(name)
                target = name
            else:
                if suffix in SOURCES or suffix == "":
                    self.sources.add(name)
                elif suffix not in (".md", ".ipynb"):
                    return None
                target = page_of(name)
        return os.path.relpath(target, os.path.dirname(page) or ".")

    def link_targets(self, line, name):
        def replace(match):
            word, anchor = match[2], match[3] or ""
            if "://" in word or word.startswith("mailto:"):
                return match[0]
            target = self.repository.target(word, name)
            if target and target.endswith(".json"):  # a record: copied as it is
                self.pictures.add(target)
                way = os.path.relpath(target, os.path.dirname(page_of(name)) or ".")
            else:
                way = target and self.link(target, page_of(name))
            return f"{match[1]}{way}{anchor})" if way else match[0]

        return LINK.sub(replace, line)

    def link_names(self, line, name):
        """Turns names of files in backticks, such as `layers/conv2d/conv2d.h`, into links, except inside of links."""
        pieces, end = [], 0
        inside = [match.span() for match in LINK.finditer(line)]
        for match in CODE.finditer(line):
            target = self.repository.named(match[1], name)
            if (
                not target
                or target == name
                or any(a < match.end() and match.start() < b for a, b in inside)
            ):
                continue
            way = self.link(target, page_of(name))
            if way:
                pieces += [line[end : match.start()], f"[{match[0]}]({way})"]
                end = match.end()
        return "".join(pieces) + line[end:]

    def converted(self, text, name):
        """Returns the text of a document, converted to the Markdown of mkdocs."""
        out, fenced, before = [], False, ""
        in_list = False
        for line in text.split("\n"):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced and not line.startswith("    "):
                if not line.strip():
                    in_list = False
                elif ITEM.match(line):
                    # A list may directly follow a paragraph, but Python-Markdown requires an empty
                    # line between them.
                    if before.strip() and not in_list:
                        out.append("")
                    in_list = True
                line = self.link_targets(self.link_names(line, name), name)
                line = line.replace("<details>", '<details markdown="1">')
            out.append(line)
            before = line
        return "\n".join(out)

    def document(self, name):
        self.write(name, self.converted(self.repository.text(name), name))

    def source(self, name):
        text = self.repository.text(name)
        language = LANGUAGES.get(pathlib.PurePosixPath(name).suffix, "text")
        if name == "bootstrap.sh" or name.endswith("/run"):
            language = "bash"
        self.write(
            page_of(name),
            f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n" + code_block(text, language),
        )

    def folder(self, name):
        names = sorted(
            path[len(name) + 1 :] for path in self.repository.files if path.startswith(name + "/")
        )
        lines = []
        for one in names:
            way = self.link(f"{name}/{one}", f"{name}/index.md")
            lines.append(f"- [`{one}`]({way})" if way else f"- `{one}`")
        self.write(
            f"{name}/index.md", f"# {name}\n\n{len(names)} files.\n\n" + "\n".join(lines) + "\n"
        )

    def header(self, name, includers):
        """Writes the page of a C++ header: its first comment, its declarations, and its includes."""
        lines = self.repository.text(name).split("\n")
        head = 0
        while head < len(lines) and lines[head].startswith("//"):
            head += 1
        comment = [
            line[2:].removeprefix(" ") for line in lines[:head] if "SPDX-License" not in line
        ]
        code = lines[head:]
        while code and (not code[0].strip() or code[0].startswith(("#pragma once", "#include"))):
            code = code[1:]
        first = len(lines) - len(code) + 1
        own = [
            match[1] for match in (re.match(r'#include "([^"]+)"', line) for line in lines) if match
        ]
        parts = [
            f"# {name}\n",
            comment_text(comment),
            f'\n```cpp\n#include "{name}"\n```\n',
            code_block("\n".join(code), "cpp", first),
        ]
        for title, names in (("Includes", own), ("Included by", sorted(includers))):
            ways = [
                f"[`{one}`]({self.link(one, page_of(name))})"
                for one in names
                if one in self.repository.known
            ]
            if ways:
                parts.append(f"\n**{title}** " + ", ".join(ways) + "\n")
        self.write(page_of(name), "\n".join(parts))

    def headers(self, index):
        names = self.repository.headers()
        includers = {name: [] for name in names}
        for name in names:
            for one in re.findall(r'(?m)^#include "([^"]+)"', self.repository.text(name)):
                includers.get(one, []).append(name)
        lines = [
            "# C++ headers",
            "",
            f"{len(names)} headers, as `cmake --install` copies them. A page is the file itself.",
        ]
        folder = None
        for name in sorted(
            names, key=lambda one: (FOLDERS.index(one.split("/")[0]), os.path.dirname(one), one)
        ):
            self.header(name, includers[name])
            if os.path.dirname(name) != folder:
                folder = os.path.dirname(name)
                lines += ["", f"## {folder}", "", "| header | what it is |", "|---|---|"]
            way = os.path.relpath(page_of(name), os.path.dirname(index) or ".")
            sentence = first_sentence(self.repository.text(name))
            lines.append(f"| [`{os.path.basename(name)}`]({way}) | {sentence} |")
        self.write(index, "\n".join(lines) + "\n")

    def rest(self):
        """Writes a page for each file and folder to which a page links. The new pages contain links, too, so the
        method repeats until every linked file has a page. Then copies the pictures, and removes the files of an
        earlier call."""
        done = set()
        while True:
            new = [
                name
                for name in sorted(self.sources | self.listed)
                if page_of(name) not in self.written and name not in done
            ]
            if not new:
                break
            for name in new:
                done.add(name)
                self.folder(name) if name in self.repository.folders else self.source(name)
        for name in self.pictures:
            path = self.out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((self.repository.root / name).read_bytes())
            self.written.add(name)
        for path in self.out.rglob("*"):
            if path.is_file() and path.relative_to(self.out).as_posix() not in self.written:
                path.unlink()


def code_block(text, language, first=1):
    fence = "```"
    while fence in text:
        fence += "`"
    return f'{fence}{language} linenums="{first}"\n{text.rstrip()}\n{fence}\n'


def plain(text):
    """Returns the text of a comment with Markdown escaped, except in backticks."""
    if text.count("`") % 2 == 1:
        return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)
    parts = text.split("`")
    parts[::2] = [re.sub(r"([\\*_\[\]<>|])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def comment_text(lines):
    """Returns the paragraphs of a comment as Markdown. Paragraphs with columns become code blocks."""
    out = []
    for paragraph in "\n".join(lines).strip().split("\n\n"):
        if re.search(r"(?m)^ {2,}|\S {2,}\S", paragraph):
            out.append("```text\n" + paragraph + "\n```")
        else:
            out.append(plain(paragraph))
    return "\n\n".join(out) + "\n"


def first_sentence(text):
    words = []
    for line in text.split("\n"):
        if not line.startswith("//"):
            break
        if "SPDX-License" not in line:
            if line.strip() == "//":
                break
            words.append(line[2:].strip())
    sentence = re.sub(r"^[\w./]+: ", "", " ".join(words))
    return plain(re.split(r"(?<=[.:;]) (?=[A-Z(])", sentence)[0])
