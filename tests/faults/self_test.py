#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that each part of the fault campaign (campaign.py) can fail: self_test.py PROGRAM SHIM

A fake program (fake_program.py) makes one mistake, which the part must report. If the fake program
makes no mistake, the same cases must pass.
"""
import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest

import campaign
import part_disk
import part_folders
import part_kills
import part_late
import part_mutated
import part_rivals
import part_signals
import part_streams
import part_surroundings
from readers import READERS
from stage import Stage

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
NPY = next(i for i, reader in enumerate(READERS) if reader.name == "npy")
CHECKPOINT = next(i for i, one in enumerate(READERS) if one.name == "paused run: checkpoint")
FULL_OUTPUT = 2  # report -o, without space for a file
SMALL_FILES = 1
UNWRITABLE = [case[0] for case in part_surroundings.CASES].index("an output folder that is a file")

# Each row: the part, the number of the case, the mistake of the fake program, the expected
# complaint.
MISTAKES = [
    (part_kills, 0, "other_bits", "other bits"),
    (part_kills, 1, "leave_a_file", "left over"),
    (part_kills, 0, "return_42", "exit code 42"),
    (part_kills, 0, "return_0", "finished runs, expected one"),
    (part_signals, 0, "write_no_checkpoint", "state RUNNING"),
    (part_signals, 1, "crash", "SIGSEGV"),
    (part_mutated, NPY, "crash", "SIGSEGV"),
    (part_mutated, NPY, "hang", "it hung"),
    (part_mutated, NPY, "say_terminate", "raw text"),
    (part_mutated, NPY, "say_nothing", "without a sentence"),
    (part_mutated, NPY, "return_139", "hides a crash"),
    (part_mutated, NPY, "return_42", "exit code 42"),
    (part_mutated, NPY, "eat_memory", "more memory"),
    (part_mutated, NPY, "lose_a_file", "is gone"),
    (part_mutated, CHECKPOINT, "return_0", "finished runs, expected one"),
    (part_disk, FULL_OUTPUT, "empty_the_older_file", "out was changed"),
    (part_disk, FULL_OUTPUT, "return_0", "exit code 0"),
    (part_disk, SMALL_FILES, "crash", "SIGSEGV"),
    (part_disk, SMALL_FILES, "return_0", "finished runs, expected one"),
    (part_streams, 2, "other_bits", "other bits"),
    (part_streams, 2, "write_into_the_lock", "text in .lock"),
    (part_streams, 6, "crash", "SIGSEGV"),
    (part_rivals, 0, "go_on_too", "went on, expected one"),
    (part_rivals, 1, "other_bits", "other bits"),
    (part_rivals, 2, "return_0", "finished runs of"),
    (part_late, 0, "crash", "SIGSEGV"),
    (part_late, 1, "write_an_old_summary", "of epoch 1 again"),
    (part_late, 3, "return_42", "exit code 42"),
    (part_folders, 0, "crash", "SIGSEGV"),
    (part_folders, 1, "write_through_links", "a file elsewhere: victim was changed"),
    (part_surroundings, 0, "need_a_home", "SIGSEGV"),
    (part_surroundings, UNWRITABLE, "return_0", "exit code 0, expected one of 6"),
]


class SelfTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.folder.name)
        fake = root / "fake"
        text = (HERE / "fake_program.py").read_text().split("\n", 1)[1]
        fake.write_text(f"#!{sys.executable}\n{text}")
        fake.chmod(0o755)
        os.environ |= {"FAKE_REAL": str(PROGRAM), "FAKE_DOES": "nothing"}
        cls.stage = Stage(fake, root / "stage", seed=3, maker=PROGRAM)
        cls.stage.patience = 8
        cls.stage.shim = pathlib.Path(sys.argv[2]).resolve()
        part_mutated.SECONDS = 5  # a busy machine needs this long until the fake program crashes
        cls.count = 0

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def found(self, part, number, does):
        type(self).count += 1
        folder = self.stage.folder / f"case-{self.count}"
        folder.mkdir()
        self.stage.env["FAKE_DOES"] = does
        try:
            return part.run(self.stage, number, folder)
        finally:
            self.stage.env["FAKE_DOES"] = "nothing"

    def test_every_part_passes_without_a_mistake(self):
        for part, number in sorted({(part.NAME, number) for part, number, _, _ in MISTAKES}):
            with self.subTest(part=part, number=number):
                module = next(one for one in campaign.PARTS if one.NAME == part)
                self.assertEqual(self.found(module, number, "nothing"), [])

    def test_every_mistake_is_noticed(self):
        for part, number, does, said in MISTAKES:
            # If a kill or a signal comes after the end of a run, the case is repeated with an earlier
            # moment.
            tries = 5 if part in (part_kills, part_signals) else 1
            usual = dict(self.stage.seconds)
            with self.subTest(part=part.NAME, number=number, does=does):
                heard = []
                for i in range(tries):
                    self.stage.seconds = {name: one / 3**i for name, one in usual.items()}
                    heard.append("\n".join(self.found(part, number + 24 * i, does)))
                    if said in heard[-1]:
                        break
                self.stage.seconds = usual
                self.assertIn(said, heard[-1])

    def test_every_part_has_a_mistake(self):
        self.assertEqual({part.NAME for part, _, _, _ in MISTAKES},
                         {part.NAME for part in campaign.PARTS})

    def test_a_failed_case_is_kept_and_counted(self):
        keep = pathlib.Path(self.folder.name) / "kept"
        self.stage.env["FAKE_DOES"] = "crash"
        try:
            with contextlib.redirect_stdout(io.StringIO()) as said:
                counts = campaign.run_part(self.stage, part_mutated, [NPY], 1, keep)
        finally:
            self.stage.env["FAKE_DOES"] = "nothing"
        self.assertIn(f"--only mutated --case {NPY}", said.getvalue())
        self.assertEqual(counts[:3], [0, 1, 0])
        kept = keep / f"mutated-seed3-{NPY}"
        self.assertIn("SIGSEGV", (kept / "what_failed.txt").read_text())
        self.assertTrue((kept / "files/x.npy").exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
