# SPDX-License-Identifier: Apache-2.0
"""Makes pages from the output of the program: commands, keys of configs, the manual page."""

import re
import subprocess

from pages import plain


class ProgramError(Exception):
    """An error whose message says which call of the program has failed."""


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
        "The output of `convscope help` and `convscope help COMMAND`.",
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
    """Returns the page of the keys and their number. `config keys` indents the lines that describe a key."""
    parts = [
        "# Keys of configs",
        "",
        "The output of `convscope config keys`. A name in brackets: the key exists only for this "
        "type of the block.",
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
    """Returns the page of the manual and its HTML. Without mandoc, the page is roff text, and the HTML is None."""
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
        "# Manual page\n\nThe manual page that `man convscope` shows.\n\nCONVSCOPE-HTML-manual\n",
        f'<div class="manual">{body}</div>',
    )
