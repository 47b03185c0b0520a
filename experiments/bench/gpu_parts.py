#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the parts of a GPU check. gpu_check.sh builds the programs, sets the environment and calls this script.

Tests and sanitizers run in parallel, because they are not timed. The other parts run one after the other. Each part
writes a stamp (gpu_stamp.py). A part that is complete for today's sources does not run again. A part that was
interrupted is continued if its script can continue (--go-on); otherwise it is repeated.

Exit code 0: all parts are done; 1: something failed; 75: the time was up, and the next call continues.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import gpu_record
import gpu_sanitize
from gpu_stamp import Stamps, read_json, write_json
from gpu_tests import Clock, TestRun, begin_workers, list_tests, run_until, wait_for

PARTS = ("tests", "huge", "sanitizers", "networks", "conv2d", "deform", "sparse", "compressed")
STOPPED = 75
BASELINES = "experiments/baselines"
HUGE = "*Beyond31Bits*"  # sequential: two of them exceed the memory of some GPUs
LONG = ("*OnRandomProblems", "*AtFullSize*", "*ShapesFile*")

# Fields of a step. name: name of the stamp and of the JSON file. ends_with: exit codes of a complete run; 1 mostly
# means that a result was wrong. goes_on: whether the command has the options --go-on and --seconds. shown: which output
# lines are printed.
PRINTED = ("peaks", "mnist_to_99")  # their output is kept; they have no --json
Step = collections.namedtuple("Step", "part name command ends_with goes_on shown", defaults=((0, 1), False, None))


def shapes(*names):
    return [word for name in names for word in ("--shapes", f"experiments/shapes/{name}.txt")]


def conv2d_steps(convscope):
    baseline = [sys.executable, f"{BASELINES}/conv2d_gpu_vs_pytorch.py", "--program", convscope]
    lists = []
    for batch in (32, 1, 128):
        end = "" if batch == 32 else f"_n{batch}"
        last = ["--layout", "nhwc"]
        tf32, bf16 = ["--precision", "tf32"], ["--precision", "bf16"]
        lists += [(f"dense_f32{end}", "gpu_dense", [], batch),
                  (f"dense_tf32{end}", "gpu_dense", tf32, batch),
                  (f"dense_tf32_last{end}", "gpu_dense", tf32 + last, batch),
                  (f"dense_bf16{end}", "gpu_dense", bf16 + last, batch),
                  (f"dense_bf16_prepared{end}", "gpu_dense", bf16 + last + ["--weights", "often"], batch),
                  (f"depthwise_f32{end}", "gpu_depthwise", [], batch),
                  (f"depthwise_bf16{end}", "gpu_depthwise", bf16, batch)]
        if batch != 128:
            lists += [(f"grouped_tf32_last{end}", "gpu_grouped", tf32 + last, batch),
                      (f"grouped_bf16{end}", "gpu_grouped", bf16 + last, batch)]
    # CONVSCOPE_COMPARE='dense_f32 depthwise_f32' selects these lists.
    chosen = os.environ.get("CONVSCOPE_COMPARE", "").split()
    return [Step("conv2d", f"conv2d_{name}", [*baseline, *shapes(file), *options, "--batch", str(batch)],
                 goes_on=True) for name, file, options, batch in lists if not chosen or name in chosen]


def network_steps(convscope):
    # torch.compile takes minutes; CONVSCOPE_BASELINE_KINDS='eager|CUDA graph' skips it.
    kinds = os.environ.get("CONVSCOPE_BASELINE_KINDS") or os.environ.get("CONVSCOPE_PEER_KINDS")
    kinds = ["--kinds", *kinds.split("|")] if kinds else []
    steps = [Step("networks", "net_lenet5", [sys.executable, f"{BASELINES}/lenet_step_gpu_vs_pytorch.py", "--program",
                                             convscope, *kinds], (0,), True),
             Step("networks", "net_whole", [sys.executable, f"{BASELINES}/net_gpu_vs_pytorch.py", "--program",
                                            convscope], (0,), True)]
    # CONVSCOPE_MNIST is the folder of the four MNIST files. The step measures the time from start-up to 99 % of the
    # test images.
    if os.environ.get("CONVSCOPE_MNIST"):
        steps.append(Step("networks", "mnist_to_99", [
            sys.executable, f"{BASELINES}/mnist_to_99.py", "--device", "cuda", "--program", convscope, "--data",
            os.environ["CONVSCOPE_MNIST"], "--seeds", "1", "2", "3", "4", "5", "--baseline-seeds", "1"], (0,)))
    return steps


