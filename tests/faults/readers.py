#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the kinds of input files that the fault campaign (campaign.py) damages, and for each kind
the commands that read such a file.

A Reader names the valid files of a case, the file to damage (a pattern; one matching file is drawn
at random), and the commands. RUN in a command stands for the run folder of the damaged file.
"""
import dataclasses

SMALL = ["train.epochs=1", "data.batch_size=16"]
QUICK = ["--min-time", "0.0001", "--rounds", "1", "--threads", "1"]


@dataclasses.dataclass
class Reader:
    name: str
    sound: list
    damaged: str
    commands: list
    text: bool = True
    codes: tuple = (0, 3, 6)
    writes: tuple = ()  # paths that the commands may change
    env: dict = dataclasses.field(default_factory=dict)
    mirror: bool = False  # a server offers the damaged file
    goes_on: str = ""  # a config whose run must resume with the same bits as an undisturbed run


OF_RUNS = [["report", "runs"], ["report", "runs", "-f", "json"], ["report", "runs", "-f", "csv"],
           ["report", "runs", "-f", "latex", "--columns", "+optim.lr"],
           ["report", "runs", "--group", "optim.lr"], ["report", "RUN"],
           ["report", "runs", "--sort", "acc", "--filter", "acc>1"],
           ["compare", "RUN", "OTHER"], ["compare", "OTHER", "RUN", "-f", "json"],
           ["plot", "RUN", "-o", "out"], ["plot", "runs", "-o", "out"], ["watch", "RUN", "--once"],
           ["watch", "runs", "--once"], ["index", "runs", "-o", "out.html"], ["note", "RUN"],
           ["eval", "RUN", "--threads", "1"], ["eval", "RUN", "--split", "train"]]
RESUMES = [["run", "--resume", "RUN", "--threads", "1"],
           ["run", "q.yaml", "-o", "paused", "--resume", "auto", "--threads", "1"]]
TWO_RUNS = ["runs/q", "runs/rich"]
PLOTTED = ("out", "out.html", "runs/q/plots", "runs/rich/plots")

READERS = [
    Reader("config", ["q.yaml", "rich.yaml"], "*.yaml",
           [["config", "check", "FILE"], ["config", "show", "FILE"], ["run", "FILE", "--dry-run"],
            ["explain", "FILE"], ["explain", "FILE", "--json"], ["sweep", "FILE", "--dry-run"]],
           codes=(0, 3, 5)),
    Reader("config, trained", ["q.yaml", "rich.yaml"], "*.yaml",
           [["run", "FILE", "--threads", "1", *SMALL, "data.train_size=48", "data.test_size=16"],
            ["bench", "net", "FILE", *QUICK]], codes=(0, 1, 3, 4, 5), writes=("runs",)),
    Reader("sweep", ["s.yaml"], "s.yaml",
           [["sweep", "FILE", "--dry-run"], ["config", "check", "FILE"], ["config", "show", "FILE"],
            ["sweep", "FILE", "--threads", "1", *SMALL, "data.train_size=32"]],
           codes=(0, 1, 3, 4, 5), writes=("runs",)),
    Reader("run: config.yaml", TWO_RUNS, "runs/*/2*/config.yaml", OF_RUNS, writes=PLOTTED,
           codes=(0, 3, 4, 5, 6)),
    Reader("run: summary.json", TWO_RUNS, "runs/*/2*/summary.json", OF_RUNS, writes=PLOTTED),
    Reader("run: status.json", TWO_RUNS, "runs/*/2*/status.json", OF_RUNS, writes=PLOTTED),
    Reader("run: env.json", TWO_RUNS, "runs/*/2*/env.json", OF_RUNS, writes=PLOTTED),
    Reader("run: epochs.csv", TWO_RUNS, "runs/*/2*/epochs.csv", OF_RUNS, writes=PLOTTED),
    Reader("run: metrics.jsonl", TWO_RUNS, "runs/*/2*/metrics.jsonl", OF_RUNS, writes=PLOTTED),
    Reader("run: tables", TWO_RUNS, "runs/rich/2*/[lsq]*.csv", OF_RUNS, writes=PLOTTED),
    Reader("run: log.txt", TWO_RUNS, "runs/*/2*/log.txt", OF_RUNS, writes=PLOTTED),
    Reader("paused run: files", ["paused/q", "q.yaml"], "paused/q/2*/*.[jcyte]*", RESUMES,
           codes=(0, 2, 3, 4, 5, 6), writes=("paused",)),
    Reader("paused run: checkpoint", ["paused/q", "q.yaml"], "paused/q/2*/ckpt/last*", RESUMES,
           text=False, codes=(0, 3, 6), writes=("paused",), goes_on="q"),
    Reader("checkpoint", ["runs/q", "runs/pruned", "q.yaml"], "runs/*/2*/ckpt/[lb]*",
           [["eval", "FILE", "--threads", "1"], ["eval", "RUN", "--weights", "best"],
            ["export", "RUN", "--compact", "small.safetensors"], ["plot", "RUN", "-o", "out"],
            ["run", "q.yaml", "--threads", "1", "train.epochs=1", "sparsity.start_from=FILE"],
            ["run", "q.yaml", "--threads", "1", "train.epochs=1", "quant.start_from=RUN"]],
           text=False, codes=(0, 3, 6), writes=("runs", "out", "small.safetensors")),
    Reader("quantised model", ["runs/rich"], "runs/rich/2*/ckpt/quantised*",
           [["eval", "FILE", "--threads", "1"], ["report", "runs"], ["plot", "RUN", "-o", "out"]],
           text=False, codes=(0, 4, 6), writes=("out",)),
    Reader("sweep folder", ["runs/s", "s.yaml"], "runs/s/sweep.*",
           [["sweep", "s.yaml", "-o", "runs", "--threads", "1"], ["watch", "runs/s", "--once"],
            ["report", "runs"], ["compare", "runs/s/lr-0.05", "runs/s/lr-0.02"],
            ["sweep", "runs/s/sweep.yaml", "--dry-run"], ["index", "runs", "-o", "out.html"]],
           writes=("runs/s", "out.html")),
    Reader("sweep: members", ["runs/s", "s.yaml"], "runs/s/lr*/*.yaml",
           [["sweep", "s.yaml", "-o", "runs", "--threads", "1"], ["watch", "runs/s", "--once"]],
           writes=("runs/s",)),
    Reader("safetensors", ["files", "q.yaml"], "files/weights.safetensors",
           [["op", "net", "q.yaml", "--x", "files/images.npy", "--weights", "FILE", "--out-y",
             "out.npy"], ["eval", "FILE"],
            ["run", "q.yaml", "train.epochs=1", "--threads", "1", "quant.start_from=FILE"]],
           text=False, codes=(0, 1, 3, 4, 6), writes=("out.npy", "runs")),
    Reader("npy", ["files"], "files/[xw].npy",
           [["op", "conv2d", "--x", "files/x.npy", "--w", "files/w.npy", "--padding", "1",
             "--dy", "files/dy.npy", "--out-y", "out.npy", "--out-dw", "out2.npy"]],
           text=False, codes=(0, 2, 4, 6), writes=("out.npy", "out2.npy")),
    Reader("npy of lsq", ["files"], "files/[vs]*.npy",
           [["op", "lsq", "--v", "files/v.npy", "--step", "files/step.npy", "--bits", "4",
             "--out-y", "out.npy"]], text=False, codes=(0, 2, 4, 6), writes=("out.npy",)),
    Reader("npy of images", ["files", "q.yaml"], "files/images.npy",
           [["op", "net", "q.yaml", "--x", "FILE", "--out-y", "out.npy"]],
           text=False, codes=(0, 2, 4, 6), writes=("out.npy",)),
    Reader("idx", ["data/mnist", "idx.yaml"], "data/mnist/*",
           [["run", "idx.yaml", "--threads", "1"], ["data", "check", "mnist", "--root",
                                                    "data/mnist"]],
           text=False, codes=(0, 4), writes=("runs",)),
    Reader("idx.gz", ["data/mnist_gz", "idx.yaml"], "data/mnist_gz/*",
           [["run", "idx.yaml", "--threads", "1", "data.root=data/mnist_gz"],
            ["data", "check", "mnist", "--root", "data/mnist_gz"]],
           text=False, codes=(0, 4), writes=("runs",)),
    Reader("cifar", ["data/cifar10", "cifar.yaml"], "data/cifar10/*",
           [["run", "cifar.yaml", "--threads", "1"],
            ["data", "check", "cifar10", "--root", "data/cifar10"]],
           text=False, codes=(0, 4), writes=("runs",)),
    Reader("cifar.tar.gz", ["files/cifar-10-binary.tar.gz"], "files/cifar-10-binary.tar.gz",
           [["data", "fetch", "cifar10", "--root", "fetched", "--mirror", "MIRROR"]],
           text=False, codes=(4,), writes=("fetched",), mirror=True),
    Reader("bench", ["files"], "files/conv.json",
           [["plot", "FILE", "-o", "out"], ["compare", "FILE", "files/conv.json.sound"],
            ["compare", "files/conv.json.sound", "FILE", "-f", "json", "--fail-above", "1.5"],
            ["compare", "files/conv.json.sound,FILE", "files/conv.json.sound"]],
           codes=(0, 2, 4, 6, 7), writes=("out",)),
    Reader("bench of ladders", ["files"], "files/ladder.json",
           [["plot", "FILE", "-o", "out"], ["compare", "FILE", "files/ladder.json.sound"]],
           codes=(0, 2, 4, 6), writes=("out",)),
    Reader("bench of networks", ["files"], "files/net.json",
           [["plot", "FILE", "-o", "out"], ["compare", "FILE", "files/net.json.sound"]],
           codes=(0, 2, 4, 6), writes=("out",)),
    Reader("cache: peaks", ["cache", "q.yaml"], "cache/peaks_cpu.json",
           [["info"], ["info", "--json"], ["explain", "q.yaml"],
            ["run", "q.yaml", "train.epochs=1", "--threads", "1"]],
           codes=(0,), writes=("cache", "runs"), env={"CONVSCOPE_CACHE_DIR": "cache"}),
    Reader("cache: measurements", ["cache", "q.yaml"], "cache/conv2d_cpu.json",
           [["run", "q.yaml", "train.epochs=1", "--threads", "1", "conv.algorithm=measure"],
            ["op", "conv2d", "--x", "SOUND/files/x.npy", "--w", "SOUND/files/w.npy", "--out-y",
             "out.npy", "--algorithm", "measure"]],
           codes=(0,), writes=("cache", "runs", "out.npy"), env={"CONVSCOPE_CACHE_DIR": "cache"}),
    Reader("shapes", ["files/shapes.txt"], "files/shapes.txt",
           [["bench", "conv2d", "--shapes", "FILE", "--direction", "forward", "--algorithm", "auto",
             *QUICK]], codes=(0, 1, 2, 3, 4)),
]
