# SPDX-License-Identifier: Apache-2.0
"""Pages of what the program says of itself: commands, keys of configs, the manual page."""

import re
import subprocess

from pages import plain


class ProgramError(Exception):
    """A call of the program that failed, in a sentence."""


def say(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise ProgramError(
            f"expected `convscope {' '.join(words)}` to end with 0, got {done.returncode}: "
            f"{done.stderr.strip()}"
        )
    return done.stdout


def command_names(program):
    block = re.search(r"(?ms)^Train:\n(.*?)^Examples:\n", say(program, "--help"))[1]
    return re.findall(r"(?m)^  (\S+)", block)


def commands_page(program):
    parts = [
        "# Commands",
        "",
        "What `convscope help` and `convscope help COMMAND` print.",
        "",
        "```text",
        say(program, "--help").rstrip(),
        "```",
    ]
    for name in command_names(program):
        if name != "help":
            parts += [
                "",
                f"## convscope {name}",
                "",
                "```text",
                say(program, "help", name).rstrip(),
                "```",
            ]
    return "\n".join(parts) + "\n"


def keys_page(program):
    """`config keys` prints a name, then its lines, four columns in."""
    parts = [
        "# Keys of configs",
        "",
        "What `convscope config keys` prints. A name in brackets says for "
        "which value of the block's type a key is there.",
    ]
    part, count = None, 0
    for line in say(program, "config", "keys").rstrip().split("\n"):
        if line.startswith("    "):
            parts.append(plain(line.strip()) + "  ")
            continue
        first = re.split(r"[.\[]", line)[0]
        if "." in line and first != part:
            part = first
            parts += ["", f"## {part}"]
        parts += ["", f"### `{line}`", ""]
        count += 1
    return "\n".join(parts) + "\n", count


def manual_page(program):
    """(page, HTML or None): mandoc makes HTML of it; without mandoc the page is the roff text."""
    text = say(program, "man")
    try:
        done = subprocess.run(
            ["mandoc", "-T", "html", "-O", "fragment"],
            input=text,
            text=True,
            capture_output=True,
            check=True,
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        return f"# Manual page\n\n```text\n{text.rstrip()}\n```\n", None
    body = re.sub(r"(?s)<table class=\"(head|foot)\">.*?</table>", "", done.stdout)
    body = body.replace("<h1 ", "<h2 ").replace("</h1>", "</h2>")
    return (
        "# Manual page\n\nWhat `man convscope` shows.\n\nCONVSCOPE-HTML-manual\n",
        f'<div class="manual">{body}</div>',
    )
