#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs bootstrap.sh with stubs of dpkg-query, apt-get, sudo, cmake and ctest. Each stub only records
its calls."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
REAL = ["bash", "env", "cat", "dirname", "nproc", "touch", "rm", "mkdir", "echo"]
NOTE = 'echo "$(basename $0) $*" >> "$NOTES"\n'
SHOW = 'for name; do :; done\ncase " $MISSING " in *" $name "*) exit 1 ;; esac\necho "ii "\n'
CONFIGURE = ('if [[ $1 == --preset ]]; then mkdir -p build/$2; touch build/$2/build.ninja\n'
             'echo "CONVSCOPE_TESTS:BOOL=${3#*=}" > build/$2/CMakeCache.txt; fi\n')
WITHOUT, WITH = " -DCONVSCOPE_TESTS=OFF", " -DCONVSCOPE_TESTS=ON"
BUILD = "cmake --build --preset release --target "


class Bootstrap(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        shutil.copy(SOURCE / "bootstrap.sh", self.root)
        (self.root / "CMakePresets.json").write_text("{}")
        self.bin = self.root / "pretended"
        self.bin.mkdir()
        for name in REAL + ["basename"]:
            (self.bin / name).symlink_to(shutil.which(name))
        (self.bin / "python3").symlink_to(sys.executable)
        for name, body in {"dpkg-query": SHOW, "apt-get": NOTE, "sudo": 'exec "$@"\n',
                           "cmake": NOTE + CONFIGURE, "ctest": NOTE}.items():
            (self.bin / name).write_text("#!/usr/bin/env bash\n" + body)
            (self.bin / name).chmod(0o755)

    def tearDown(self):
        self.folder.cleanup()

    def call(self, *arguments, missing="", driver="no driver"):
        notes = self.root / "notes"
        notes.write_text("")
        run = subprocess.run([str(self.root / "bootstrap.sh"), *arguments], text=True,
                             capture_output=True, stdin=subprocess.DEVNULL,
                             env={"PATH": str(self.bin), "NOTES": str(notes), "MISSING": missing,
                                  "CONVSCOPE_DRIVER_FILE": driver})
        self.notes = notes.read_text().splitlines()
        return run

    def test_nothing_missing_leaves_apt_alone(self):
        self.assertEqual(self.call("build").returncode, 0)
        self.assertEqual(self.notes, ["cmake --preset release" + WITHOUT, BUILD + "program"])

    def test_a_second_call_does_not_configure_again(self):
        self.call("build")
        self.call("build")
        self.assertEqual(self.notes, [BUILD + "program"])

    def test_a_new_preset_file_configures_again(self):
        self.call("build")
        later = os.stat(self.root / "build/release/CMakeCache.txt").st_mtime + 5
        os.utime(self.root / "CMakePresets.json", (later, later))
        self.call("build")
        self.assertIn("cmake --preset release" + WITHOUT, self.notes)

    def test_tests_are_added_to_the_build_of_the_program_and_stay(self):
        self.call("build")
        self.call("test")
        self.assertEqual(self.notes[:2], ["cmake --preset release" + WITH, BUILD + "all"])
        self.call("test")
        self.assertEqual(self.notes[0], BUILD + "all")
        self.call("build")
        self.assertEqual(self.notes, [BUILD + "program"])

    def test_the_cuda_library_is_built_where_a_driver_is(self):
        (self.root / "driver").touch()
        self.call("build", driver="driver")
        self.assertEqual(self.notes[-1], BUILD + "program_with_cuda")

    def test_only_the_tests_need_gtest(self):
        self.call("build", missing="libgtest-dev python3")
        self.assertNotIn("apt-get", " ".join(self.notes))
        self.call("test", missing="libgtest-dev python3")
        self.assertIn("apt-get install -y -qq --no-install-recommends libgtest-dev python3",
                      self.notes)

    def test_installs_exactly_what_is_missing(self):
        run = self.call("build", "--yes", missing="libfmt-dev ninja-build")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("apt-get install -y -qq --no-install-recommends ninja-build libfmt-dev",
                      self.notes)

    def test_without_a_terminal_it_says_that_it_does_not_ask(self):
        run = self.call("build", missing="cmake")
        self.assertIn("without asking, because there is no terminal", run.stderr)
        self.assertIn("apt-get install -y -qq --no-install-recommends cmake", self.notes)

    def test_one_of_two_packages_is_enough(self):
        self.call("build", missing="libcurl4-openssl-dev")
        self.assertNotIn("apt-get", " ".join(self.notes))
        self.call("build", missing="libcurl4-openssl-dev libcurl4-gnutls-dev")
        self.assertIn("apt-get install -y -qq --no-install-recommends libcurl4-openssl-dev",
                      self.notes)

    def test_elsewhere_than_debian_it_lists_the_packages_and_goes_on(self):
        (self.bin / "dpkg-query").unlink()
        run = self.call("build")
        self.assertEqual(run.returncode, 0)
        self.assertIn("neither Debian nor Ubuntu", run.stderr)
        self.assertIn("libeigen3-dev", run.stderr)
        self.assertIn(BUILD + "program", self.notes)

    @unittest.skipUnless(os.geteuid() == 0, "root needs no sudo; others do")
    def test_root_needs_no_sudo(self):
        (self.bin / "sudo").unlink()
        self.assertEqual(self.call("build", missing="cmake").returncode, 0)
        self.assertIn("apt-get update -qq", self.notes)

    def test_the_preset_is_used_throughout(self):
        (self.root / "build/ci").mkdir(parents=True)
        self.call("test", "--preset", "ci")
        self.assertEqual(self.notes[:3], [
            "cmake --preset ci" + WITH, "cmake --build --preset ci --target all",
            "ctest --preset ci --output-junit test_results/ctest.xml"])

    def test_notebooks_need_python_and_get_their_arguments(self):
        program = self.root / "build/release/bin/convscope"
        program.parent.mkdir(parents=True)
        program.write_text("#!/usr/bin/env bash\n" + NOTE)
        program.chmod(0o755)
        self.call("notebooks", "04_winograd", "--no-browser", missing="python3-venv python3-dev")
        self.assertIn("apt-get install -y -qq --no-install-recommends python3-venv python3-dev", self.notes)
        self.assertEqual(self.notes[-2:], [BUILD + "program", "convscope notebook 04_winograd --no-browser"])

    def test_packages_need_their_tools_and_come_from_the_build_folder(self):
        for name in ("cpack", "dpkg-shlibdeps"):
            (self.bin / name).write_text("#!/usr/bin/env bash\n" + NOTE + "mkdir packages; touch packages/a.deb\n")
            (self.bin / name).chmod(0o755)
        (self.bin / "du").symlink_to(shutil.which("du"))
        run = self.call("package", missing="patchelf", driver=str(self.root))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("apt-get install -y -qq --no-install-recommends patchelf", self.notes)
        # The packages are built without the CUDA library, even if a driver is installed.
        self.assertEqual(self.notes[-2:], [BUILD + "program", "cpack -G DEB;TGZ"])
        self.assertIn("a.deb", run.stdout)
        (self.bin / "dpkg-shlibdeps").unlink()
        self.call("package")
        self.assertEqual(self.notes[-1], "cpack -G TGZ")

    def test_a_package_that_cannot_be_made_fails(self):
        (self.bin / "cpack").write_text("#!/usr/bin/env bash\nexit 1\n")
        (self.bin / "cpack").chmod(0o755)
        run = self.call("package")
        self.assertNotEqual(run.returncode, 0)
        self.assertNotIn("packed:", run.stderr)

    def test_the_site_is_made_with_the_program_that_was_built(self):
        (self.bin / "python3").unlink()
        (self.bin / "python3").write_text("#!/usr/bin/env bash\n" + NOTE)
        (self.bin / "python3").chmod(0o755)
        self.call("site", missing="python3-venv mandoc")
        self.assertIn("apt-get install -y -qq --no-install-recommends python3-venv mandoc", self.notes)
        self.assertEqual(self.notes[-2:], [
            BUILD + "program", "python3 framework/docs/site/make_site.py build/release/bin/convscope"])

    def test_wrong_arguments_are_usage_errors(self):
        for arguments in ([], ["fly"], ["run", "test"], ["test", "--preset"], ["run", "--no-browser"],
                          ["notebooks", "--fast"]):
            run = self.call(*arguments)
            self.assertEqual(run.returncode, 2, arguments)
            self.assertIn("usage: ./bootstrap.sh run|test|build|package|site", run.stderr)
            self.assertEqual(self.notes, [])


if __name__ == "__main__":
    unittest.main()
