#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The recorded number of the plug-in interface matches its headers.

A plug-in is built with the current headers, and a later program opens it. The program compares sizes and offsets,
but cannot detect that a member has a new meaning. If a change of the code of these headers breaks older plug-ins,
raise kPluginInterface; changes of comments do not count. After any change, copy the line that this check prints
into plugin_interface.txt.
"""
import hashlib
import re

from sources import main

NUMBER = re.compile(r"kPluginInterface = (\d+);")
FACTS = "layers/dispatch/plugin/plugin_facts.h"
# Headers that a plug-in receives, implements or compiles.
HEADERS = [FACTS, "layers/conv2d/plugin.h", "layers/conv2d/algorithm.h", "layers/conv2d/problem.h",
           "layers/conv2d/ladder.h", "layers/dispatch/algorithm.h", "layers/dispatch/algorithm_function.h",
           "layers/dispatch/direction.h", "layers/dispatch/elements.h",
           "layers/dispatch/layout/half_operands.h", "layers/dispatch/weight_format.h",
           "layers/dispatch/operand_specs.h",
           "framework/dtype.h", "framework/precision.h", "framework/device.h"]
RECORD = "tests/repo/plugin_interface.txt"
COMMENTS = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:[^"\\]|\\.)*")', re.DOTALL)


def code(text):
    """Returns the text without comments, with single spaces."""
    return " ".join(COMMENTS.sub(lambda match: match.group(1) or " ", text).split())


def line_of(root):
    digest = hashlib.sha256()
    for header in HEADERS:
        digest.update(code((root / header).read_text()).encode() + b"\n")
    number = NUMBER.search((root / FACTS).read_text())
    return f"interface {number.group(1) if number else '?'}, headers {digest.hexdigest()[:16]}"


def problems(root):
    now, noted = line_of(root), (root / RECORD).read_text().split("\n")[0]
    if now == noted:
        return []
    return [f"{RECORD}: expected '{noted}', got '{now}', because a header that plug-ins are built "
            f"against has changed: raise kPluginInterface in {FACTS} unless plug-ins of before stay "
            "right, then write down the line of today"]


if __name__ == "__main__":
    main(problems)
