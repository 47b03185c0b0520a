#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every example of every help page: help_examples.py PROGRAM ROOT

The examples of each help page run in a temporary folder. SET_UP first makes the runs and files that the examples
name. SHORTER adds arguments to examples that would take minutes. Examples in PARSED need a network, a browser or a
compiler, so they are only parsed. An example that needs a GPU, another library or a launcher may end with exit code
5 where this is missing.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

from readme_reader import Reader

QUICK = "--min-time 0.001 --rounds 1"
DIGITS = "data.train_size=128 data.test_size=32 train.epochs=1 expect=null"
SET_UP = [
    f"run quickstart --name pruned {DIGITS} 'sparsity={{method: filter, target: 0.5, end: 0.5}}'",
    f"run quickstart --name quantised {DIGITS} 'quant={{w_bits: 8, a_bits: 8}}'",
    f"run synthetic_resnet18_small --name resnet {DIGITS}",
    f"run quickstart --name a {DIGITS}", f"run quickstart --name b seed=2 {DIGITS}",
    f"sweep quickstart --name my_sweep {DIGITS} 'sweep={{grid: {{optim.lr: [0.1, 0.2]}}}}'",
    f"sweep deform_digits data.train_size=64 data.test_size=32 train.epochs=1 sweep.seeds=[1] expect=null "
    "'sweep.exclude=[{name: wide}, {name: plain}, {name: still}, {name: dilated}]'",
    *(f"bench conv2d --problem n=1,c=8,h=8,w=8,k=8,r=3,s=3 --algorithm direct,im2col_gemm {QUICK} --json {name}.json"
      for name in ("before", "a1", "a2", "a3", "b1", "b2", "b3", "bench_1", "bench_2")),
]
SHORTER = [  # (pattern, addition to the example)
    (r"run mnist_lenet5_baseline", " data.val_split=0 expect=null"),
    (r"run my_config", " data.train_size=128 data.test_size=32 expect=null"),
    (r"run quickstart \"sparsity", " expect=null"),
    (r"sweep synthetic_sweep( sweep\.seeds.*)?$", f" {DIGITS}"),
    (r"sweep .*--launcher slurm", " --dry-run"),
    (r"launch .*run", " data.train_size=128 data.test_size=32 train.epochs=1 expect=null"),
    (r"bench (conv2d|deform|sparse|net)", f" {QUICK}"),
    (r"launch .*bench exchange", " --min-time 0.001 --most 1"),
    (r"bench conv2d --ladder", " --problem n=1,c=8,h=8,w=8,k=8,r=3,s=3,pad=1"),
    (r"bench net resnet18", " --image 3x32x32 --classes 10"),
    (r"check conv2d winograd", " --quick"),
    (r"explain .*--ranks", " data.train_size=512"),
]
PARSED = (r"notebook( 04.*)?$|tune|data (fetch|check)|.*mine/build/mine\.so|launch .*--hosts|"
          r"check --plugin submissions|.*--against /usr/bin/convscope")
MAY_LACK = r"device[= ]cuda|--baseline|launch "
ORDER = ["run", "sweep", "launch", "export"]  # first: other examples read the files that these write


def commands(call):
    page = call("--help").stdout
    return re.findall(r"(?m)^  ([a-z]+) ", page[page.index("Train:"):page.index("Examples:")])


def examples(call, command):
    """Returns the examples of a help page, with continued lines (a backslash at the end) joined."""
    page = call("help", command).stdout.replace("\\\n", " ")
    return [re.sub(" +", " ", line) for line in re.findall(r"(?m)^  convscope (.+)$", page)]


def shortened(example):
    words, redirection = re.match(r"([^|>]*)(.*)", example).groups()
    return words.rstrip() + "".join(more for pattern, more in SHORTER
                                    if re.match(pattern, example)) + " " + redirection


