#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Text is plain English: no private words, riddles of sentences, history or overlong sentences.

Reads Markdown and the comments and docstrings of C++, CUDA, Python, shell and CMake; code in backticks
and code blocks are not text. words_rules.py holds the patterns. Counts by folder and rule may only fall:
words_baseline.json holds those of today.

    check_words.py                     compare the repository with its baseline (as ctest does)
    check_words.py PATH...             list all findings in files or folders; exit 1 if there are any
    check_words.py --counts            print the counts by folder and rule
    check_words.py --write-baseline    write the counts of today
    check_words.py --sample 100        print paragraphs at random (--seed), for readers to judge; with --heads
                                       from Markdown and the beginnings of files only
"""
import argparse
import bisect
import collections
import itertools
import json
import os
import pathlib
import random
import re
import sys

from words_rules import (ALLOWED, HISTORY, HISTORY_EXEMPT, HISTORY_NEEDLES, MARK, MAYBE_OPENING, NOT_VERBS, OPENINGS,
                         OTHER_VERBS, PRIVATE, SENTENCE_EXEMPT)

TOP = ["framework", "layers", "optim", "quant", "sparsity", "datasets", "experiments", "tests", ".ci"]
CODE = {".h", ".cpp", ".cu", ".cuh"}
HASHED = {".py", ".sh", ".cmake"}
BASELINE = "tests/repo/words_baseline.json"
MOST_WORDS = 35
README_LINES = 120
CHANGELOG_LINES = 60
CHANGELOG_KINDS = {"Added", "Changed", "Fixed", "Performance", "Deprecated", "Removed", "Security"}


class Unit:
    """Lines of running text that belong together; `prose` is false for tables and headings."""

    def __init__(self, prose=True):
        self.starts, self.numbers, self.parts, self.length, self.prose = [], [], [], 0, prose

    def add(self, number, text):
        self.starts.append(self.length)
        self.numbers.append(number)
        self.parts.append(text)
        self.length += len(text) + 1

    def text(self):
        return " ".join(self.parts)

    def line(self, offset):
        return self.numbers[bisect.bisect_right(self.starts, offset) - 1]


# ---- text of files ------------------------------------------------------------------------------

BACKTICKS = re.compile(r"``.+?``|`[^`]*`")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
URL = re.compile(r"https?://\S+|<!--.*?-->")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
LABEL = re.compile(r"(\s*\S+(?: \S+){0,3})\s{2,}(?=\S)")  # "Method     tiles of ..."


def plain(text):
    """Replaces code and addresses by a mark of the same length, and links by their text."""
    if "`" in text:
        text = BACKTICKS.sub(lambda match: MARK.ljust(len(match.group()), "_"), text)
    if "](" in text:
        text = LINK.sub(r"\1", text)
    return URL.sub(MARK, text) if "http" in text or "<!--" in text else text


def markdown_units(lines):
    fenced, unit = False, None
    previous_blank = True
    for number, line in enumerate(lines, 1):
        stripped = line.lstrip()
        if stripped.startswith(("```", "~~~")):
            fenced, unit = not fenced, None
            continue
        if fenced or not stripped or (line.startswith("    ") and previous_blank and unit is None):
            unit = None
            previous_blank = not stripped or previous_blank
            continue
        previous_blank = False
        if stripped.startswith(("#", "|", "<", "> ")):
            whole = Unit(prose=stripped.startswith("> "))
            whole.add(number, plain(stripped.lstrip("#> ")))
            yield whole
            unit = None
            continue
        if unit is None or ITEM.match(line):
            if unit is not None:
                yield unit
            unit = Unit()
        unit.add(number, plain(ITEM.sub("", stripped) if ITEM.match(line) else stripped))
        following = lines[number].strip() if number < len(lines) else ""
        if not following or following.startswith(("```", "#", "|", "<", "> ")):
            yield unit
            unit = None


STRING = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'')
RAW = re.compile(r'R"(\w*)\((.*?)\)\1"', re.DOTALL)
BLOCK = re.compile(r"^[ \t]*/\*.*?\*/", re.DOTALL | re.MULTILINE)


def cpp_comments(text):
    """Yields (line, column, text, alone on its line) of each comment line."""
    if 'R"' in text:
        text = RAW.sub(lambda match: '""' + "\n" * match.group().count("\n"), text)
    if "/*" in text:
        text = BLOCK.sub(lambda match: re.sub(r"^[ \t]*/?\*+/?", "//", match.group(), flags=re.MULTILINE), text)
    for number, line in enumerate(text.split("\n"), 1):
        at = line.find("//")
        if at < 0:
            continue
        if '"' in line[:at] or "'" in line[:at]:
            at = STRING.sub(lambda match: "_" * len(match.group()), line).find("//")
            if at < 0:
                continue
        yield number, at, line[at + 2:], not line[:at].strip()


DOCSTRING = re.compile(r'^[ \t]*[rbfu]*("""|\'\'\')(.*?)\1[ \t]*$', re.DOTALL | re.MULTILINE)
QUOTED = re.compile(r'("""|\'\'\').*?\1', re.DOTALL)
HASH_STRING = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'')


