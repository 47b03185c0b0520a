#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the documentation site without mkdocs, and tests that the site's checks can fail.

Usage: site_test.py PROGRAM"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "framework/docs/site"))
import commands  # noqa: E402
import links  # noqa: E402
import navigation  # noqa: E402
import pages  # noqa: E402
from repository import Repository  # noqa: E402

PROGRAM = ""


class Folder(unittest.TestCase):
    def setUp(self):
        self.held = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.held.name)

    def tearDown(self):
        self.held.cleanup()

    def add(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)


class Links(Folder):
    def problems(self):
        return links.check(self.root)[0]

    def test_good_links_pass_and_are_counted(self):
        self.add(
            "index.html",
            '<h1 id="top"></h1><a href="a/b.html#here">b</a><a href="#top">t</a>'
            '<a href="https://example.org">e</a><link rel="stylesheet" href="s.css">',
        )
        self.add("a/b.html", '<p id="here"><a href="../index.html">i</a>')
        self.add("s.css", "")
        self.assertEqual(links.check(self.root), ([], 4, 2, 1, 2))

    def test_a_page_that_is_not_there_is_found(self):
        self.add("index.html", '<a href="gone.html">g</a>')
        self.assertIn("gone.html, which is not there", self.problems()[0])

    def test_a_place_that_is_not_there_is_found(self):
        self.add("index.html", '<a href="#gone">g</a>')
        self.assertIn("#gone, which has no such place", self.problems()[0])

    def test_what_is_loaded_from_elsewhere_is_found(self):
        self.add("index.html", '<script src="https://example.org/a.js"></script>')
        self.assertIn("from elsewhere", self.problems()[0])


class Pages(Folder):
    def convert(self, text, name="layers/README.md"):
        made = pages.Pages(Repository(self.root), self.root / "out")
        return made.converted(text, name), made

    def test_links_and_names_lead_to_pages(self):
        self.add("layers/a.h", "// a.h: one.\n")
        self.add("layers/b.md", "# b\n")
        self.add("layers/room/c.cpp", "")
        text, made = self.convert(
            "See `layers/a.h`, `c.cpp`, [b](b.md), [room](room), `layers/gone.h`.\n"
        )
        self.assertEqual(
            text,
            "See [`layers/a.h`](a.h.md), [`c.cpp`](room/c.cpp.md), [b](b.md), "
            "[room](room/index.md), `layers/gone.h`.\n",
        )
        self.assertEqual(made.sources, {"layers/a.h", "layers/room/c.cpp"})
        self.assertEqual(made.listed, {"layers/room"})

    def test_blocks_stay_as_they_are(self):
        self.add("layers/a.h", "")
        for text in ("```\n`layers/a.h`\n- one\n```\n", "    `layers/a.h`\n"):
            self.assertEqual(self.convert(text)[0], text)

    def test_a_list_behind_a_paragraph_gets_its_empty_line(self):
        self.assertEqual(
            self.convert("Text:\n- one\n  more\n- two\n")[0], "Text:\n\n- one\n  more\n- two\n"
        )

    def test_comments_are_no_markdown(self):
        self.assertEqual(pages.plain("a*b_c `d_e` <f>"), r"a\*b\_c `d_e` \<f\>")
        self.assertEqual(
            pages.first_sentence("// SPDX-License-Identifier: x\n// a.h: one thing. Two.\n"),
            "one thing.",
        )

    def test_every_document_is_in_the_menu(self):
        repository = Repository(ROOT)
        text = str(navigation.menu(repository, []))
        for name in repository.documents() + repository.notebooks():
            if "/records/" not in name:
                self.assertIn(f"'{pages.page_of(name)}'", text)

    def test_the_landing_page_links_every_guide_and_explanation(self):
        folder = ROOT / "framework/docs"
        text = (folder / "README.md").read_text()
        for path in sorted([*folder.glob("guide/*.md"), *folder.glob("explanation/*.md")]):
            self.assertIn(f"({path.relative_to(folder).as_posix()})", text)

    def test_json_files_are_copied_for_links(self):
        self.add("layers/a.json", "{}")
        text, made = self.convert("[record](a.json)\n")
        made.rest()
        self.assertEqual(text, "[record](a.json)\n")
        self.assertEqual((self.root / "out/layers/a.json").read_text(), "{}")


class Commands(Folder):
    def check(self, text):
        self.add("README.md", text)
        return commands.check(PROGRAM, Repository(self.root))

    def test_good_ones_pass(self):
        text = (
            "`convscope explain CONFIG` and `convscope bench conv2d --json`\n\n```\n"
            "$ convscope run quickstart optim.lr=0.1  # x\n"
            "convscope bench conv2d --shapes lenet \\\n    --threads 1\nconvscope: looks\n```\n"
            "`convscope index [DIR]`\n"
        )
        self.assertEqual(self.check(text), ([], 4, 1))

    def test_an_unknown_option_a_command_and_a_key_are_found(self):
        for text in (
            "`convscope explain CONFIG --nosuch`",
            "`convscope fly high`",
            "`convscope nosuch`",
            "`convscope bench conv2d --nosuch`",
            "    convscope run quickstart optim.nosuch=3",
            "    convscope run nosuchconfig",
            "    convscope sweep synthetic_sweep optim.nosuch=3",
        ):
            found = self.check(text + "\n")[0]
            self.assertEqual(len(found), 1, text)
            self.assertIn("README.md:1: ", found[0])

    def test_nothing_runs(self):
        done = subprocess.run(
            [PROGRAM, "run", "quickstart"],
            cwd=self.root,
            capture_output=True,
            text=True,
            env={"CONVSCOPE_PARSE_ONLY": "1"},
        )
        self.assertEqual((done.returncode, done.stdout, list(self.root.iterdir())), (0, "", []))

    def test_a_program_that_would_run_them_is_refused(self):
        self.add("program", "#!/bin/sh\necho runs\n")
        (self.root / "program").chmod(0o755)
        self.add("README.md", "`convscope run CONFIG`\n")
        found, parsed, _ = commands.check(str(self.root / "program"), Repository(self.root))
        self.assertEqual((len(found), parsed), (1, 0))


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
