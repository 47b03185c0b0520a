#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of the README's tables does what the table says: readme_commands.py PROGRAM ROOT

Runs each in a temporary folder on built-in data, with small settings added, and reads its exit code
and its output. A command of a new row runs too: then exit code 0 and some output are expected.
"""
import json
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile

SMALL_RUN = ["data.train_size=256", "data.test_size=64", "train.epochs=1", "expect.test_acc_min=0"]
QUICK = ["--min-time", "0.001", "--rounds", "1"]
NEEDS_NETWORK = re.compile(r"^data fetch\b|mnist|cifar10")
NO_GPU = 5


def commands(readme):
    """The commands in backticks in table rows; options named alone belong to no command."""
    found = []
    for line in readme.read_text().split("\n"):
        if line.startswith("|"):
            found += [text for text in re.findall(r"`(convscope [^`]+)`", line)
                      if re.match(r"convscope [a-z]+( |$)", text) and not text.endswith("--json")]
    return found


def write_npy(path, *shape):
    count = 1
    for size in shape:
        count *= size
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape!r}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
                     struct.pack(f"<{count}f", *[i % 5 - 2 for i in range(count)]))


class Runner:
    def __init__(self, program, root, folder):
        self.program, self.root, self.folder = program, root, folder
        write_npy(folder / "x.npy", 1, 3, 9, 9)
        write_npy(folder / "w.npy", 4, 3, 3, 3)
        self.failures = []

    def call(self, words):
        return subprocess.run([str(self.program), *words], cwd=self.folder, capture_output=True,
                              text=True, timeout=600)

    def first_runs(self):
        """The run that RUN, runs/ and plots stand for, one with filters pruned, and a benchmark's
        file."""
        self.run, self.pruned = (self.train(*more) for more in (
            [], ["name=pruned", "sparsity={method: filter, target: 0.5, start: 0, end: 0.5, "
                 "every_steps: 1, exclude: [f5]}"]))
        made = self.call(["bench", "conv2d", "--problem", "n=1,c=8,h=12,w=12,k=8,r=3,s=3,pad=1",
                          "--json", "bench.json", *QUICK])
        assert made.returncode == 0, made.stderr

    def train(self, *more):
        made = self.call(["run", str(self.root / "experiments/configs/quickstart.yaml"), *SMALL_RUN,
                          *more])
        assert made.returncode == 0, made.stderr
        return made.stderr.split("report: ")[1].split("/report.html")[0].strip()

    def arguments(self, text):
        config = str(self.root / "experiments/configs/quickstart.yaml")
        run = self.pruned if "--compact" in text else self.run
        words = [config if word == "CONFIG" else run if word == "RUN"
                 else str(self.root / word) if word.startswith("experiments/") else word
                 for word in shlex.split(text)[1:]]
        if "CONFIG" in text.split() and words[0] in ("run", "sweep"):
            words += SMALL_RUN
        elif words[0] == "sweep":
            words += ["sweep.seeds=[1]", "sweep.grid.data.batch_size=[64]", *SMALL_RUN[:3]]
        if words[:2] == ["bench", "conv2d"]:
            words += QUICK
            if "--shapes" in words:
                at = words.index("--shapes")
                words[at:at + 2] = ["--problem", "n=1,c=8,h=14,w=14,k=16,r=3,s=3,pad=1"]
        if words[:2] == ["bench", "net"]:
            words += QUICK + ["--image", "3x64x64", "--classes", "10"]
        return words

    def check(self, text):
        words = self.arguments(text)
        done = self.call(words)
        wrong = self.problem(words, done)
        print(f"{'ok' if not wrong else 'FAILED'}  {text}")
        if wrong:
            self.failures.append(text)
            print(f"    ran: convscope {shlex.join(words)}\n    {wrong}\n    exit code "
                  f"{done.returncode}\n    stdout: {done.stdout[-600:]}\n    stderr: "
                  f"{done.stderr[-900:]}")

    def problem(self, words, done):
        on_gpu = any(word.startswith(("device=cuda", "--device")) for word in words)
        if on_gpu and done.returncode == NO_GPU:
            return None if "error:" in done.stderr else "expected an error's sentence"
        if done.returncode != 0:
            return "expected exit code 0"
        shapes = {
            "run": r"\| acc +\|.*\n\|[ -|]+\n\| \S+", "report": r"\| acc +\|",
            "sweep": r"\|", "explain": r"forward", "info": r"Convolution algorithms, CPU",
            "plot": r"\.svg", "bench": r"\d", "config": r"train\.epochs|epochs:",
            "op": r"", "export": r"", "eval": r"\d"}
        if not re.search(shapes.get(words[0], r"\S"), done.stdout):
            return f"expected stdout to match {shapes.get(words[0])!r}"
        for option in ("--json", "--out-y", "--compact"):
            if option in words and not (self.folder / words[words.index(option) + 1]).is_file():
                return f"expected the file of {option}"
        if "--json" in words:
            json.loads((self.folder / words[words.index("--json") + 1]).read_text())
        return None


def main():
    program, root = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    found = commands(root / "README.md")
    if len(found) < 10:
        sys.exit(f"README.md: expected at least ten commands in its tables, got {len(found)}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        runner = Runner(program, root, folder)
        runner.first_runs()
        for text in found:
            if NEEDS_NETWORK.search(text.removeprefix("convscope ")):
                print(f"left out, because it needs data from the network: {text}")
            else:
                runner.check(text)
        print(f"{len(found)} commands, {len(runner.failures)} failed")
        sys.exit(1 if runner.failures else 0)


if __name__ == "__main__":
    main()
