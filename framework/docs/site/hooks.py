# SPDX-License-Identifier: Apache-2.0
"""Functions that mkdocs calls. They replace each placeholder in a page (MARK) by the HTML that the
generator has stored for it (outputs of cells, the manual page)."""

import json
import pathlib
import re

MARK = re.compile(r"<p>CONVSCOPE-HTML-([\w-]+)</p>")
store = {}


def on_pre_build(config):
    path = pathlib.Path(config["docs_dir"]).parent / "html.json"
    store.update(json.loads(path.read_text()))


def on_page_content(html, page, config, files):
    return MARK.sub(lambda match: store[match[1]], html)


def on_page_context(context, page, config, nav):
    # Pages cannot be edited on the site: each is made from a file of the repository.
    page.edit_url = None
    return context