class Shell:
    def __init__(self, program, root, folder):
        self.reader = Reader(program, root, folder)
        self.folder = folder
        self.environment = dict(os.environ, HOME=str(folder), PATH=f"{folder}/bin:{os.environ['PATH']}",
                                XDG_CACHE_HOME=str(folder / "cache"), TMPDIR=str(folder), COLUMNS="80")
        for name in ("CONVSCOPE_DATA", "NO_COLOR"):
            self.environment.pop(name, None)
        for name in ("bin", "experiments/shapes", "experiments/configs", ".config/fish/completions"):
            (folder / name).mkdir(parents=True)
        (folder / "bin/convscope").symlink_to(program)
        for name in ("quickstart.yaml", "base_lenet5.yaml"):
            (folder / "experiments/configs" / name).write_text((root / "experiments/configs" / name).read_text())
        (folder / "my_config.yaml").write_text("extends: experiments/configs/quickstart.yaml\n")
        (folder / "hosts.txt").write_text("localhost\n")
        for name, problem in (("resnet18", "n=1,c=8,h=8,w=8,k=8,r=3,s=3,pad=1"),
                              ("deform", "n=1,c=8,h=8,w=8,k=8,r=3,s=3,pad=1"),
                              ("sparse", "cloud=shell,sites=200,seed=1,kernel=3x3x3,c=8,k=8")):
            (folder / f"experiments/shapes/{name}.txt").write_text(problem + "\n")
        write = self.reader.write_npy
        write("dy.npy", 1, 4, 9, 9)
        write("v.npy", 1, 4, 9, 9)
        write("s.npy", 1, values=[0.5])
        write("rows.npy", 5, 3)
        write("scan.npy", 5, 3, code="i", values=[0, 1, 2, 0, 0, 0, 0, 2, 3, 0, 1, 1, 0, 2, 2])

    def run(self, words, **variables):
        text = f"set -o pipefail; convscope {words}".replace("/tmp/", f"{self.folder}/")
        return subprocess.run(["bash", "-c", text], cwd=self.folder, capture_output=True, text=True,
                              timeout=300, env=dict(self.environment, **variables), check=False)

    def prepare(self, example):
        """Writes arrays of the sizes that an example needs."""
        write = self.reader.write_npy
        if "--stride 2,1" in example:
            write("dy.npy", 1, 4, 4, 7)
        if example.startswith("op deform"):
            write("dy.npy", 1, 4, 9, 9)
        if example.startswith("op lsq"):
            write("dy.npy", 1, 4, 9, 9)
        if example.startswith("op ") and not example.startswith("op lsq"):
            write("w.npy", *((3, 4, 3, 3) if example.startswith("op conv_transpose2d") else (4, 3, 3, 3)))
        if example.startswith("op sparse"):
            write("x.npy", 5, 3)
            write("w.npy", 4, 3, 3, 3)


def problem(shell, example):
    shell.prepare(example)
    parsed = re.match(PARSED, example)
    done = shell.run(example if parsed else shortened(example), **({"CONVSCOPE_PARSE_ONLY": "1"} if parsed else {}))
    if done.returncode == 0 or (done.returncode == 5 and re.search(MAY_LACK, example)):
        return None
    return f"exit code {done.returncode}: {done.stdout[-300:]}{done.stderr[-600:]}"


def main():
    program, root = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    failed = count = 0
    with tempfile.TemporaryDirectory() as name:
        shell = Shell(program, root, pathlib.Path(name))
        for words in SET_UP:
            done = shell.run(words)
            if done.returncode != 0:
                sys.exit(f"set up: {words}\n{done.stdout[-500:]}{done.stderr[-900:]}")
        (shell.folder / "after.json").write_text((shell.folder / "before.json").read_text())  # no regression
        call = lambda *words: shell.run(shlex.join(words))  # noqa: E731
        names = commands(call)
        if len(names) < 20:
            sys.exit(f"expected at least 20 commands, got {names}")
        names.sort(key=lambda one: ORDER.index(one) if one in ORDER else len(ORDER))
        for command in names:
            found = examples(call, command)
            if not found:
                failed += 1
                print(f"FAILED  {command}: expected an example in its help", flush=True)
            for example in found:
                begin = time.monotonic()
                wrong = problem(shell, example)
                count += 1
                failed += wrong is not None
                print(f"{'ok' if wrong is None else 'FAILED'}  {time.monotonic() - begin:.1f} s  {example}" +
                      ("" if wrong is None else f"\n    {wrong}"), flush=True)
    print(f"{count} examples, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
