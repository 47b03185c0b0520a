# SPDX-License-Identifier: Apache-2.0
"""Checks the commands of the README and the guides that concern runs: training, tables, plots,
exports."""
import csv
import io
import json
import re
import shutil

from readme_reader import NO_GPU, TABLE, check, expect, expect_text, table_of


def trained(reader, done):
    """Checks the table of one finished run. Returns its row and its folder."""
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


@check(r"run quickstart train\.loss=mse optim\.lr=0\.2")
def takes_another_loss(reader, words):
    done = reader.call(*words)
    _, folder = trained(reader, done)
    expect_text(reader.text(f"{folder}/config.yaml"), r"loss: mse\b")
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


@check(r"launch -n 2 run quickstart")
def trains_on_two_processes(reader, words):
    if shutil.which("mpirun") is None:  # then the program says what is missing
        done = reader.call(*words)
        expect(done.returncode == 5, f"expected exit code 5 without mpirun, got {done.returncode}")
        expect_text(done.stderr, r"openmpi-bin")
        return done
    done = reader.call(*words)
    _, folder = trained(reader, done)
    expect(summary_of(reader, folder)["ranks"] == 2, "expected two processes")
    return done


@check(r"explain CONFIG --ranks 8 --network 25Gb")
def foretells_several_processes(reader, words):
    done = reader.call(*words)
    expect_text(done.stdout, r"(?m)^processes +images each +step ms", r"(?m)^ +8 +8 ", r"efficiency")
    return done


@check(r"sweep synthetic_sweep --launcher slurm --slurm time=30,at_once=4")
def sweeps_on_slurm(reader, words):
    done = reader.call(*words, "--dry-run")  # no cluster is needed to print the script
    expect_text(done.stdout, r"#SBATCH --array=[\d,-]+%4\n[\s\S]*#SBATCH --time=30\n")
    expect_text(done.stdout, r"exec \S+ sweep \S+/runs/synthetic_sweep --work --member")
    return done


@check(r"sweep synthetic_sweep --launcher mpi --jobs 4")
def sweeps_by_mpi(reader, words):
    done = reader.call(*words, "--dry-run")
    expect_text(done.stdout, r"\n\S*mpirun -n 4 .* --work\n")
    return done


@check(r"sweep synthetic_sweep --status")
def tells_how_far_a_sweep_is(reader, words):
    done = reader.call(*words)
    expect_text(done.stderr, r"4 members: 4 done")  # by sweeps(), which runs before
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
    return done


@check(r"explain quickstart --layer c2")
def explains_a_layer(reader, words):
    done = reader.call(*words)  # every algorithm, with its time or its reason
    expect_text(done.stdout, r"(?m)^c2  n=64,c=6,h=12,w=12,k=16,r=5,s=5,",
                r"(?m)^ +[*+]? *direct_batch_lanes +\d+\.\d+ ",
                r"winograd_f4x3 +refuses: .*3x3")
    return done


@check(r"explain quickstart quant\.execute=int8 --steps")
def explains_integers(reader, words):
    done = reader.call(*words)
    expect_text(done.stdout, r"(?m)^ *c1\b", r"(?m)^inference: planned, .* calls")
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


@check(r"run quickstart")
def trains(reader, words):
    done = reader.call(*words)
    trained(reader, done)
    return done


@check(r"run sparse_shapes sweep=null")
def trains_on_points(reader, words):
    done = reader.call(*words, "train.epochs=1", "data.train_size=64", "data.test_size=16")
    columns, rows = table_of(done.stdout)
    expect(columns[:len(TABLE)] == TABLE and len(rows) == 1, "expected the table of one run")
    expect_text(done.stderr, r"data   synthetic_shapes: 64 train, 0 val, 16 test; model layers")
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


@check(r"places RUN")
def draws_places(reader, words):
    (reader.folder / "moves.yaml").write_text(
        "name: moves\ndata: {set: synthetic_digits, train_size: 64, test_size: 40, batch_size: 32}\n"
        "layers:\n  - {type: deform_conv2d, name: d1, out_channels: 4, kernel_size: 3, stride: 2}\n"
        "  - {type: flatten}\n  - {type: linear, name: f, out_features: 10}\n"
        "optim: {type: sgd, lr: 0.01}\ntrain: {epochs: 1}\n")
    made = reader.call("run", "moves.yaml")
    expect(made.returncode == 0, f"expected a run, got {made.stderr}")
    words[words.index("RUN")] = "runs/moves"
    done = reader.call(*words)
    expect(done.stdout == "places.svg\n", "expected the name of the figure")
    expect_text(reader.text("places.svg"), r"Where d1 reads, moves", r"tap 0,0: offset ")
    return done


@check(r"index runs/")
def lists_all_runs(reader, words):
    done = reader.call(*words)
    page = reader.text("runs/index.html")
    expect_text(page, r"<input", r"quickstart", r"baseline", r"<svg")
    return done
