#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of the README does what the README says: readme_commands.py PROGRAM ROOT

The commands of its tables and of its fenced blocks (bootstrap.sh has a test of its own) run in a
temporary folder, those that train on built-in digits exactly as they stand. What each must print and
write stands in the checks below, each with the commands that it is for. A command without a check is
a failure: whoever adds a row to the README says here what it prints.
"""
import csv
import io
import json
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile

TABLE = ["id", "name", "batch_size", "avg_forward", "avg_backward", "avg_forward_mem",
         "avg_backward_mem", "kernel_size", "acc"]  # what every run ends with
QUICK = ["--min-time", "0.001", "--rounds", "1"]
NO_GPU = 5
CHECKS = []  # (pattern of the command, check)


class Wrong(Exception):
    """What is wrong, in a sentence."""


def check(*patterns):
    def add(function):
        CHECKS.extend((re.compile(pattern), function) for pattern in patterns)
        return function
    return add


def expect(holds, sentence):
    if not holds:
        raise Wrong(sentence)


def expect_text(text, *patterns):
    for pattern in patterns:
        expect(re.search(pattern, text), f"expected {pattern!r}")


def table_of(text):
    """The last Markdown table: its columns, and a dict for each row."""
    lines = [line for line in text.split("\n") if line.startswith("| ")]
    rules = [i for i, line in enumerate(lines) if set(line) <= set("|- ")]
    expect(rules, "expected a table")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    columns = cells[rules[-1] - 1]
    return columns, [dict(zip(columns, row)) for row in cells[rules[-1] + 1:]]


class Reader:
    """The folder that the commands run in, as a reader of the README would have it."""

    def __init__(self, program, root, folder):
        self.program, self.root, self.folder = program, root, folder
        self.last = None  # what the last call gave
        self.write_npy("x.npy", 1, 3, 9, 9)
        self.write_npy("w.npy", 4, 3, 3, 3)
        self.write_npy("offset.npy", 1, 18, 9, 9)
        self.write_npy("mask.npy", 1, 9, 9, 9)
        (folder / "data/mnist").mkdir(parents=True)
        for stem, count in (("train", 256), ("t10k", 64)):
            self.write_idx(f"data/mnist/{stem}-images-idx3-ubyte", count, 28, 28)
            self.write_idx(f"data/mnist/{stem}-labels-idx1-ubyte", count)

    def write_npy(self, name, *shape):
        count = 1
        for size in shape:
            count *= size
        head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape!r}, }}"
        head += " " * (-(len(head) + 11) % 64) + "\n"
        (self.folder / name).write_bytes(
            b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
            struct.pack(f"<{count}f", *[i % 5 - 2 for i in range(count)]))

    def write_idx(self, name, count, *image):
        size = count
        for side in image:
            size *= side
        (self.folder / name).write_bytes(
            bytes([0, 0, 8, 1 + len(image)]) + struct.pack(f">{1 + len(image)}I", count, *image) +
            bytes((i * 7 + i // 784) % 10 for i in range(size)))

    def call(self, *words):
        self.last = subprocess.run([str(self.program), *words], cwd=self.folder,
                                   capture_output=True, text=True, timeout=300)
        return self.last

    def text(self, name):
        path = self.folder / name
        expect(path.is_file(), f"expected the file {name}")
        return path.read_text()


def words_of(command):
    """As a shell would split it; CONFIG is the config that needs no files."""
    return ["quickstart" if word == "CONFIG" else word for word in shlex.split(command)]


def trained(reader, done):
    """The table of one run that is done; its row and its folder."""
    columns, rows = table_of(done.stdout)
    expect(columns[:len(TABLE)] == TABLE, f"expected the columns {TABLE}, got {columns}")
    expect(len(rows) == 1, f"expected one row, got {len(rows)}")
    expect_text(done.stderr, r"(?m)^epoch +loss +train% +val% +test% ", r"(?m)^ +5/5 ",
                r"(?m)^done   report: \S+/report.html$")
    folder = re.search(r"done   report: (\S+)/report.html", done.stderr).group(1)
    expect_text(reader.text(f"{folder}/report.html"), r"<svg")
    for name in ("config.yaml", "env.json", "summary.json", "epochs.csv", "layers.csv"):
        reader.text(f"{folder}/{name}")
    expect(float(rows[0]["acc"]) > 90, f"expected it to learn, got {rows[0]['acc']} %")
    return rows[0], folder


def summary_of(reader, folder):
    return json.loads(reader.text(f"{folder}/summary.json"))


@check(r"run (?:CONFIG|quickstart) optim\.lr=0\.05 model\.kernel_size=3")
def changes_a_value(reader, words):
    done = reader.call(*words)
    row, folder = trained(reader, done)
    expect(row["kernel_size"] == "3", "expected kernels of 3x3")
    expect_text(reader.text(f"{folder}/config.yaml"), r"lr: 0\.05\b")
    return done


@check(r"run CONFIG --resume auto")
def goes_on(reader, words):
    part = reader.call("run", "quickstart", "--epochs-limit", "2")
    expect(part.returncode == 0 and "paused after epoch 2 of 5" in part.stderr, "expected a pause")
    done = reader.call(*words)
    trained(reader, done)
    expect_text(done.stderr, r"(?m)^ +3/5 ")
    expect("1/5" not in done.stderr, "expected no first epoch again")
    return done


@check(r"run CONFIG conv\.per_layer\.c1=im2col_gemm")
def chooses_an_algorithm(reader, words):
    done = reader.call(*words)
    _, folder = trained(reader, done)
    rows = {row["layer"]: row for row in csv.DictReader(io.StringIO(
        reader.text(f"{folder}/layers.csv")))}
    expect("im2col_gemm" in " ".join(rows["c1"].values()), f"expected it in c1, got {rows['c1']}")
    return done


@check(r'run CONFIG "quant=\{w_bits: 4, a_bits: 4\}"')
def quantises(reader, words):
    done = reader.call(*words)
    _, folder = trained(reader, done)
    expect_text(done.stderr, r"(?m)^runs   fake-quant f32: ")
    expect(summary_of(reader, folder)["execution"] == "fake-quant f32", "expected fake-quant f32")
    return done


@check(r'run CONFIG "sparsity=\{method: magnitude, target: 0\.9\}"')
def prunes(reader, words):
    done = reader.call(*words)
    _, folder = trained(reader, done)
    expect_text(done.stderr, r"(?m)^runs   masked dense: ", r"masks are final after step \d+",
                r"(?m)^total +44190 +39771 +10\.00 %")
    expect(summary_of(reader, folder)["execution"] == "masked dense", "expected masked dense")
    return done


@check(r"run CONFIG device=cuda( precision=(tf32|bf16|f16))?")
def trains_on_a_gpu(reader, words):
    done = reader.call(*words)
    if done.returncode == 0:
        trained(reader, done)
        return done
    expect(done.returncode == NO_GPU, "expected exit code 0, or 5 where there is no GPU")
    expect_text(done.stderr, r"^error: .*cuda")
    info = reader.call("info")
    expect_text(info.stdout, r"(?m)cuda +not available|cuda.*: no|no CUDA|cuda")
    done.returncode = 0
    return done


@check(r"sweep synthetic_sweep")
def sweeps(reader, words):
    done = reader.call(*words, "sweep.seeds=[1]", "train.epochs=1",
                       "data.train_size=256", "data.test_size=64")
    columns, rows = table_of(done.stdout)
    expect("acc" in columns and "name" in columns, f"expected name and acc, got {columns}")
    expect(len(rows) == 4, f"expected four rows, got {len(rows)}")
    listed = reader.call(*words, "--dry-run")
    expect(len(re.findall(r"seed|\bs[12]\b", listed.stdout)) >= 8, "expected eight members")
    return done


@check(r'report runs/ --columns \+optim\.lr --filter "acc>50" --sort acc --descending')
def reports(reader, words):
    done = reader.call(*words)
    columns, rows = table_of(done.stdout)
    expect("optim.lr" in columns, f"expected optim.lr among {columns}")
    expect(all(float(row["acc"]) > 50 for row in rows), "expected accuracies above 50 only")
    expect(columns[:len(TABLE)] == TABLE, f"expected the columns {TABLE}, got {columns}")
    order = [float(row["acc"]) for row in rows if row["acc"] not in ("", "-")]
    expect(len(order) > 3 and order == sorted(order, reverse=True), f"expected an order, got {order}")
    return done


@check(r"explain CONFIG")
def explains(reader, words):
    done = reader.call(*words)
    for layer in ("c1", "c2"):
        expect_text(done.stdout, rf"(?m)^ *{layer}\b")
    expect_text(done.stdout, r"What a training step runs", r"forward +backward_data +backward_weight")
    # The row says 'know why': every algorithm of a layer, with its time or its reason.
    of_layer = reader.call(*words, "--layer", "c2")
    expect_text(of_layer.stdout, r"(?m)^ +[*+]? *direct_batch_lanes +\d+\.\d+ ",
                r"winograd_f4x3 +refuses: .*3x3")
    return done


@check(r"plot runs/quickstart")
def plots(reader, words):
    done = reader.call(*words)
    files = done.stdout.split()
    for name in ("curves.svg", "pareto.svg", "bars.svg", "memory.svg", "sparsity.svg", "steps.svg",
                 "report.html"):
        found = [path for path in files if path.endswith("/" + name)]
        expect(found, f"expected {name} among {files}")
        expect_text(reader.text(found[0]), r"<svg")
    return done


@check(r"bench conv2d --shapes experiments/shapes/resnet18\.txt --threads 1 --json bench\.json")
def times_convolutions(reader, words):
    problems = (reader.root / words[words.index("--shapes") + 1]).read_text().split("\n")
    first = re.sub(r"\bn=\d+", "n=1", problems[1])
    first = re.sub(r"h=\d+,w=\d+", "h=28,w=28", first)
    (reader.folder / "small.txt").write_text(first + "\n")
    words[words.index("--shapes") + 1] = "small.txt"
    done = reader.call(*words, *QUICK)
    for direction in ("forward", "backward_data", "backward_weight"):
        expect_text(done.stdout, rf"(?m)^n=1,c=3,h=28,\S+  {direction}  \S+ MFLOP  1 thread$")
    expect_text(done.stdout, r"(?m)^ +algorithm +median ms +p10 +p90 +min +prepare +GFLOP/s eff\. ",
                r"(?m)^ +\* \w+ +\d", r"refuses: ", r"\*: what auto chooses\. median ms")
    rows = json.loads(reader.text("bench.json"))["rows"]
    expect({row["direction"] for row in rows} == {"forward", "backward_data", "backward_weight"},
           "expected rows of three directions in bench.json")
    expect(all(row["median_ms"] > 0 and row["error_ratio"] <= 1 for row in rows),
           "expected checked times in bench.json")
    return done


@check(r"bench deform_conv2d --shapes experiments/shapes/deform\.txt --threads 1")
def times_deformable_convolutions(reader, words):
    problems = (reader.root / words[words.index("--shapes") + 1]).read_text().split("\n")
    first = [line for line in problems if line and line[0] != "#"][0]
    small = re.sub(r"c=\d+,h=\d+,w=\d+,k=\d+", "c=32,h=7,w=9,k=16", re.sub(r"\bn=\d+", "n=1", first))
    (reader.folder / "small.txt").write_text(small + "\n")
    words[words.index("--shapes") + 1] = "small.txt"
    done = reader.call(*words, *QUICK, "--json", "deform.json")
    for direction in ("forward", "backward_data", "backward_weight"):
        expect_text(done.stdout, rf"(?m)^n=1,c=32,h=7,\S+,mask=1  {direction}  \S+ MFLOP  1 thread$")
    expect_text(done.stdout, r"(?m)^ +\* \w+ +\d", r"\*: what auto chooses\. median ms")
    rows = json.loads(reader.text("deform.json"))["rows"]
    expect(all(row["median_ms"] > 0 and row["error_ratio"] <= 1 for row in rows),
           "expected checked times in deform.json")
    return done


@check(r"bench net resnet18 --batch 1,8 --layers")
def times_a_network(reader, words):
    done = reader.call(*words, *QUICK, "--image", "3x64x64", "--classes", "10")
    columns, rows = table_of(done.stdout)
    expect(columns[:6] == ["mode", "batch", "median ms", "p10", "p90", "min"],
           f"expected mode, batch and times, got {columns}")
    expect([(row["mode"], row["batch"]) for row in rows] ==
           [("inference", "1"), ("inference", "8"), ("train", "1"), ("train", "8")],
           f"expected two modes by two batches, got {rows}")
    expect_text(done.stdout, r"Layers of resnet18, train, batch 8, each alone:",
                r"\| layer +\| kind +\| output ", r"Operations of resnet18 as planned")
    return done


@check(r"bench conv2d --ladder winograd")
def climbs(reader, words):
    done = reader.call(*words, *QUICK)
    expect_text(done.stdout, r"(?m)^ladder winograd: forward of n=",
                r"(?m)^ +rung +ms +GFLOP/s +% of peak +over below +err/bound$",
                r"(?m)^  from \S.* to \S.*: [\d.]+x$")
    return done


@check(r"plot bench\.json")
def plots_a_benchmark(reader, words):
    done = reader.call(*words)
    files = done.stdout.split()
    for name in ("heatmap", "roofline", "workspace"):
        expect(any(name in path for path in files), f"expected a figure {name}, got {files}")
    for path in files:
        expect_text(reader.text(path), r"<svg")
    return done


@check(r"export RUN --compact small\.safetensors")
def exports(reader, words):
    made = reader.call("run", "quickstart", "name=pruned", "train.epochs=2", "expect=null",
                       "sparsity={method: filter, target: 0.5, start: 0, end: 0.5, every_steps: 1, "
                       "exclude: [f5]}")
    expect(made.returncode == 0, f"expected a pruned run, got {made.stderr}")
    words[words.index("RUN")] = "runs/pruned"
    done = reader.call(*words)
    expect_text(done.stdout, r"(?m)^kept +c1 3 of 6", r"(?m)^ +masked dense +compact dense +ratio$",
                r"(?m)^parameters +44426 +\d+ ", r"(?m)^written +small\.safetensors$")
    scored = reader.call("eval", "small.safetensors")
    expect_text(scored.stdout, r"^split test  images 2000  accuracy \d+\.\d+ %  loss ")
    return done


@check(r"export RUN --quantised codes\.safetensors", r"eval codes\.safetensors")
def keeps_codes(reader, words):
    if words[0] == "export":
        made = reader.call("run", "quickstart", "name=quantised", "train.epochs=2", "expect=null",
                           "quant={w_bits: 4, a_bits: 4, begin: 0.5}")
        expect(made.returncode == 0, f"expected a quantised run, got {made.stderr}")
        words[words.index("RUN")] = "runs/quantised"
    done = reader.call(*words)
    expect_text(done.stdout, *([r"(?m)^c2 +4 +1 +1200$", r"(?m)^outputs +differ by 0 from those of the run",
                                r"(?m)^written +codes\.safetensors, \d+ bytes"] if words[0] == "export" else
                               [r"^split test  images 2000  accuracy \d+\.\d+ %  loss "]))
    return done


@check(r"export RUN --sparse kept\.safetensors", r"eval kept\.safetensors")
def keeps_what_masks_leave(reader, words):
    if words[0] == "export":
        made = reader.call("run", "quickstart", "name=sparse", "train.epochs=2", "expect=null",
                           "sparsity={method: block, block: [4, 1], target: 0.5, start: 0, end: 0.5}")
        expect(made.returncode == 0, f"expected a pruned run, got {made.stderr}")
        words[words.index("RUN")] = "runs/sparse"
    done = reader.call(*words)
    expect_text(done.stdout, *([r"(?m)^c2\.weight +2400 +1200 +4x1 +bits +\d+$",
                                r"(?m)^outputs +differ by 0 from those of the run",
                                r"(?m)^written +kept\.safetensors, \d+ bytes"] if words[0] == "export" else
                               [r"^split test  images 2000  accuracy \d+\.\d+ %  loss "]))
    return done


@check(r"export RUN --onnx net\.onnx")
def becomes_onnx(reader, words):
    made = reader.call("run", "quickstart", "name=onnx", "train.epochs=1", "expect=null")
    expect(made.returncode == 0, f"expected a run, got {made.stderr}")
    words[words.index("RUN")] = "runs/onnx"
    done = reader.call(*words)
    expect_text(done.stdout, r"(?m)^operators +Conv 2 Flatten 1 Gemm 3 MaxPool 2 Relu 4$",
                r"(?m)^images +images \[N,1,28,28\]", r"(?m)^written +net\.onnx, \d+ bytes$")
    return done


@check(r"op conv2d --x x\.npy --w w\.npy --stride 2 --padding 1 --out-y y\.npy")
def convolves(reader, words):
    done = reader.call(*words)
    path = reader.folder / "y.npy"
    expect(path.is_file(), "expected the file y.npy")
    expect(b"'shape': (1, 4, 5, 5)" in path.read_bytes(), "expected y of [1,4,5,5]")
    return done


@check(r"op deform_conv2d --x x\.npy --offset offset\.npy --mask mask\.npy --w w\.npy --padding 1 --out-y y\.npy")
def convolves_at_other_places(reader, words):
    done = reader.call(*words)
    expect_text(done.stderr, r"(?m)^forward: \w+$", r",offset_groups=1,mask=1\n")
    written = (reader.folder / "y.npy").read_bytes()
    expect(b"'shape': (1, 4, 9, 9)" in written, "expected y of [1,4,9,9]")
    return done


@check(r"new algorithm mine")
def begins_an_algorithm(reader, words):
    done = reader.call(*words)
    expect(done.stdout.split("\n")[:3] ==
           ["wrote mine/mine.cpp", "wrote mine/CMakeLists.txt", "wrote mine/README.md"],
           "expected the names of three files")
    expect_text(reader.text("mine/mine.cpp"), r"(?m)^CONVSCOPE_CONV2D_PLUGIN\(convscope::kCard, ",
                r'(?m)^    \.name = "mine",$')
    lines = reader.text("mine/mine.cpp").split("\n")
    expect(len(lines) <= 121, f"expected a source of at most 120 lines, got {len(lines) - 1}")
    expect(max(map(len, lines)) <= 100, "expected lines of at most 100 columns")
    expect_text(reader.text("mine/CMakeLists.txt"), r"(?m)^find_package\(convscope ")
    again = reader.call(*words)
    expect(again.returncode == 6 and "nothing is written over" in again.stderr,
           "expected nothing to be written over")
    bad = reader.call("new", "algorithm", "My-Own")
    expect(bad.returncode == 2 and "small letters" in bad.stderr, "expected a bad name to be refused")
    return done


@check(r"check conv2d direct --quick")
def checks_an_algorithm(reader, words):
    done = reader.call(*words)
    expect_text(done.stdout, r"^ok     direct: \d{3,} cases of forward, backward_data, "
                r"backward_weight agree with the reference \(\d+\.\d s")
    return done


@check(r"config keys")
def lists_keys(reader, words):
    done = reader.call(*words)
    expect_text(done.stdout, r"(?m)^train\.epochs\n    passes over the training images\n"
                r"    an integer, 1 to 1e\+06; default 10$", r"(?m)^optim\[sgd\]\.momentum$")
    return done


@check(r"config show CONFIG")
def shows_a_config(reader, words):
    done = reader.call(*words)
    expect_text(done.stdout, r"(?m)^train:\n  epochs: 5 +# \S*quickstart\.yaml:\d+$",
                r"(?m)^  lr: 0\.05 +# \S*base_lenet5\.yaml:\d+$")
    return done


@check(r"config list")
def lists_configs(reader, words):
    done = reader.call(*words)
    names = {path.stem for path in (reader.root / "experiments/configs").glob("*.yaml")}
    expect({line.split()[0] for line in done.stdout.splitlines()} == names,
           "expected a line for each file of experiments/configs")
    expect_text(done.stdout, r"(?m)^quickstart +\S+ \S+.*\?$")
    return done


@check(r"init my\.yaml --data mnist --model lenet5")
def writes_a_config(reader, words):
    done = reader.call(*words)
    expect(done.stdout == "wrote my.yaml\n", "expected the name of the file")
    expect_text(done.stderr, r"(?m)^next: convscope data fetch mnist && convscope run my\.yaml$")
    expect_text(reader.text("my.yaml"), r"(?m)^data:\n  set: mnist ", r"(?m)^model:\n  type: lenet5 ",
                r"(?m)^# sparsity:$")
    made = reader.call("run", "my.yaml", "train.epochs=1", "data.val_split=64")
    expect(made.returncode == 0, f"expected it to train, got {made.stderr}")
    return done


@check(r"completion (bash|zsh|fish)")
def completes(reader, words):
    done = reader.call(*words)
    expect_text(done.stdout, r"completion words", r"(?m)^# ?\w+ completion of convscope")
    return done


@check(r"help run")
def helps(reader, words):
    done = reader.call(*words)
    expect_text(done.stdout, r"^convscope run: ", r"(?m)^Usage: convscope run CONFIG",
                r"(?m)^Options:$", r"(?m)^      --resume RUN ")
    return done


@check(r"man")
def prints_the_manual(reader, words):
    done = reader.call(*words)
    expect_text(done.stdout, r"(?m)^\.TH CONVSCOPE 1 ", r"(?m)^\.SH EXIT STATUS$")
    return done


@check(r"notebook")
def opens_the_notebooks(reader, words):
    python = reader.folder / "pretended_python"  # says how it was called
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    os.environ["CONVSCOPE_PYTHON"] = str(python)
    try:
        done = reader.call(*words)
    finally:
        del os.environ["CONVSCOPE_PYTHON"]
    expect_text(done.stdout, r"experiments/notebooks/set_up\.py\n--lab\n--environment\n",
                r"--library\n\S+/libconvscope\.so", r"--course\n")
    named = reader.call("notebook", "77")
    expect(named.returncode == 2, "expected exit code 2 for a notebook that is not there")
    expect_text(named.stderr, r"got '77' \(there are: 01_")
    reader.last = done
    return done


@check(r"notebook --list")
def lists_notebooks(reader, words):
    done = reader.call(*words)
    names = sorted(path.stem for path in (reader.root / "experiments/notebooks").glob("*.ipynb"))
    expect(done.stdout.split("\n")[0:-1:2] == names, "expected every notebook")
    expect_text(done.stdout, r"(?m)^    Nine numbers can find the edges .*\?$")
    return done


@check(r"run quickstart")
def trains(reader, words):
    done = reader.call(*words)
    trained(reader, done)
    return done


@check(r"info")
def knows_the_machine(reader, words):
    done = reader.call(*words)
    expect_text(done.stdout, r"(?i)cpu", r"Convolution algorithms, CPU", r"im2col_gemm", r"cuda")
    return done


@check(r"look winograd")
def looks(reader, words):
    done = reader.call(*words)
    expect_text(done.stdout, r"(?m)^look-winograd\.html$",
                r"(?m)^winograd_lesson, forward, .*, 256 multiplications \(textbook: 576\)")
    expect_text(reader.text("look-winograd.html"), r"winograd_lesson_cpu\.cpp", r"const data = ")
    return done


@check(r"data fetch mnist")
def fetches(reader, words):
    done = reader.call(*words, "--mirror", "http://127.0.0.1:9", "--root", "fetched")
    expect(done.returncode in (4, 6), "expected exit code 4 or 6 from a mirror that is not there")
    expect_text(done.stderr, r"(?m)^error: ", r"http://127\.0\.0\.1:9/train-images-idx3-ubyte\.gz")
    done.returncode = 0
    return done


@check(r"run experiments/configs/mnist_lenet5_baseline\.yaml", r"run mnist_lenet5_baseline")
def trains_on_mnist(reader, words):
    words[1] = str(reader.root / words[1]) if "/" in words[1] else words[1]
    done = reader.call(*words, "train.epochs=1", "expect=null")
    columns, rows = table_of(done.stdout)
    expect(columns[:len(TABLE)] == TABLE and len(rows) == 1, "expected the table of one run")
    expect_text(done.stderr, r"data   mnist: 256 train, 0 val, 64 test; model lenet5")
    return done


@check(r"report runs/mnist_lenet5_baseline")
def reports_one_experiment(reader, words):
    done = reader.call(*words)
    columns, rows = table_of(done.stdout)
    expect(columns[:len(TABLE)] == TABLE, f"expected the columns {TABLE}, got {columns}")
    expect([row["name"] for row in rows] == ["mnist_lenet5_baseline"], f"expected its row, got {rows}")
    return done


@check(r"run CONFIG conv\.algorithm=winograd_f4x3,auto")
def falls_back(reader, words):
    done = reader.call(*words)
    _, folder = trained(reader, done)
    kernels = reader.text(f"{folder}/layers.csv")
    expect("winograd" not in kernels, "expected none: the kernels are 5x5")
    return done


@check(r"watch runs/quickstart")
def watches(reader, words):
    done = reader.call(*words)
    expect_text(done.stdout, r"DONE|done", r"5/5", r"\d+\.\d+ %|\d+\.\d\d")
    return done


@check(r"compare runs/quickstart runs/other")
def compares(reader, words):
    other = reader.call("run", "quickstart", "--name", "other", "optim.lr=0.01", "expect=null")
    expect(other.returncode == 0, "expected a second run")
    done = reader.call(*words)
    expect_text(done.stdout, r"(?m)^\| optim\.lr +\| \S+ +\| 0\.01 ", r"(?m)^\| acc \(%\) +\|")
    return done


@check(r'note runs/quickstart "first try" --tag baseline')
def notes(reader, words):
    done = reader.call(*words)
    expect_text(done.stdout, r"(?m)^tags +baseline$", r"(?m)^note +first try$")
    return done


@check(r"index runs/")
def lists_all_runs(reader, words):
    done = reader.call(*words)
    page = reader.text("runs/index.html")
    expect_text(page, r"<input", r"quickstart", r"baseline", r"<svg")
    return done


def commands(readme):
    """Those in backticks in rows of tables, and those behind a `$` in fenced blocks. Options named
    alone belong to no command."""
    found, fenced = [], False
    for line in readme.read_text().split("\n"):
        if line.startswith("```"):
            fenced = not fenced
        elif fenced and line.startswith("$ ") and "bootstrap.sh" not in line:
            found.append(re.sub(r"^\$ (\S*/)?convscope ", "", line.split("   #")[0]).strip())
        elif line.startswith("|") and not fenced:
            texts = re.findall(r"`convscope ([^`]+)`", line)
            found += [text for text in texts if re.match(r"[a-z]+( |$)", text) and
                      not text.endswith("--json")]
    return list(dict.fromkeys(found))


def problem(reader, text):
    """Runs a command; what is wrong, or None."""
    function = next((one for pattern, one in CHECKS if pattern.fullmatch(text)), None)
    if function is None:
        return "expected a check in readme_commands.py that says what it prints"
    try:
        done = function(reader, words_of(text))
        expect(done.returncode == 0, f"expected exit code 0, got {done.returncode}")
        expect(done.stdout.strip() or "--out-y" in text or "data fetch" in text or
               "device=cuda" in text, "expected output")
    except (Wrong, KeyError, ValueError, AttributeError) as error:
        done = reader.last
        return (f"{type(error).__name__}: {error}\n    ran: {shlex.join(done.args)}\n    exit code "
                f"{done.returncode}\n    stdout: {done.stdout[-900:]}\n    stderr: {done.stderr[-900:]}")
    return None


def main():
    program, root = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    found = commands(root / "README.md")
    if len(found) < 15:
        sys.exit(f"README.md: expected at least 15 commands, got {len(found)}")
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        os.environ.pop("CONVSCOPE_DATA", None)
        reader = Reader(program, root, folder)
        # Plots come after the runs and the benchmark that they show.
        for text in sorted(found, key=lambda text: text.startswith(("plot", "report", "index"))):
            wrong = problem(reader, text)
            failed += wrong is not None
            print(f"{'ok' if wrong is None else 'FAILED'}  {text}" +
                  ("" if wrong is None else f"\n    {wrong}"), flush=True)
    print(f"{len(found)} commands, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
