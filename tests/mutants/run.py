#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants small mistakes one at a time and reports which of them the tests find. See README.md."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import mutant_list
import planted_build

# For each folder, the test programs that can notice a mistake in it. Programs whose includes lead
# to the folder most directly come first.
NOTICED_BY = {
    "framework": ("framework", "layers", "optim", "quant", "sparsity", "datasets", "experiments"),
    "layers": ("layers", "quant", "sparsity", "experiments"),
    "optim": ("optim", "experiments"),
    "quant": ("quant", "experiments"),
    "sparsity": ("sparsity", "experiments"),
    "datasets": ("datasets", "experiments"),
    "experiments": ("experiments",),
}
# Whole trainings take minutes; the first filters name them where needed.
LONG = "Convergence.*:StarterConfig.*:KilledRun.*:Sweep.killed*"
MEMORY_KIB = 24 << 20  # address space of a test: a mistake may request unlimited memory
SHARDS = 4


class Runner:
    """Runs test programs, each in a separate folder."""

    def __init__(self, build, first_limit, whole_limit):
        self.build = build
        self.first_limit = first_limit
        self.whole_limit = whole_limit
        self.usual = {}  # (program, filter) -> seconds without a mistake
        self.stopping = False

    def run(self, program, gtest_filter, made, folder, limit, environment=()):
        """Runs one test program with the new libraries and programs in `made`. Returns (status, what, output,
        seconds). `what` names the failed test or the exit status; it is "" for a pass."""
        path = self.build.folder / "bin" / f"test_{program}"
        path = made.get(f"bin/test_{program}", path)
        env = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="2",
                   CONVSCOPE_MEMORY_NAN="1", CONVSCOPE_MEASURE="off",
                   CONVSCOPE_CACHE_DIR=str(folder / "cache"), TMPDIR=str(folder / "tmp"),
                   LD_LIBRARY_PATH=str(folder), PYTHONDONTWRITEBYTECODE="1", **dict(environment))
        (folder / "tmp").mkdir(exist_ok=True)
        if program == "cuda":
            emulated = "lib/libconvscope_cuda_emulated.so"
            env["CONVSCOPE_CUDA_LIBRARY"] = str(made.get(emulated, self.build.folder / emulated))
        command = ["bash", "-c", f'ulimit -v {MEMORY_KIB} -c 0; exec "$@"', "-", str(path),
                   f"--gtest_filter={gtest_filter}", "--gtest_fail_fast", "--gtest_brief=0"]
        start = time.monotonic()
        with open(folder / "output", "w+", encoding="utf-8", errors="replace") as output:
            process = subprocess.Popen(command, cwd=folder / "tmp", env=env, stdout=output,
                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       start_new_session=True)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
            output.seek(0)
            text = output.read()
        seconds = time.monotonic() - start
        failed = re.search(r"\[  FAILED  \] ([^\s,]+)", text)
        running = re.findall(r"\[ RUN      \] (\S+)", text)
        if code is None:
            return "timeout", f"{running[-1] if running else program}: after {limit:.0f} s", text, seconds
        if code == 0:
            return "passed", "", text, seconds
        if failed:
            return "killed", failed[1], text, seconds
        return "killed", f"{running[-1] if running else program}: exit status {code}", text, seconds

    def baseline(self, program, gtest_filter):
        """Runs the tests of a filter without a mutant. Returns an error message if they fail or if
        the filter matches no test, else ""."""
        with tempfile.TemporaryDirectory(prefix="mutants-") as name:
            status, what, text, seconds = self.run(program, gtest_filter, {}, pathlib.Path(name),
                                                   600)
        self.usual[program, gtest_filter] = seconds
        passed = re.search(r"\[  PASSED  \] (\d+) test", text)
        if status != "passed":
            return f"test_{program} --gtest_filter={gtest_filter} does not pass: {what or text[-300:]}"
        if not passed or int(passed[1]) == 0:
            return f"test_{program} --gtest_filter={gtest_filter} runs no test"
        return ""

    def try_one(self, mutant, first_only):
        """Returns {'status', 'by', 'seconds'} of one mutant."""
        start = time.monotonic()
        name = tempfile.mkdtemp(prefix="mutants-")
        try:
            status, by = self.noticed(mutant, first_only, pathlib.Path(name))
        except (planted_build.BuildError, mutant_list.ListError) as error:
            status, by = "broken", str(error)
        finally:
            shutil.rmtree(name, ignore_errors=True)
        return {"status": status, "by": by, "seconds": round(time.monotonic() - start, 1)}

    def noticed(self, mutant, first_only, folder):
        """Returns the status of the mutant and the test that notices it. First runs the mutant's listed tests, then
        the test programs of related folders."""
        made = self.build.plant(mutant, folder)
        if not made:
            raise planted_build.BuildError(f"no library or program holds {mutant.file}")
        for program, gtest_filter in mutant.tests:
            limit = self.first_limit + 10 * self.usual[program, gtest_filter]
            status, what, _, _ = self.run(program, gtest_filter, made, folder, limit)
            if status != "passed":
                return status, what
        if first_only:
            return "survived", "its first tests"
        until = time.monotonic() + self.whole_limit
        programs = list(NOTICED_BY[mutant.file.split("/")[0]])
        if mutant.file.endswith((".cu", ".cuh")):
            programs = ["cuda"]
        elif (self.build.folder / "bin/test_cuda").exists() and "_simd" not in mutant.file:
            programs.append("cuda")
        for program in programs:
            if not (self.build.folder / "bin" / f"test_{program}").exists():
                continue
            for shard in range(SHARDS):
                left = until - time.monotonic()
                if left <= 0:
                    return "survived", f"{self.whole_limit} s of tests, up to test_{program}"
                status, what, _, _ = self.run(
                    program, f"-{LONG}", made, folder, left,
                    {"GTEST_TOTAL_SHARDS": str(SHARDS), "GTEST_SHARD_INDEX": str(shard)})
                if status == "killed":
                    return "killed", f"{what} (not its first tests)"
        return "survived", "all tests"