def sparse_steps(convscope):
    # Times every algorithm on point clouds, with results checked on a sample, and a network of six layers.
    steps = [Step("sparse", f"sparse_{precision}", [
        convscope, "bench", "sparse_conv", *shapes("sparse", "sparse_other"), "--device", "cuda", "--precision",
        precision, "--min-time", "0.02"], shown="last") for precision in ("f32", "f16")]
    return [*steps, Step("sparse", "sparse_net", [convscope, "bench", "sparse_net", "--device", "cuda",
                                                  "--precision", "f32,f16"], shown=r"^\|.*")]


def compressed_steps(convscope):
    """Returns the steps that compare integer and block-sparse execution with dense floating point: first single layers,
    then networks."""
    int8 = [sys.executable, f"{BASELINES}/int8_gpu_vs_pytorch.py", "--program", convscope]
    steps = [Step("compressed", "compressed_int8", [*int8, *shapes("resnet18", "resnet50", "mobilenet_v2")]),
             Step("compressed", "compressed_int8_block_sparse",
                  [*int8, "--density", "0.2,0.1", *shapes("resnet18", "resnet50")]),
             Step("compressed", "compressed_block_sparse",
                  [sys.executable, f"{BASELINES}/sparse_gpu_vs_pytorch.py", "--program", convscope,
                   *shapes("resnet18")])]

    def inference(name, network, *options):
        batches = "1,64,1024" if network == "lenet5" else "1,32"
        image = [] if network == "lenet5" else ["--image", "3x224x224", "--classes", "1000"]
        steps.append(Step("compressed", f"net_{name}", [
            convscope, "bench", "net", network, "--batch", batches, "--mode", "inference", "--min-time", "0.2",
            *image, *options, "--device", "cuda"], shown=r"^\| inference.{0,49}"))

    for network in ("lenet5", "resnet18", "mobilenet_v2"):
        inference(f"{network}_f32", network)
        inference(f"{network}_int8", network, "--execute", "int8")
    for zeros in ("0.8", "0.9"):
        inference(f"resnet18_block_sparse_{zeros}", "resnet18",
                  f"sparsity={{method: block, block: [16, 1], target: {zeros}, execute: sparse, exclude: [fc]}}")
    return steps


def steps_of(convscope):
    """Returns the steps that are timed and therefore run one at a time, in order. The convolutions take longest."""
    deform = Step("deform", "deform", [  # results of every algorithm, then times in each type
        sys.executable, f"{BASELINES}/deform_vs_torchvision.py", "--program", convscope, "--device", "cuda",
        "--problems", "20"], goes_on=True)
    return [*network_steps(convscope), *conv2d_steps(convscope), deform, *sparse_steps(convscope),
            *compressed_steps(convscope)]


