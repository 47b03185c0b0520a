# SPDX-License-Identifier: Apache-2.0
"""Checks the commands of the README and the guides that do not concern runs: benchmarks, single operations,
configs, help, notebooks, plug-ins."""
import json
import os
import re

from readme_reader import QUICK, check, expect, expect_text, table_of


@check(r"bench conv2d --shapes experiments/shapes/resnet18\.txt --threads 1 --json bench\.json")
def times_convolutions(reader, words):
    problems = (reader.root / words[words.index("--shapes") + 1]).read_text().split("\n")
    first = re.sub(r"\bn=\d+", "n=1", [line for line in problems if line and line[0] != "#"][0])
    first = re.sub(r"h=\d+,w=\d+", "h=28,w=28", first)
    (reader.folder / "small.txt").write_text(first + "\n")
    words[words.index("--shapes") + 1] = "small.txt"
    done = reader.call(*words, *QUICK)
    for direction in ("forward", "backward_data", "backward_weight"):
        expect_text(done.stdout, rf"(?m)^n=1,c=3,h=28,\S+  {direction}  \S+ MFLOP  1 thread$")
    expect_text(done.stdout, r"(?m)^ +algorithm +median ms +p10 +p90 +min +prepare +GFLOP/s eff\. ",
                r"(?m)^ +\* \w+ +\d", r"refuses: ", r"\*: choice of auto\. median ms")
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
    expect_text(done.stdout, r"(?m)^ +\* \w+ +\d", r"\*: choice of auto\. median ms")
    rows = json.loads(reader.text("deform.json"))["rows"]
    expect(all(row["median_ms"] > 0 and row["error_ratio"] <= 1 for row in rows),
           "expected checked times in deform.json")
    return done


@check(r"bench sparse_conv --shapes experiments/shapes/sparse\.txt --threads 1")
def times_sparse_convolutions(reader, words):
    problems = (reader.root / words[words.index("--shapes") + 1]).read_text().split("\n")
    first = [line for line in problems if line and line[0] != "#"][0]
    (reader.folder / "small.txt").write_text(re.sub(r"sites=\d+", "sites=500", first) + "\n")
    words[words.index("--shapes") + 1] = "small.txt"
    done = reader.call(*words, *QUICK, "--json", "sparse.json")
    for direction in ("forward", "backward_data", "backward_weight"):
        expect_text(done.stdout, rf"(?m)^cloud=shell,sites=500,\S+  {direction}  \S+ MFLOP  1 thread$")
    expect_text(done.stdout, r"(?m)^  500 sites in 1x\d+x\d+x\d+, density ", r"(?m)^ +\* \w+ +\d", r" 1\.00x\n")
    rows = json.loads(reader.text("sparse.json"))["rows"]
    expect(all(row["median_ms"] > 0 and row["error_ratio"] <= 1 and row["sites"] == 500 for row in rows),
           "expected checked times of 500 sites in sparse.json")
    return done


@check(r"bench sparse_net --threads 1")
def times_a_sparse_network(reader, words):
    done = reader.call(*words, *QUICK, "--voxels", "500")
    expect_text(done.stdout, r"^16-32-32-64-64-64-64, 3x3x3, 500 sites in ", r"(?m)^\| f32 +\| auto +\| \d",
                r"(?m)^f32 auto \(forward, dx, dw\): 16-32: ")
    expect_text(done.stderr, r"left out: f32 halo: ")
    return done


@check(r"sites --cloud cloud=ink,sites=250,seed=4 -o ink\.svg")
def draws_active_sites(reader, words):
    done = reader.call(*words)
    expect_text(done.stdout, r"^250 sites in 1x64x64\n", r"(?m)^\| 3x3 / 2 +\| \d+ ")
    expect_text(reader.text("ink.svg"), r"<svg", r"input: 250, 6\.1 %")
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
    expect_text(done.stdout, r"Layers of resnet18, train, batch 8, each timed alone:",
                r"\| layer +\| kind +\| output ", r"Operations of resnet18 as planned")
    return done


@check(r"bench conv2d --ladder winograd( --threads 1( --json ladder\.json)?)?")
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
    deformable = reader.call("plot", "deform.json")  # from `bench deform_conv2d --json`
    expect(deformable.returncode == 0 and "deform_plots/heatmap.svg" in deformable.stdout,
           "expected figures of a deformable convolution")
    return done


@check(r"plot ladder\.json")
def plots_a_ladder(reader, words):
    done = reader.call(*words)
    expect(done.stdout.split() == ["ladder_plots/ladder.svg", "ladder_plots/report.html"],
           "expected a figure and a page")
    expect_text(reader.text("ladder_plots/ladder.svg"), r"<svg", r"winograd_lesson, 1 thread")
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


@check(r"op sparse_conv --sites sites\.npy --x rows\.npy --w w\.npy --submanifold --out-y y\.npy")
def convolves_at_sites(reader, words):
    done = reader.call(*words)
    expect_text(done.stderr, r"(?m)^forward: \w+$", r"^submanifold,kernel=3x3,pad=1x1,grid=1x3x4,sites=5,")
    written = (reader.folder / "y.npy").read_bytes()
    expect(b"'shape': (5, 4)" in written, "expected y of [5,4]")
    return done


@check(r"new algorithm mine")
def begins_an_algorithm(reader, words):
    done = reader.call(*words)
    expect(done.stdout.split("\n")[:3] ==
           ["wrote mine/mine.cpp", "wrote mine/CMakeLists.txt", "wrote mine/README.md"],
           "expected the names of three files")
    expect_text(reader.text("mine/mine.cpp"), r"(?m)^CONVSCOPE_PLUGIN_WITH_LADDERS\(kAlgorithms, ",
                r'(?m)^    \.name = "mine",$')
    lines = reader.text("mine/mine.cpp").split("\n")
    expect(len(lines) <= 121, f"expected a source of at most 120 lines, got {len(lines) - 1}")
    expect(max(map(len, lines)) <= 100, "expected lines of at most 100 columns")
    expect_text(reader.text("mine/CMakeLists.txt"), r"(?m)^find_package\(convscope ")
    again = reader.call(*words)
    expect(again.returncode == 6 and "no file is overwritten" in again.stderr,
           "expected no file to be overwritten")
    bad = reader.call("new", "algorithm", "My-Own")
    expect(bad.returncode == 2 and "lower-case letters" in bad.stderr, "expected a bad name to be refused")
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
    expect_text(done.stdout, r"(?m)^train\.epochs\n    number of passes over the training images\n"
                r"    an integer, 1 to 1000000; default 10$", r"(?m)^optim\[sgd\]\.momentum$")
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
    python = reader.folder / "pretended_python"  # prints its usage
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
