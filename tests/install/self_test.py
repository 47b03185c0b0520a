#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that the checks in check_packages.py report defective packages, and that the Dockerfile and
in_clean_root.sh run the same installation steps."""

import hashlib
import pathlib
import re
import subprocess
import tempfile
import unittest

import check_packages

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "framework/packages"


def listing(runpath=None, needed=()):
    """Returns text in the format of `readelf -d`."""
    lines = [f" 0x1 (NEEDED)             Shared library: [{name}]" for name in needed]
    if runpath is not None:
        lines.append(f" 0x1d (RUNPATH)            Library runpath: [{runpath}]")
    return "\n".join(lines)


class Packages(unittest.TestCase):
    def test_a_runpath_is_relative_to_the_file(self):
        for good in ("$ORIGIN", "$ORIGIN/../lib", "$ORIGIN/../lib:$ORIGIN/convscope"):
            self.assertEqual(check_packages.runpath_problems("bin/a", listing(good)), [])
        for bad in ("/opt/lib", "$ORIGIN/../lib:/opt/lib", "$ORIGIN:", "lib", "$ORIGINAL/lib"):
            self.assertEqual(len(check_packages.runpath_problems("bin/a", listing(bad))), 1, bad)

    def test_the_archive_brings_what_it_needs(self):
        files = {
            "lib/libconvscope.so.0": listing(needed=["libfmt.so.9", "libc.so.6", "libstdc++.so.6"])
        }
        self.assertIn("libfmt.so.9", check_packages.needed_problems(files)[0])
        files["lib/convscope/libfmt.so.9"] = listing(needed=["libc.so.6"])
        self.assertEqual(check_packages.needed_problems(files), [])
        files["bin/convscope"] = listing(needed=["libcurl.so.4"])
        self.assertEqual(len(check_packages.needed_problems(files)), 1)

    def test_the_deb_asks_for_what_it_needs(self):
        good = (
            "Depends: libcurl4t64 | libcurl4, libc6 (>= 2.35), libfmt9, libgomp1, "
            "libstdc++6 (>= 12), "
            "libyaml-cpp0.7, zlib1g\n"
        )
        self.assertEqual(check_packages.depends_problems(good, {}), [])
        self.assertEqual(
            len(check_packages.depends_problems(good.replace("libgomp1, ", ""), {})), 1
        )
        self.assertEqual(
            len(check_packages.depends_problems(good, {"usr/lib/convscope/libfmt.so.9": ""})), 1
        )
        self.assertGreater(len(check_packages.depends_problems("Package: convscope\n", {})), 1)

    def test_a_file_that_is_missing_is_named(self):
        names = set(check_packages.NEEDED_FILES + check_packages.NEEDED_IN["tar"])
        self.assertEqual(check_packages.file_problems(names, "tar"), [])
        names.remove("share/convscope/configs/quickstart.yaml")
        self.assertIn("quickstart.yaml", check_packages.file_problems(names, "tar")[0])

    def test_a_sum_that_does_not_fit_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name) / "a.deb"
            path.write_bytes(b"one")
            self.assertEqual(len(check_packages.sum_problems(path)), 1)
            kept = path.with_name("a.deb.sha256")
            kept.write_text(hashlib.sha256(b"one").hexdigest() + "  a.deb\n")
            self.assertEqual(check_packages.sum_problems(path), [])
            path.write_bytes(b"two")
            self.assertEqual(len(check_packages.sum_problems(path)), 1)

    def test_a_way_back_into_the_build_folder_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "a.cmake").write_text('set(x "/home/somebody/build/lib")\n')
            self.assertEqual(len(check_packages.text_problems(root, "/home/somebody/build")), 1)
            self.assertEqual(check_packages.text_problems(root, "/home/other/build"), [])

    def test_a_program_that_does_not_start_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "bin").mkdir()
            program = root / "bin/convscope"
            program.write_text("#!/bin/sh\necho broken; exit 127\n")
            program.chmod(0o755)
            self.assertEqual(len(check_packages.run_problems(root, root, "0.1.0")), 5)


class Docker(unittest.TestCase):
    """The steps of the Dockerfile are those that tests/install/clean_root.sh runs."""

    def setUp(self):
        text = (PACKAGES / "Dockerfile").read_text()
        joined = re.sub(r"\\\n\s*", "", text)
        self.lines = [line for line in joined.split("\n") if line and not line.startswith("#")]
        self.clean = (ROOT / "tests/install/in_clean_root.sh").read_text()

    def scripts(self, text):
        return re.findall(r"([a-z_]+\.sh)", text)

    def test_what_it_copies_is_there(self):
        for line in self.lines:
            if line.startswith("COPY ") and "--from" not in line:
                for name in line.split()[1:-1]:
                    self.assertTrue((ROOT / name).exists(), line)

    def test_it_runs_the_steps_of_the_clean_root_in_their_order(self):
        here = [
            name
            for line in self.lines
            if line.startswith("RUN ")
            for name in self.scripts(line)
            if name != "bootstrap.sh"
        ]
        deb = re.search(r"(?ms)^  deb\)$(.*?)^    ;;$", self.clean)[1]
        self.assertEqual(here, self.scripts(deb))
        self.assertEqual(set(here), {path.name for path in PACKAGES.glob("*.sh")})

    def test_it_packs_as_everybody_does(self):
        self.assertIn("RUN ./bootstrap.sh package --yes", self.lines)
        usage = subprocess.run(
            [str(ROOT / "bootstrap.sh"), "--help"], capture_output=True, text=True
        ).stdout
        self.assertIn("  package ", usage)

    def test_the_last_stage_is_the_program_for_a_user_who_is_not_root(self):
        stages = [line for line in self.lines if line.startswith("FROM ")]
        self.assertEqual(stages[-1], "FROM program")
        start = self.lines.index("FROM $BASE AS program")
        program = self.lines[start : self.lines.index("FROM program AS check")]
        self.assertEqual([line for line in program if line.startswith("USER ")], ["USER convscope"])
        self.assertTrue(any("add_user.sh /work" in line for line in program))
        for line in ("WORKDIR /work", "VOLUME /work", 'ENTRYPOINT ["convscope"]'):
            self.assertIn(line, program)


if __name__ == "__main__":
    unittest.main()