class Check:
    def __init__(self, arguments):
        self.programs = pathlib.Path(arguments.programs)
        self.convscope, self.test_cuda = (str(self.programs / "bin" / name) for name in ("convscope", "test_cuda"))
        self.jobs = arguments.jobs
        self.wanted = arguments.only.split(",")
        self.clock = Clock(arguments.seconds)
        self.folder = pathlib.Path(arguments.parts)
        self.folder.mkdir(parents=True, exist_ok=True)
        packed = read_json(self.programs / "pack.json") or {}
        self.stamps = Stamps(self.folder, packed.get("sources_sha256") or gpu_record.source_hash(),
                             packed.get("source_files") or len(gpu_record.device_sources()),
                             packed.get("nvcc") or gpu_record.nvcc_release())
        if self.stamps.sources != gpu_record.source_hash():
            print("gpu_check: the programs were made from other device code than that of this folder; the stamps "
                  "name theirs", flush=True)
        self.failed, self.left = [], []

    def say(self, text):
        print(f"gpu_check: {text}", flush=True)

    def tests(self):
        """Runs tests and sanitizers in parallel. There is one process for every two cores, because the tests spend most
        of their time in the double-precision reference on the CPU."""
        plain, runs = [], []
        try:
            for part, pattern, jobs, threads, size in (("tests", f"-{HUGE}", self.jobs, "2", 8),
                                                       ("huge", HUGE, 1, "4", 1)):
                if part in self.wanted:
                    plain.append((TestRun(self.stamps, part, self.test_cuda, list_tests(self.test_cuda, pattern),
                                          environment={"OMP_NUM_THREADS": threads}), jobs, size))
            if "sanitizers" in self.wanted and shutil.which("compute-sanitizer"):
                runs = gpu_sanitize.runs_of(self.stamps, self.test_cuda)
            elif "sanitizers" in self.wanted:
                self.say("compute-sanitizer was not found: the part 'sanitizers' cannot run")
                self.failed.append("sanitizers")
        except (RuntimeError, OSError) as error:
            self.say(f"the tests cannot be listed: {error}")
            self.failed.append("tests")
            return
        sanitizers, runs = runs, [run for run, _, _ in plain] + runs
        for run in runs:
            self.say(f"{run.part}: {len(run.pending())} of {len(run.units)} to run")
        workers = gpu_sanitize.begin(sanitizers, self.clock) if sanitizers else []
        for run, jobs, size in plain:
            workers += begin_workers([run], jobs, size, LONG, self.clock)
        try:
            wait_for(workers, lambda: self.say("; ".join(run.sentence() for run in runs)))
        finally:
            for run in runs:
                summary = run.end()
                self.say(run.sentence())
                if not run.names or summary["failed_tests"] or summary.get("errors"):
                    self.failed.append(run.part)
                if summary["not_done"]:
                    self.left.append(run.part)

    def step(self, step):
        if self.stamps.is_done(step.name):
            self.say(f"{step.name}: done before")
            return
        if self.clock.is_over():
            self.left.append(step.name)
            return
        self.say(step.name)
        path = self.folder / f"{step.name}.json"
        log = self.folder / "logs" / f"{step.name}.log"
        log.parent.mkdir(exist_ok=True)
        options, output = ["--json", str(path)], None
        if self.goes_on(step, path):
            options.append("--go-on")
        else:
            path.unlink(missing_ok=True)
        if step.goes_on and self.clock.end:
            options += ["--seconds", f"{self.clock.left():.0f}"]
        self.stamps.begin(step.name)
        if step.name in PRINTED:
            options = []
        if step.shown or step.name in PRINTED:
            output = open(log, "w")
        code, stopped = run_until(self.clock, [*step.command, *options], {}, output)
        if output is not None:
            output.close()
            self.show(step, log.read_text(errors="replace"))
        found = read_json(path)
        came_to_its_end = not stopped and code in step.ends_with and found is not None
        if isinstance(found, dict) and found.get("complete") is False:
            came_to_its_end = False
        # If the time limit has stopped a step, a later call continues it. Any other step without a proper end has
        # failed.
        bad = not stopped and code != STOPPED and (code != 0 or not came_to_its_end)
        self.stamps.end(step.name, came_to_its_end, bad)
        if bad:
            self.say(f"{step.name}: exit code {code}")
            self.failed.append(step.name)
        elif not came_to_its_end:
            self.left.append(step.name)

    def peaks(self, something_to_time):
        """Measures the peaks before anything else is timed, because `auto` uses them. The peaks are stored with the
        parts, so every call on the same GPU model makes the same choices; another model has its own entry."""
        step = Step("peaks", "peaks", [self.convscope, "info", "--measure", "--json"], (0,))
        self.step(step)
        known = read_json(pathlib.Path(os.environ["CONVSCOPE_CACHE_DIR"]) / "peaks_cuda.json") or {}
        there = self.stamps.gpu.get("name") in known.get("machines", {})
        if something_to_time and not there and not self.clock.is_over():
            self.say("the peaks of this GPU")
            run_until(self.clock, step.command, {}, subprocess.DEVNULL)

    def goes_on(self, step, path):
        """Returns whether the file holds rows of today's sources and of this GPU model, to which the step can add. Rows
        of another GPU model are moved to another file, which is used again on such a GPU."""
        def kept(gpu):
            name = re.sub(r"[^A-Za-z0-9]+", "-", gpu.get("name", "unknown"))
            return self.folder / f"{step.name}.{name}.{self.stamps.sources[:8]}.kept"

        if not step.goes_on:
            return False
        before = self.stamps.read(step.name)
        if path.exists() and self.stamps.is_of_today(step.name) and not before["complete"]:
            if kept(before["gpu"]) == kept(self.stamps.gpu):
                return True
            os.replace(path, kept(before["gpu"]))
        if kept(self.stamps.gpu).exists():
            os.replace(kept(self.stamps.gpu), path)
            return True
        return False

    def show(self, step, text):
        """Prints the selected lines of the output. Also stores the output of a step that writes no JSON file."""
        path = self.folder / f"{step.name}.json"
        if step.name == "peaks":  # JSON after the progress messages
            begin = re.search(r"^\{", text, re.MULTILINE)
            info = json.JSONDecoder().raw_decode(text, begin.start())[0] if begin else {}
            if peaks := info.get("gpu_peaks"):
                write_json(path, peaks)
                text = f"{peaks}\n"
        elif step.name == "mnist_to_99":
            write_json(path, {"log": text.splitlines()})
        elif step.shown == "last":
            text = "".join(text.splitlines(keepends=True)[-1:])
        else:
            text = "".join(f"{line}\n" for line in re.findall(step.shown, text, re.MULTILINE))
        print(text, end="", flush=True)

    def run(self):
        if any(part in self.wanted for part in ("tests", "huge", "sanitizers")):
            self.tests()
        steps = [step for step in steps_of(self.convscope) if step.part in self.wanted]
        if steps:
            self.peaks(any(not self.stamps.is_done(step.name) for step in steps))
        for step in steps:
            self.step(step)
        self.left = list(dict.fromkeys(self.left))


