# SPDX-License-Identifier: Apache-2.0
"""Builds the targets that one changed file affects, into a separate folder, from a finished
build (Ninja)."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import threading


class BuildError(Exception):
    """The changed file does not compile or link."""


def without_launcher(command):
    """Returns the compiler's command, without ccache and without variables before it."""
    words = shlex.split(command)
    while words and (words[0] in ("env", ":") or "=" in words[0] or words[0].endswith("ccache")):
        words.pop(0)
    return words


class FinishedBuild:
    """Knows which objects of the build contain a source file, and which libraries and programs
    contain those objects."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        if not (self.folder / "build.ninja").is_file():
            raise BuildError(f"{self.folder} has no build.ninja: configure with -G Ninja "
                             "(all presets do) and build it first")
        self.root = pathlib.Path(self.cached("CMAKE_HOME_DIRECTORY"))
        self.compile = {}
        self.objects_of = {}  # source -> objects
        self.sources_of = {}  # object -> sources
        self.lock = threading.Lock()
        self.unit_of = {}  # object -> text of its unit
        for entry in json.loads((self.folder / "compile_commands.json").read_text()):
            if "nvcc" in entry["command"].split(" -", 1)[0]:
                continue
            words = without_launcher(entry["command"])
            output = words[words.index("-o") + 1]
            self.compile[output] = words
            source = pathlib.Path(entry["file"])
            sources = [source]
            if source.parent == self.folder / "units":
                self.unit_of[output] = source.read_text()
                sources = [pathlib.Path(p) for p in re.findall('"(.+)"', self.unit_of[output])]
            self.sources_of[output] = sources
            for path in sources:
                self.objects_of.setdefault(str(path.resolve()), []).append(output)
        self.linked = {}  # library or program -> its link command
        for target in self.targets():
            for part in self.ninja("commands", "-s", target).replace("\n", " ").split("&&"):
                if f" -o {target} " in part:
                    self.linked[target] = shlex.split(part)
        self.dependents = None
        self.by_gold = shutil.which("ld.gold") is not None

    def cached(self, name):
        """Returns a value of CMakeCache.txt."""
        text = (self.folder / "CMakeCache.txt").read_text()
        return re.search(rf"^{name}:\w+=(.*)$", text, re.M)[1]

    def ninja(self, tool, *arguments):
        """Returns the output of `ninja -t TOOL`."""
        command = ["ninja", "-C", str(self.folder), "-t", tool, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def targets(self):
        """Returns the libraries and test programs of the build, relative to the folder."""
        out = []
        for path in sorted(self.folder.glob("lib/*.so*")) + sorted(self.folder.glob("bin/test_*")):
            if not path.is_symlink() and "libconvscope_cuda.so" not in path.name:
                out.append(str(path.relative_to(self.folder)))
        return out

    def objects(self, mutant):
        """Returns the objects that contain the mutant's file, which may be a header."""
        path = str((self.root / mutant.file).resolve())
        if path.endswith((".h", ".cuh")):
            found = [o for o in self.including(path) if self.is_wanted(o, mutant)]
        else:
            found = self.objects_of.get(path, [])
        if mutant.only:
            found = [o for o in found if f"/convscope_simd_{mutant.only}.dir/" in f"/{o}"]
        if mutant.objects:
            found = [o for o in found if re.search(mutant.objects, o)]
        return found

    def including(self, path):
        """Returns the objects that include a header."""
        with self.lock:
            if self.dependents is None:
                self.dependents = {}
                for text in self.ninja("deps").split("\n\n"):
                    name, *lines = text.strip("\n").split("\n")
                    for line in lines:
                        at = os.path.normpath(os.path.join(self.folder, line.strip()))
                        self.dependents.setdefault(at, []).append(name.split(":")[0])
        return [o for o in self.dependents.get(path, []) if o in self.compile]

    def is_wanted(self, output, mutant):
        """Tells whether an object must be compiled. An object of a test program is needed only if
        its sources contain a word of the mutant's test filters; any other object is always
        needed."""
        program = re.match(r"tests/CMakeFiles/test_(\w+)\.dir/", output)
        if not program:
            return True
        words = {w for name, gtest_filter in mutant.tests if name == program[1]
                 for w in re.findall(r"\w{3,}", gtest_filter)}
        sources = "".join(pathlib.Path(s).read_text(encoding="utf-8")
                          for s in self.sources_of[output])
        return any(w in sources for w in words)

    def plant(self, mutant, into):
        """Compiles and links all targets that the mutant changes, into a folder. Returns {target:
        new path}."""
        file = mutant.file
        objects = self.objects(mutant)
        if not objects:
            raise BuildError(f"no object of {self.folder} contains {file}" +
                             (f" for {mutant.only}" if mutant.only else ""))
        overlay = into / "overlay"
        planted = overlay / file
        planted.parent.mkdir(parents=True, exist_ok=True)
        planted.write_text(mutant.planted(self.root), encoding="utf-8")
        original = str((self.root / file).resolve())
        new_objects = {}
        for number, output in enumerate(objects):
            words = list(self.compile[output])
            at = words.index("-c") + 1
            if output in self.unit_of:
                unit = overlay / f"unit_{number}.cpp"
                unit.write_text(self.unit_of[output].replace(f'"{original}"', f'"{planted}"'))
                words[at] = str(unit)
            elif not planted.name.endswith((".h", ".cuh")):
                words[at] = str(planted)
            new_objects[output] = str(into / f"{number}.o")
            words[words.index("-o") + 1] = new_objects[output]
            for flag in ("-MF", "-MT"):
                if flag in words:
                    words[words.index(flag) + 1] = str(into / f"{number}.d")
            self.call([words[0], f"-I{overlay}", *words[1:], "-w"])
        return self.link(new_objects, into)

    def link(self, new_objects, into):
        """Links each target that contains one of the objects."""
        made = {}
        for target, command in self.linked.items():
            if not any(word in new_objects for word in command):
                continue
            path = into / pathlib.Path(target).name
            words = [word for word in command if word not in new_objects]
            words[words.index("-o") + 1] = str(path)
            # The new objects come first: if several objects hold a function, the linker takes the
            # first copy.
            words[1:1] = [new_objects[word] for word in command if word in new_objects]
            self.call_linker(words)
            made[target] = path
            # Programs search for the name without the last version numbers.
            name = re.match(r"(.+\.so\.\d+)\.", path.name)
            if name:
                (into / name[1]).symlink_to(path.name)
        return made

    def call_linker(self, words):
        """Links with gold, which is faster, if it supports what this compiler needs."""
        if self.by_gold:
            try:
                return self.call(words + ["-fuse-ld=gold"])
            except BuildError:
                self.call(words)
                self.by_gold = False  # set only now: the mistake may cause the link error
                return None
        return self.call(words)

    def call(self, words):
        """Runs a compiler in the build folder."""
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(f"{done.stderr[-1500:]}\n  by: {shlex.join(words)[:300]} ...")
