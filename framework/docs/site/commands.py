#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the program accepts every command that a document shows: commands.py PROGRAM ROOT

The program parses each command and stops (CONVSCOPE_PARSE_ONLY). For `run`, `explain` and `sweep`,
the config is resolved too, with the keys that the command changes. Words such as CONFIG are replaced
first. Another test runs the commands of the README and the guides (tests/experiments/readme).
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from repository import Repository  # noqa: E402

PLACEHOLDERS = {
    "CONFIG": "quickstart",
    "CONFIG|MODEL": "resnet18",
    "ALGORITHM": "winograd",
    "NAME": "direct",
    "<name>": "direct",
    "<name>,direct": "direct",
    "COMMAND": "run",
}
IN_TEXT = re.compile(r"`(?:build/release/bin/)?convscope ([^`]+)`")
IN_BLOCK = re.compile(r"^\s*(?:\$ )?(?:\S*/)?convscope ((?![ :]).*)")
# Lines with output of the program, or with the usage of a command.
NO_COMMAND = re.compile(r"^\S*:|\[|\||^info +→")
NO_DEVICE = 5  # exit code of a correct command on a machine without a GPU
LEFT_OUT = {"CHANGELOG.md"}  # may name commands of earlier versions


def shown(text):
    """Returns (line number, command, whether the command is in a sentence) for each command in a document."""
    found, fenced, joined = [], False, None
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if joined is not None:
            found[-1] = (
                found[-1][0],
                found[-1][1] + " " + line.strip().rstrip("\\").strip(),
                False,
            )
            joined = True if line.rstrip().endswith("\\") else None
            continue
        if fenced or line.startswith("    "):
            match = IN_BLOCK.match(line)
            if match:
                command = re.split(r"\s+#", match[1])[0]
                joined = True if command.rstrip().endswith("\\") else None
                found.append((number, command.rstrip("\\ "), False))
        else:
            found += [(number, command, True) for command in IN_TEXT.findall(line)]
    return found


def words_of(command):
    # A command ends at a pipe or a redirection.
    words = []
    for word in shlex.split(command, comments=False):
        if word in ("|", "&&", ";", ">", "2>"):
            break
        word = PLACEHOLDERS.get(word, word).removesuffix("...")
        if word:
            words.append(word)
    return words


def call(program, words, **environment):
    done = subprocess.run(
        [program, *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stderr.strip().split("\n")[0]


def resolves(program, words):
    """Resolves the config that a command names, with the keys that the command changes."""
    kind, rest = words[0], words[1:]
    at = next((i for i, word in enumerate(rest) if not word.startswith("-")), None)
    if kind not in ("run", "explain", "sweep") or at is None:
        return 0, ""
    # The value of an option does not change the config.
    launcher_options = [
        word
        for i, word in enumerate(rest)
        if {word, rest[i - 1] if i else ""} & {"--launcher", "--slurm"}
    ]
    changes = [
        word
        for i, word in enumerate(rest[at + 1 :], at)
        if re.match(r"[\w.\[\]]+=", word) and rest[i] != "--slurm"
    ]
    # `experiments/configs/...`: any of them.
    if not re.fullmatch(r"[\w./-]+[\w]", rest[at]) or rest[at].startswith(("my", "mine")):
        return 0, ""
    if kind == "sweep" and "--work" in rest:  # --work takes a folder that a sweep has prepared
        return 0, ""
    if kind == "sweep":
        return call(program, ["sweep", rest[at], "--dry-run", *launcher_options, *changes])
    code, text = call(program, ["config", "check", rest[at], *changes])
    return (0, "") if code == NO_DEVICE else (code, text)


def names_command(program, words):
    """Returns true for a text such as `bench conv2d --json`, which only names a command and options."""
    names = [word for word in words if re.fullmatch(r"[a-z][a-z0-9_]*", word)]
    options = [word for word in words if re.fullmatch(r"--[a-z-]+", word)]
    if len(names) + len(options) != len(words):
        return False
    done = subprocess.run([program, "help", *names], capture_output=True, text=True)
    return done.returncode == 0 and all(
        re.search(rf"{option}\b", done.stdout) for option in options
    )


def problem(program, command, in_text):
    """Returns a sentence that says what is wrong with a command, or ""."""
    words = words_of(command)
    code, text = call(program, words, CONVSCOPE_PARSE_ONLY="1")
    if code != 0 and in_text and names_command(program, words):
        return ""
    if code == 0 and len(words) > 1:
        code, text = resolves(program, words)
    return "" if code == 0 else f"exit code {code}: {text}"


def check(program, repository):
    """Returns the problems, the number of parsed commands, and the number of texts that only name a command."""
    found, parsed, forms = [], 0, 0
    if subprocess.run(
        [program, "info"], capture_output=True, env={**os.environ, "CONVSCOPE_PARSE_ONLY": "1"}
    ).stdout:
        return (
            [
                f"expected {program} to stop after parsing (CONVSCOPE_PARSE_ONLY), got output"
            ],
            0,
            0,
        )
    for name in repository.documents():
        if name in LEFT_OUT or "/records/" in name:
            continue
        for number, command, in_text in shown(repository.text(name)):
            if NO_COMMAND.search(re.sub(r"\"[^\"]*\"|'[^']*'", "", command)):
                forms += 1
                continue
            parsed += 1
            wrong = problem(program, command, in_text)
            if wrong:
                found.append(f"{name}:{number}: convscope {command}: {wrong}")
    return found, parsed, forms


def main():
    program, root = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    os.chdir(root)
    found, parsed, forms = check(str(program), Repository(root))
    print("\n".join(found))
    print(f"{parsed} commands parsed, {forms} forms of commands left out, {len(found)} problems")
    sys.exit(1 if found or parsed < 100 else 0)


if __name__ == "__main__":
    main()