def hashed_comments(text, python):
    if python:
        found = []
        for match in DOCSTRING.finditer(text):
            first = text.count("\n", 0, match.start(2)) + 1
            column = match.start() - text.rfind("\n", 0, match.start()) - 1
            column += len(match.group()) - len(match.group().lstrip())
            found += [(first + i, column, part[column:] if i and not part[:column].strip() else part, True)
                      for i, part in enumerate(match.group(2).split("\n"))]
            found.append((first + len(match.group(2).split("\n")) - 1, column, "", True))
        yield from found
        text = QUOTED.sub(lambda match: '""' + "\n" * match.group().count("\n"), text)
    for number, line in enumerate(text.split("\n"), 1):
        at = line.find("#")
        if at < 0 or line.startswith("#!"):
            continue
        if '"' in line[:at] or "'" in line[:at]:
            at = HASH_STRING.sub(lambda match: "_" * len(match.group()), line).find("#")
        if at < 0 or (at and line[at - 1] not in " \t"):
            continue
        yield number, at, line[at + 1:], not line[:at].strip()


def comment_units(comments):
    """Comment lines joined to paragraphs: an empty line, a label, an item or an indent begins a new one."""
    unit, last, where, column = None, -1, -1, 0
    for number, at, text, alone in comments:
        content = text.strip()
        if content.startswith("SPDX-License") or content.startswith("---- ") or \
                content.startswith("namespace ") or not content:
            content = ""
        indent = len(text) - len(text.lstrip())
        item, label = ITEM.match(text), LABEL.match(text)
        follows = unit is not None and number == last + 1 and at == where and alone
        if not (follows and content and not item and not label and indent == column and is_prose(content)):
            if unit is not None:
                yield unit
            unit = None
        if content:
            if unit is None:
                unit = Unit(prose=is_prose(content))
                column = item.end() if item else label.end() if label else indent
                content = text[column:] if item or label else content
            unit.add(number, plain(content))
            where = at
        last = number
    if unit is not None:
        yield unit


PLAIN_WORD = re.compile(r"(?:^|(?<= ))[^\s\[\]=(){}<>*]*[A-Za-z]{2}[^\s\[\]=(){}<>*]*\S?(?= |$)")


def is_prose(content):
    """Tells whether text is prose, not a formula, table row or code: most of its tokens are words."""
    if "   " in content and re.search(r"\S\s{3,}\S", content):
        return False
    return 2 * len(PLAIN_WORD.findall(content)) >= len(content.split())


def units_of(path, text):
    if path.suffix == ".md":
        return list(markdown_units(text.split("\n")))
    if path.suffix in CODE:
        return list(comment_units(cpp_comments(text)))
    return list(comment_units(hashed_comments(text, path.suffix == ".py")))


# ---- rules --------------------------------------------------------------------------------------

# A sentence may begin with an identifier: then no abbreviation or ellipsis may come before.
END = re.compile(r"(?<![.\s][A-Z]\.)(?<!e\.g\.)(?<!i\.e\.)(?<=[.!?])[)\"'*_]*\s+"
                 r"(?:(?=[A-Z`\"(*\[_0-9])|(?<!\bal\. )(?<!etc\. )(?<!vs\. )(?<!\.\.\. )(?=[a-z]))")
WORD = re.compile(r"[A-Za-z]{2,}[\w'/-]*|\ba\b|\bI\b")


def sentences(text):
    start = 0
    for match in END.finditer(text):
        yield start, text[start:match.start() + 1]
        start = match.end()
    yield start, text[start:]


