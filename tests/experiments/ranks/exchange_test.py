#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`convscope launch -n N bench exchange`: its table, and that `explain --ranks` accepts its last line."""
import re
import shlex

import harness

SHORT = ["bench", "exchange", "--min-time", "0.01", "--most", "1"]


class Exchange(harness.Case):
    def launch(self, processes, words, code=0):
        return self.call(["launch", "-n", str(processes), "--launcher", self.launcher, *words], code)

    def test_a_table_of_all_sizes(self):
        out = self.launch(2, SHORT).stdout
        self.assertIn("2 processes on one host, ", out)
        rows = re.findall(r"(?m)^ *(\d+) (B|KiB|MiB) +([\d.]+) +([\d.]+) +([\d.]+) +(\d+) +([\d.]+) +(\d+)$", out)
        self.assertEqual([row[:2] for row in rows],
                         [("64", "B"), ("256", "B"), ("1", "KiB"), ("4", "KiB"), ("16", "KiB"), ("64", "KiB"),
                          ("256", "KiB"), ("1", "MiB")])
        for row in rows:
            self.assertGreater(float(row[2]), 0)
            self.assertGreaterEqual(float(row[2]), float(row[3]), "no median is below the least")
            self.assertGreaterEqual(int(row[7]), 10)

    def test_its_last_words_are_words_of_explain(self):
        text = self.launch(2, [*SHORT, "--tree"]).stdout
        self.assertIn("sums in a tree", text)
        words = re.search(r"--ranks N: (--ranks-per-host 2 --inside \S+)", re.sub(r"\s+", " ", text))
        self.assertIsNotNone(words, text)
        out = self.call(["explain", "quickstart", "threads=1", "data.batch_size=8", "--ranks", "2",
                         *shlex.split(words[1])]).stdout
        self.assertIn("inside a host of 2 processes", re.sub(r"\s+", " ", out))

    def test_mistakes(self):
        for words, text in ((["bench", "exchange", "--min-time", "0"], "expected --min-time above 0"),
                            (["bench", "conv2d"], "expected the command run or bench exchange"),
                            (["bench"], "expected the command run or bench exchange")):
            with self.subTest(words=words):
                error = self.launch(2, words, 2).stderr
                self.assertIn(text, error)
                self.assertEqual(sum("error" in line for line in error.splitlines()), 1, error)
        self.assertIn("expected 2, 4, 8", self.launch(3, [*SHORT, "--tree"], 2).stderr)
        self.assertIn("launch -n 2 bench exchange", self.call(["bench", "exchange"], 2).stderr)


if __name__ == "__main__":
    harness.main()
