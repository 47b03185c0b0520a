#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adding a convolution algorithm needs no edit elsewhere.

usage: added_algorithm.py SOURCE BUILD

The script copies the repository and adds one algorithm folder: the lesson of the direct convolution
under another name. CMake must find the new file, and program and tests must know the algorithm. Only
the new file is compiled; it is linked with the objects of the build folder BUILD.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ORIGINAL, ADDED = "direct_lesson", "planted_lesson"
SKIPPED = 77  # ctest's SKIP_RETURN_CODE


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        words = command if isinstance(command, str) else shlex.join(map(str, command))
        raise SystemExit(f"exit status {done.returncode} of {words}\n{done.stdout}{done.stderr}")
    return done.stdout


def copy_of(source, tree):
    """Copies the files that a commit of the working tree would contain, and adds the new folder."""
    shutil.copytree(source, tree, ignore=shutil.ignore_patterns("build", ".git", "runs", "data", ".*"))
    lesson = next(tree.rglob(f"{ORIGINAL}_cpu.cpp"))
    added = tree / "layers" / "conv2d" / "planted" / f"{ADDED}_cpu.cpp"
    added.parent.mkdir()
    added.write_text(lesson.read_text().replace(ORIGINAL, ADDED))
    return added


def compile_command(tree, added):
    build = tree / "build"
    run(["cmake", "-S", tree, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCONVSCOPE_CUDA=OFF",
         "-DCONVSCOPE_BASELINES=OFF", "-DCONVSCOPE_TESTS=OFF", "-DCONVSCOPE_CCACHE="])
    commands = json.loads((build / "compile_commands.json").read_text())
    found = [entry for entry in commands if pathlib.Path(entry["file"]) == added]
    if len(found) != 1:
        raise SystemExit(f"expected one command for {added.name} from CMake, got {len(found)}")
    return shlex.split(found[0]["command"])


def main():
    source, build = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    if not (build / "build.ninja").exists() or shutil.which("ninja") is None:
        print("skipped: this build was not made by ninja, whose link command is needed")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        added = copy_of(source, tree)
        command = compile_command(tree, added)
        planted = pathlib.Path(folder) / "planted.o"
        command[command.index("-o") + 1] = str(planted)
        command[command.index("-O3")] = "-O1"
        run(command, cwd=folder)

        library = os.path.realpath(build / "lib" / "libconvscope.so")
        name = os.path.relpath(library, build)
        link = run(["ninja", "-C", build, "-t", "commands", "-s", name]).splitlines()[-1]
        new_library = pathlib.Path(folder) / os.path.basename(library)
        linked = link.replace(f"-o {name} ", f"-o {new_library} {planted} ", 1)
        if linked == link:
            raise SystemExit(f"expected '-o {name} ' in the link command, got {link}")
        run(linked, cwd=build, shell=True)

        environment = dict(os.environ, LD_PRELOAD=str(new_library), CONVSCOPE_CACHE_DIR=folder)
        program = build / "bin" / "convscope"

        def expect(what, text):
            if ADDED not in text:
                raise SystemExit(f"expected '{ADDED}' in {what}, got\n{text}")
            print(f"{what}: {next(line.strip() for line in text.splitlines() if ADDED in line)}")

        expect("info", run([program, "info"], env=environment))
        config = source / "experiments" / "configs" / "quickstart.yaml"
        expect("explain", run([program, "explain", config, f"conv.algorithm={ADDED}"], env=environment))
        problem = "n=1,c=2,h=8,w=8,k=2,r=3,s=3,pad=1"
        expect("bench", run([program, "bench", "conv2d", "--problem", problem, "--algorithm", ADDED,
                             "--min-time", "0.001", "--rounds", "1"], env=environment))
        tests = build / "bin" / "test_layers"
        expect("the list of tests", run([tests, "--gtest_list_tests"], env=environment))
        passed = re.search(r"PASSED  \] ([1-9]\d*) test", run([tests, f"--gtest_filter=*/{ADDED}"], env=environment))
        if passed is None:
            raise SystemExit(f"expected tests of {ADDED} to run and to pass")
        print(f"the tests: {passed.group(1)} of its own passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
