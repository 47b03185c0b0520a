#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pages about Convscope: make_site.py PROGRAM [--no-notebooks] [--out DIR]

Every page is made from a file of the repository or from the output of PROGRAM. The pages need no
server and load nothing from another host. The exit code is 1 when a link leads nowhere, or when the
program does not accept a command that a document shows.
"""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import commands  # noqa: E402
import links  # noqa: E402
import navigation  # noqa: E402
import notebook_pages  # noqa: E402
import reference  # noqa: E402
from pages import Pages  # noqa: E402
from repository import Repository  # noqa: E402

UNAVAILABLE = 5
EXTENSIONS = {
    "admonition": {},
    "tables": {},
    "md_in_html": {},
    "toc": {"permalink": True, "toc_depth": 3},
    "pymdownx.highlight": {"anchor_linenums": False, "linenums_style": "pymdownx-inline"},
    "pymdownx.superfences": {},
}


def say(text):
    print(f"site: {text}", file=sys.stderr, flush=True)


def environment(build):
    """Returns the mkdocs program; installs it once into a separate environment."""
    wanted = hashlib.sha256((HERE / "requirements.txt").read_bytes()).hexdigest()
    folder, stamp = build / "env", build / "env" / "ready"
    if not stamp.is_file() or stamp.read_text() != wanted:
        say("installing mkdocs, once")
        for call in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(folder / "bin/pip"), "install", "--quiet", "-r", str(HERE / "requirements.txt")],
        ):
            done = subprocess.run(call, capture_output=True, text=True)
            if done.returncode != 0:
                say(
                    f"expected mkdocs and its theme, because they make the pages, got: "
                    f"{(done.stderr or done.stdout).strip()[-600:]}; it takes a network once, and "
                    "on Debian apt-get install python3-venv"
                )
                sys.exit(UNAVAILABLE)
        stamp.write_text(wanted)
    return folder / "bin" / "mkdocs"


def write_config(build, out, nav):
    config = {
        "site_name": "Convscope",
        "site_description": "Read, run and measure algorithms of convolution",
        "docs_dir": str(build / "docs"),
        "site_dir": str(out),
        "use_directory_urls": False,
        "hooks": [str(HERE / "hooks.py")],
        "extra_css": ["extra.css"],
        "theme": {
            "name": "material",
            "font": False,
            "language": "en",
            "icon": {"logo": "material/grid"},
            "palette": [
                {
                    "media": "(prefers-color-scheme: light)",
                    "scheme": "default",
                    "primary": "teal",
                    "toggle": {"icon": "material/weather-night", "name": "Dark"},
                },
                {
                    "media": "(prefers-color-scheme: dark)",
                    "scheme": "slate",
                    "primary": "teal",
                    "toggle": {"icon": "material/weather-sunny", "name": "Light"},
                },
            ],
            "features": [
                "navigation.tabs",
                "navigation.prune",
                "navigation.top",
                "navigation.footer",
                "content.code.copy",
                "search.highlight",
                "toc.follow",
            ],
        },
        # The theme would load this file from another host.
        "extra": {"generator": False, "polyfills": ["iframe-worker.js"]},
        "plugins": [{"search": {}}, {"offline": {}}],
        "markdown_extensions": [{name: options} for name, options in EXTENSIONS.items()],
        "validation": {
            "omitted_files": "ignore",
            "absolute_links": "warn",
            "unrecognized_links": "warn",
            "not_found": "warn",
            "anchors": "warn",
        },
        "nav": nav,
    }
    # JSON is YAML.
    (build / "mkdocs.yml").write_text(json.dumps(config, indent=1))


def generate(repository, program, build):
    """Writes all pages. Returns the menu, the number of keys, and the number of notebooks with outputs."""
    pages, store = Pages(repository, build / "docs"), {}
    for name in repository.documents():
        pages.document(name)
    ran = sum(
        [
            notebook_pages.page(repository, pages, name, build, store)
            for name in repository.notebooks()
        ]
    )
    pages.headers("reference/headers.md")
    pages.write("reference/commands.md", reference.commands_page(program))
    keys, key_count = reference.keys_page(program)
    pages.write("reference/keys.md", keys)
    manual, store_manual = reference.manual_page(program)
    pages.write("reference/manual.md", manual)
    if store_manual:
        store["manual"] = store_manual
    for name in ("extra.css", "iframe-worker.js"):
        pages.write(name, (HERE / name).read_text())
    pages.rest()
    (build / "html.json").write_text(json.dumps(store))
    nav = navigation.menu(
        repository,
        [
            ("Commands", "reference/commands.md"),
            ("Keys of configs", "reference/keys.md"),
            ("Manual page", "reference/manual.md"),
            ("C++ headers", "reference/headers.md"),
        ],
    )
    return nav, key_count, ran


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument(
        "--out", type=pathlib.Path, help="folder of the pages (default: build/site/pages)"
    )
    parser.add_argument(
        "--no-notebooks", action="store_true", help="show their cells without running them"
    )
    arguments = parser.parse_args()
    program = arguments.program.resolve()
    if not program.is_file():
        say(
            f"expected the program, got {arguments.program}, which is not there; "
            "./bootstrap.sh build makes it"
        )
        sys.exit(2)
    root = HERE.parents[2]
    build = root / "build" / "site"
    build.mkdir(parents=True, exist_ok=True)
    out = (arguments.out or build / "pages").resolve()
    begin = time.monotonic()
    mkdocs = environment(build)
    repository = Repository(root)
    problems = [] if arguments.no_notebooks else notebook_pages.run(repository, str(program), build)
    try:
        nav, keys, ran = generate(repository, str(program), build)
    except reference.ProgramError as error:
        say(str(error))
        sys.exit(1)
    write_config(build, out, nav)
    # --quiet is left out, because it would hide the warnings from --strict, too.
    made = subprocess.run(
        [str(mkdocs), "build", "--strict", "--clean", "-f", str(build / "mkdocs.yml")],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    if made.returncode != 0:
        said = [line for line in made.stderr.split("\n") if line.startswith(("WARNING", "ERROR"))]
        problems += [f"mkdocs: {line}" for line in said or made.stderr.strip().split("\n")[-20:]]
    else:
        wrong, internal, anchors, outside, count = links.check(out)
        problems += wrong
        print(
            f"{count} pages; {internal} internal links, {anchors} of them with an anchor; "
            f"{outside} addresses "
            "elsewhere, not asked"
        )
    wrong, parsed, forms = commands.check(str(program), repository)
    problems += wrong
    print(
        f"{parsed} commands parsed by the program, {forms} forms of commands left out; "
        f"{keys} keys; "
        f"{ran} of {len(repository.notebooks())} notebooks with outputs"
    )
    for one in problems[:60]:
        print(f"problem: {one}")
    print(f"{len(problems)} problems, {time.monotonic() - begin:.0f} s")
    say(f"open {out / 'index.html'}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