def text_findings(path, units):
    texts = [unit.text() for unit in units]
    starts = list(itertools.accumulate((len(text) + 1 for text in texts), initial=0))
    low = "\n".join(texts).lower()

    def matches(needles, pattern):
        """Yields matches. A pattern is slow, so it runs only on units that contain its `needle`."""
        hits = set()
        for needle in needles:
            at = low.find(needle)
            while at >= 0:
                hits.add(bisect.bisect_right(starts, at) - 1)
                at = low.find(needle, at + 1)
        for index in sorted(hits):
            for match in pattern.finditer(texts[index]):
                yield texts[index], match, units[index].line(match.start())

    for rule, word, needles, pattern in PRIVATE:
        for text, match, line in matches(needles, pattern):
            if not in_formula(text, match) and not allowed(path, word, text, match):
                yield line, rule, f"'{match.group().strip()}': {word}"
    if not HISTORY_EXEMPT.search(path):
        for text, match, line in matches(HISTORY_NEEDLES, HISTORY):
            yield line, "history", f"'{match.group()}': reference text is in the present tense"
    if SENTENCE_EXEMPT.search(path):
        return
    for unit, text in zip(units, texts):
        if not unit.prose or len(text) <= 120 and not MAYBE_OPENING.search(text):
            continue
        for start, sentence in sentences(text):
            match = OPENINGS.match(sentence)
            if match:
                yield unit.line(start), "opening", f"a sentence begins with '{match.group(1)}': name the subject first"
            if len(sentence) > 120 and (count := len(WORD.findall(sentence))) > MOST_WORDS:
                yield unit.line(start), "long", f"a sentence of {count} words, at most {MOST_WORDS}"


def in_formula(text, match):
    """Tells whether the match is a name in a formula, in the shape of an array, of a file, or a quoted key."""
    left, right = text[:match.start()], text[match.end():]
    if re.match(r"\.\w|[(\[]", right) or left[-1:] + right[:1] == '""':
        return True
    return (left.rstrip()[-1:] in set("<>=+*[") or right.lstrip()[:1] in set("<>=+*]") or
            left.rfind("[") > left.rfind("]"))


def allowed(path, word, text, match):
    """Returns the uses that ALLOWED lists: (word, part of the path, words around the match)."""
    around = text[max(0, match.start() - 40):match.end() + 40]
    return any(word == entry[0] and entry[1] in path and entry[2] in around for entry in ALLOWED)


FUNCTION = re.compile(r"^(?:[\w:<>,*&\s\[\]().]+?[\s*&](?:~?\w+|operator\S+)|~?[A-Z]\w*|explicit \w+)\s*\(")
NO_FUNCTION = re.compile(r"^(?:#|struct\b|class\b|enum\b|using\b|namespace\b|concept\b|static_assert|union\b|typedef\b"
                         r"|public:|private:|protected:|case\b|return\b|if\b|for\b|while\b|[A-Z_0-9]+\(|\}|\{|friend\b)")
PREFIX = re.compile(r"^(?:template\s*<[^;{]*?>\s*(?=[\w\[])|CONVSCOPE_\w+\s+|\[\[.*?\]\]\s*)+")


def docstring_findings(text):
    """Comments above functions of a public header that do not begin with a verb."""
    lines = text.split("\n")
    private, first = False, None
    for index, line in enumerate(lines):
        bare = line.strip()
        if bare in ("private:", "protected:"):
            private = True
        elif bare == "public:" or line.startswith(("};", "class ", "struct ")):
            private = False
        if bare.startswith("//"):
            first = index if first is None else first
            continue
        above, first = first, None
        if above is None or above < 2 or private or not bare:
            continue
        code = PREFIX.sub("", " ".join(part.split("//")[0].strip() for part in lines[index:index + 4]))
        if NO_FUNCTION.match(code):
            continue
        head = re.split(r"[;={]", code, maxsplit=1)[0]
        if not FUNCTION.match(head) or "(*" in head:
            continue
        if re.match(r"\s*// ----", lines[above]):
            continue
        comment = lines[above].strip().lstrip("/ ")
        comment = re.sub(r"^(?:For|In|On|With|After|Before)\b[^:,]{0,40}[:,] ", "", comment)
        word = re.match(r"[^\w`]*([\w'`-]*)", comment).group(1)
        if word.lower() in OTHER_VERBS or (re.fullmatch(r"[A-Za-z][a-z-]+s", word) and
                                           word.lower() not in NOT_VERBS):
            continue
        yield above + 1, "docstring", f"'{comment[:40]}': begin with a verb, as in 'Returns ...'"


