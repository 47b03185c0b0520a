# SPDX-License-Identifier: Apache-2.0
"""Displays texts and tables in a terminal and in Jupyter."""
from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


class Text(str):
    """A str that is displayed with its line breaks, in a terminal and in Jupyter."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def line(tag: str, cells: Iterable[object]) -> str:
        return "".join(f"<{tag}>{html.escape('' if cell is None else str(cell))}</{tag}>"
                       for cell in cells)

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{line('th', head)}</tr></thead><tbody>{body}</tbody></table>"
