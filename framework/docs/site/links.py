# SPDX-License-Identifier: Apache-2.0
"""Checks that every link and anchor of the finished pages leads somewhere, and that no page loads
anything from another host: links.py FOLDER"""

import html.parser
import os
import pathlib
import sys
import urllib.parse

LOADED = {("script", "src"), ("img", "src"), ("source", "src"), ("iframe", "src")}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        for key in ("id", "name"):
            if given.get(key):
                self.ids.add(given[key])
        if tag == "a" and given.get("href") is not None:
            self.links.append(given["href"])
        if tag == "link" and given.get("href") and given.get("rel") != "canonical":
            self.loads.append(given["href"])
        self.loads += [given[key] for one, key in LOADED if one == tag and given.get(key)]


def check(folder):
    """Returns the problems, and the numbers of internal links, of anchors, of external links and of pages."""
    pages = {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    found, internal, anchors, outside = [], 0, 0, set()
    for path, page in pages.items():
        name = path.relative_to(folder)
        for link, is_loaded in [(one, False) for one in page.links] + [
            (one, True) for one in page.loads
        ]:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data") or parts.netloc:
                if is_loaded and parts.scheme != "data":
                    found.append(f"{name}: loads {link} from elsewhere")
                outside.add(link)
                continue
            internal += 1
            way = urllib.parse.unquote(parts.path)
            target = pathlib.Path(os.path.normpath(path.parent / way)) if way else path
            if name == pathlib.Path("404.html") and way.startswith("/"):
                target = folder / way.lstrip("/")  # it is shown at every address
            if target.is_dir():
                target = target / "index.html"
            if not target.is_file():
                found.append(f"{name}: links to {link}, which is not there")
            elif parts.fragment:
                anchors += 1
                ids = pages[target].ids if target in pages else set()
                if urllib.parse.unquote(parts.fragment) not in ids and parts.fragment != "__skip":
                    found.append(f"{name}: links to {link}, which has no such place")
    return found, internal, anchors, len(outside), len(pages)


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    found, internal, anchors, outside, pages = check(folder)
    print("\n".join(found[:50]))
    print(
        f"{pages} pages, {internal} internal links ({anchors} with an anchor), "
        f"{len(found)} problems; "
        f"{outside} addresses elsewhere, not asked"
    )
    sys.exit(1 if found or pages == 0 else 0)


if __name__ == "__main__":
    main()