def cpu_flags():
    """Returns the instruction sets of this CPU, as /proc/cpuinfo names them."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return set()
    found = re.search(r"^flags\s*:(.*)$", text, re.M)
    return set(found[1].split()) if found else set()


def table(mutants, results):
    """Returns Markdown: counts for each area, then the mutants that were not killed."""
    lines = ["| area | mutants | killed | survived | equivalent | skipped | broken |",
             "|---|---|---|---|---|---|---|"]

    def row(name, those):
        states = [results.get(m.id, {"status": "skipped"})["status"] for m in those]
        killed = states.count("killed") + states.count("timeout")
        return (f"| {name} | {len(those)} | {killed} | {states.count('survived')} | "
                f"{states.count('equivalent')} | {states.count('skipped')} | {states.count('broken')} |")

    for area in dict.fromkeys(m.area for m in mutants):
        lines.append(row(area, [m for m in mutants if m.area == area]))
    lines.append(row("all", mutants))
    for state in ("survived", "broken", "equivalent", "skipped"):
        those = [m for m in mutants if results.get(m.id, {}).get("status") == state]
        lines += [""] * bool(those)
        lines += [f"- {state}: {m.id} ({m.file}): {m.what}. {results[m.id]['by']}" for m in those]
    return "\n".join(lines)


def chosen(mutants, only):
    """Returns the mutants whose area or whole name is in `only`; without `only`, all."""
    if not only:
        return mutants
    words = [w for o in only for w in o.split(",")]
    return [m for m in mutants if m.area in words or m.id in words or m.id.split("/")[1] in words]


def arguments():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", help="the folder of a finished build (Ninja)")
    parser.add_argument("--only", action="append", help="areas or names, with commas")
    parser.add_argument("--jobs", type=int, default=1, help="mutants side by side")
    parser.add_argument("--first-only", action="store_true",
                        help="only the tests that the list names, not whole programs")
    parser.add_argument("--first-limit", type=float, default=60,
                        help="seconds, beyond ten times what the tests take without a mistake")
    parser.add_argument("--whole-limit", type=float, default=300,
                        help="seconds for whole programs, for each survivor")
    parser.add_argument("--json", type=pathlib.Path, help="results; killed ones in it are not run again")
    parser.add_argument("--markdown", type=pathlib.Path, help="the table")
    return parser.parse_args()


def main():
    """Returns 0: each mutant is killed or explained; 1: one survived; 2: a list or the build is wrong."""
    options = arguments()
    try:
        build = planted_build.FinishedBuild(options.build)
        mutants = chosen(mutant_list.read_all(), options.only)
    except (planted_build.BuildError, mutant_list.ListError, OSError) as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    wrong = mutant_list.mistakes(mutants, build.root)
    if wrong or not mutants:
        print("\n".join(wrong) or "mutants: --only names none", file=sys.stderr)
        return 2
    before = {}
    if options.json and options.json.exists():
        before = json.loads(options.json.read_text(encoding="utf-8"))
    results = {}
    left = []
    for m in mutants:
        kept = before.get(m.id, {})
        if kept.get("status") in ("killed", "timeout") and kept.get("key") == m.key(build.root):
            results[m.id] = kept
        elif m.equivalent:
            results[m.id] = {"status": "equivalent", "by": m.equivalent, "seconds": 0}
        elif m.only == "avx512" and "avx512f" not in cpu_flags():
            results[m.id] = {"status": "skipped", "by": "this CPU has no AVX-512", "seconds": 0}
        else:
            left.append(m)
    runner = Runner(build, options.first_limit, options.whole_limit)
    lock = threading.Lock()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        wanted = list(dict.fromkeys(t for m in left for t in m.tests))
        red = [r for r in pool.map(lambda t: runner.baseline(*t), wanted) if r]
        if red:
            print("\n".join(red), file=sys.stderr)
            return 2

        def one(m):
            result = dict(runner.try_one(m, options.first_only), key=m.key(build.root))
            with lock:
                results[m.id] = result
                print(f"{result['status']:9} {result['seconds']:6.1f} s  {m.id}  [{m.what}]  "
                      f"{result['by']}", flush=True)
                if options.json:
                    text = json.dumps({**before, **results}, indent=1, sort_keys=True)
                    options.json.with_suffix(".new").write_text(text, encoding="utf-8")
                    options.json.with_suffix(".new").replace(options.json)

        list(pool.map(one, left))
    text = table(mutants, results)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n", encoding="utf-8")
    states = {r["status"] for r in results.values()}
    return 2 if "broken" in states else 1 if "survived" in states else 0


if __name__ == "__main__":
    sys.exit(main())