def document_findings(path, text):
    lines = text.rstrip("\n").split("\n")
    if path == "README.md" and len(lines) > README_LINES:
        yield README_LINES + 1, "readme", f"{len(lines)} lines, at most {README_LINES}"
    if path == "CHANGELOG.md":
        yield from changelog_findings(lines)


def changelog_findings(lines):
    heads = [(number, line[3:].strip()) for number, line in enumerate(lines, 1) if line.startswith("## ")]
    if not heads or not heads[0][1].startswith("[Unreleased]"):
        yield heads[0][0] if heads else 1, "changelog", "the first section is '## [Unreleased]'"
    for at, (number, head) in enumerate(heads):
        end = heads[at + 1][0] - 1 if at + 1 < len(heads) else len(lines)
        if not re.match(r"\[Unreleased\]$|\[?\d+\.\d+\.\d+\]?( \(\d{4}-\d\d-\d\d\)| - \d{4}-\d\d-\d\d)$", head):
            yield number, "changelog", f"'{head}': expected [Unreleased], or '[1.2.3] - 2026-01-31'"
        if "0.1.0" in head and end - number > CHANGELOG_LINES:
            yield number, "changelog", f"{end - number} lines, at most {CHANGELOG_LINES}"
        kind = False
        for below in range(number + 1, end + 1):
            line = lines[below - 1]
            if line.startswith("### "):
                kind = True
                if line[4:].strip() not in CHANGELOG_KINDS:
                    yield below, "changelog", f"'{line[4:].strip()}': expected one of {', '.join(sorted(CHANGELOG_KINDS))}"
            elif line.startswith("- ") and not kind:
                yield below, "changelog", "an entry without a heading such as '### Added'"
                break


def is_public(path):
    """As sources.public_headers(): what `cmake --install` copies."""
    return path.endswith(".h") and not path.startswith(
        ("tests/", "experiments/baselines/", "experiments/python/", "experiments/notebooks/kernel/"))


def findings(root, path):
    """Returns sorted (line, rule, message) of one file; path is relative to root."""
    name = path.as_posix()
    text = (root / path).read_text(errors="replace")
    found = list(text_findings(name, units_of(path, text)))
    if path.suffix == ".md":
        found += document_findings(name, text)
    elif is_public(name):
        found += docstring_findings(text)
    return sorted(found)


# ---- files, counts and the baseline -------------------------------------------------------------

def wanted(name, where):
    if "/records/" in f"/{where}/{name}" or name in ("check_words.py", "words_rules.py"):
        return False
    suffix = pathlib.PurePath(name).suffix
    return suffix in CODE or suffix in HASHED or suffix == ".md" or name == "CMakeLists.txt"


def files_of(root, places=None):
    if places:
        starts = [root / place for place in places]
    else:
        starts = [root / top for top in TOP] + [root / name for name in sorted(os.listdir(root))
                                                if (root / name).is_file()]
    for start in starts:
        if start.is_file() and wanted(start.name, start.parent.relative_to(root).as_posix()):
            yield start.relative_to(root)
        for base, below, names in os.walk(start):
            below[:] = sorted(name for name in below if not name.startswith((".", "__")))
            here = pathlib.Path(base).relative_to(root)
            yield from (here / name for name in sorted(names) if wanted(name, here.as_posix()))


def folder_of(path):
    """Returns the folder that a file counts for: two levels, three below layers/conv2d and tests/layers."""
    parts = path.parts[:-1]
    deep = parts[:2] in (("layers", "conv2d"), ("tests", "layers"))
    return "/".join(parts[:3 if deep else 2]) or "."


def counts_of(root, places=None):
    counts, listed = collections.defaultdict(collections.Counter), []
    for path in files_of(root, places):
        for line, rule, message in findings(root, path):
            counts[folder_of(path)][rule] += 1
            listed.append((folder_of(path), rule, f"{path.as_posix()}:{line}: {rule}: {message}"))
    return counts, listed


def problems(root):
    """Returns what differs from the baseline: findings of folders that have more, and counts that fell."""
    counts, listed = counts_of(root)
    noted = json.loads((root / BASELINE).read_text()) if (root / BASELINE).exists() else {}
    found = []
    for folder in sorted(set(counts) | set(noted)):
        for rule in sorted(set(counts.get(folder, {})) | set(noted.get(folder, {}))):
            now, before = counts.get(folder, {}).get(rule, 0), noted.get(folder, {}).get(rule, 0)
            if now > before:
                found += [text for at, name, text in listed if (at, name) == (folder, rule)]
                found.append(f"{folder}: {now} findings of '{rule}', {BASELINE} allows {before}: mend at least "
                             f"{now - before}")
            elif now < before:
                found.append(f"{folder}: {now} findings of '{rule}', {BASELINE} still allows {before}: run "
                             "python3 tests/repo/check_words.py --write-baseline")
    return found