def options_of(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True)
    parser.add_argument("--parts", required=True)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--out", default=str(gpu_record.RECORDS))
    parser.add_argument("--base", help="where the record takes parts from that were not run")
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0)) // 2))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--again", required=True, help="the command that goes on, to be shown")
    arguments = parser.parse_args(words)
    if unknown := set(arguments.only.split(",")) - set(PARTS):
        parser.error(f"--only: expected some of {','.join(PARTS)}, got {','.join(sorted(unknown))}")
    return arguments


def main():
    arguments = options_of(sys.argv[1:])
    os.chdir(gpu_record.ROOT)
    check = Check(arguments)
    for which in (signal.SIGTERM, signal.SIGINT):
        signal.signal(which, lambda *_: check.clock.stopped.set())
    check.run()
    if check.failed:
        check.say(f"failed: {', '.join(dict.fromkeys(check.failed))}")
    write = f"python3 experiments/bench/gpu_record.py write {arguments.parts}"
    if check.left:
        check.say(f"left: {', '.join(check.left)}")
        check.say(f"this goes on: {arguments.again}")
        check.say(f"a record of what is there: {write}")
    elif set(check.wanted) == set(PARTS):
        path = gpu_record.write(arguments.parts, arguments.base, arguments.out)
        check.say(f"wrote {path}")
    else:
        check.say(f"a record, with the other parts of the newest one: {write}")
    return 1 if check.failed else STOPPED if check.left else 0


if __name__ == "__main__":
    sys.exit(main())
