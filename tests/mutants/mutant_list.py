# SPDX-License-Identifier: Apache-2.0
"""Reads the lists of mutants in list/*.txt and reports what is wrong with them."""
import dataclasses
import hashlib
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parent / "list"
KEYS = ("file", "old", "new", "what", "test", "only", "objects", "equivalent")
ISAS = ("scalar", "vector4", "avx2", "avx512")
PROGRAMS = ("framework", "layers", "optim", "quant", "sparsity", "datasets", "experiments", "cuda",
            "emulation")


class ListError(Exception):
    """A mutant that cannot be planted as written."""


@dataclasses.dataclass
class Mutant:
    """One small mistake: `old` in `file` becomes `new`."""

    id: str
    area: str
    line: int  # in the list
    file: str = ""
    old: str = ""
    new: str = ""
    what: str = ""
    tests: list = dataclasses.field(default_factory=list)  # (program, gtest filter)
    only: str = ""  # the only instruction set whose object has the mistake
    objects: str = ""  # an expression: only these of the objects that include the header
    equivalent: str = ""  # why no test can see it

    def planted(self, root):
        """Returns the text of the file with the mistake in it."""
        path = pathlib.Path(root) / self.file
        if not path.is_file():
            raise ListError(f"{self.id}: there is no file {self.file}")
        text = path.read_text(encoding="utf-8")
        count = text.count(self.old)
        if count != 1:
            raise ListError(f"{self.id}: the old text stands {count} times in {self.file}, "
                            f"and not once: {self.old!r}")
        return text.replace(self.old, self.new)

    def key(self, root):
        """Returns a hash that changes when the mutant or its file does."""
        text = "\0".join([self.planted(root), self.only, self.objects, repr(self.tests)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_list(path):
    """Returns the mutants of one list. Its lines are 'key: value'; the key 'mutant' begins a mutant.

    A repeated 'test' adds a test; any other repeated key adds a line to its value.
    """
    mutants = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, colon, value = line.partition(":")
        where = f"{path.name}:{number}"
        value = value[1:] if value.startswith(" ") else value
        if not colon:
            raise ListError(f"{where}: expected 'key: value', got {line!r}")
        if key == "mutant":
            mutants.append(Mutant(f"{path.stem}/{value.strip()}", path.stem, number))
        elif key not in KEYS or not mutants:
            raise ListError(f"{where}: unknown key {key!r}, or no 'mutant:' before it")
        elif key == "test":
            program, _, gtest_filter = value.partition(" ")
            mutants[-1].tests.append((program, gtest_filter.strip()))
        else:
            before = getattr(mutants[-1], key)
            setattr(mutants[-1], key, f"{before}\n{value}" if before else value)
    return mutants


def read_all(folder=FOLDER):
    """Returns the mutants of all lists, in the order of the files."""
    return [m for path in sorted(folder.glob("*.txt")) for m in read_list(path)]


def mistakes(mutants, root):
    """Returns what is wrong with the lists, one sentence per problem."""
    root = pathlib.Path(root)
    tests = "\n".join(p.read_text(encoding="utf-8", errors="replace")
                      for p in sorted(root.glob("tests/**/*.cpp")))
    out = []
    seen = set()
    for m in mutants:
        if m.id in seen:
            out.append(f"{m.id}: the name is taken twice")
        seen.add(m.id)
        for key in ("file", "old", "what", "tests"):
            if not getattr(m, key):
                out.append(f"{m.id}: has no '{key}'")
        if m.only and m.only not in ISAS:
            out.append(f"{m.id}: expected 'only' to be one of {', '.join(ISAS)}, got {m.only!r}")
        for program, gtest_filter in m.tests:
            if program not in PROGRAMS:
                out.append(f"{m.id}: there is no test program {program!r}")
            for part in gtest_filter.split("-")[0].split(":"):
                for word in re.findall(r"\w{3,}", part):
                    if word not in tests:
                        out.append(f"{m.id}: the filter names {word!r}, which no test contains")
        try:
            if m.file and m.old and m.planted(root) == (root / m.file).read_text(encoding="utf-8"):
                out.append(f"{m.id}: changes nothing")
        except ListError as error:
            out.append(str(error))
    return out