def write_baseline(root):
    counts, _ = counts_of(root)
    rows = [f"  {json.dumps(folder)}: {json.dumps(counts[folder], sort_keys=True)}" for folder in sorted(counts)]
    (root / BASELINE).write_text("{\n" + ",\n".join(rows) + "\n}\n")


def head_of(path, lines):
    """Returns the number of the last line of the comment or docstring that begins a file; all of a document."""
    if path.suffix == ".md":
        return len(lines)
    if any(line.startswith('"""') for line in lines[:3]):
        return next((number for number, line in enumerate(lines, 1) if number > 3 and '"""' in line), 3)
    mark = "//" if any(line.startswith("//") for line in lines[:2]) else "#"
    return next((number - 1 for number, line in enumerate(lines, 1) if not line.startswith(mark)), len(lines))


def sample(root, places, count, seed, heads):
    """Returns `count` paragraphs, each of at least 12 words; fixed by the seed. They come from Markdown and from
    comments: from all comments, or (`heads`) only from those at the beginning of a file."""
    found = []
    for path in files_of(root, places):
        lines = (root / path).read_text(errors="replace").split("\n")
        for unit in units_of(path, "\n".join(lines)):
            if heads and unit.numbers[0] > head_of(path, lines):
                continue
            if unit.prose and len(unit.text().split()) >= 12:
                text = [lines[number - 1].strip() for number in unit.numbers]
                found.append(f"{path.as_posix()}:{unit.numbers[0]}\n" + "\n".join(text))
    return random.Random(seed).sample(found, min(count, len(found)))


def table(counts):
    rules = sorted({rule for row in counts.values() for rule in row})
    width = max(map(len, counts), default=0) + 2
    head = "folder".ljust(width) + "".join(rule.rjust(max(len(rule), 6) + 2) for rule in [*rules, "all"])
    total = collections.Counter()
    lines = [head]
    for folder in sorted(counts):
        total.update(counts[folder])
    for folder, row in [*sorted(counts.items()), ("all", total)]:
        lines.append(folder.ljust(width) + "".join(
            str(row[rule]).rjust(max(len(rule), 6) + 2) for rule in rules) + str(sum(row.values())).rjust(8))
    return "\n".join(lines)


def root_of(start):
    """Returns the repository of a folder: the nearest parent that has a tests/repo."""
    return next((folder for folder in (start, *start.parents) if (folder / "tests" / "repo").is_dir()), start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=pathlib.Path, help="files or folders; one repository: its root")
    parser.add_argument("--root", type=pathlib.Path, help="the repository; default: the one around this folder")
    parser.add_argument("--counts", action="store_true", help="print counts by folder and rule")
    parser.add_argument("--write-baseline", action="store_true", help=f"write {BASELINE}")
    parser.add_argument("--sample", type=int, metavar="N", help="print N paragraphs at random")
    parser.add_argument("--seed", type=int, default=49, help="of --sample, default 49")
    parser.add_argument("--heads", action="store_true", help="with --sample: no comments inside of files")
    parser.add_argument("--list", action="store_true", help="list every finding of the repository")
    args = parser.parse_args()
    root = args.root and args.root.resolve()
    if len(args.paths) == 1 and (args.paths[0] / "tests" / "repo").is_dir():
        root = args.paths.pop().resolve()
    root = root or root_of(pathlib.Path.cwd())
    places = [path.resolve() if path.exists() else (root / path).resolve() for path in args.paths]
    missing = [path for path in places if not path.exists() or not path.is_relative_to(root)]
    if missing:
        sys.exit(f"{missing[0]}: not a file or folder of {root}")
    if args.write_baseline:
        write_baseline(root)
        return
    if args.sample:
        for number, text in enumerate(sample(root, places, args.sample, args.seed, args.heads), 1):
            print(f"[{number}] {text}\n")
        return
    if args.counts:
        print(table(counts_of(root, places)[0]))
        return
    found = [text for _, _, text in counts_of(root, places)[1]] if places or args.list else problems(root)
    for problem in found:
        print(problem)
    print(f"{len(found)} problems")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
