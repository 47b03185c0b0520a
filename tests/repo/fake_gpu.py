# SPDX-License-Identifier: Apache-2.0
"""Replaces the programs that a GPU check calls: nvidia-smi, compute-sanitizer, test_cuda and convscope. A copy of
this file under the name of each program acts as its stub. fake.json next to the tree says which calls fail:

`fail`, `crash` and `slow` list tests, and `report` lists tests for each tool of compute-sanitizer. `wrong` and `slow`
list problems of the benchmark. `gpu` is the name of the GPU.

A test or problem in `slow` sleeps until it is killed. calls.log gets one line for each test and
each problem.
"""
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(os.environ["FAKE_ROOT"])
TESTS = ["FewChannelOnCuda.One", "FewChannelOnCuda.Two", "FewChannelOnCuda.Three", "ForwardMomentsPlanOnCuda.Bf16",
         "Conv2dOnCuda.AgreesWithTheReferenceOnRandomProblems", "Others.Alone", "Others.Skipped",
         "Deform/DeformOnCudaBeyond31Bits.EveryAlgorithm/0"]


def orders():
    path = ROOT / "fake.json"
    return json.loads(path.read_text()) if path.exists() else {}


def note(*words):
    with open(ROOT / "calls.log", "a") as file:
        file.write(" ".join(words) + "\n")


def sleep_if(slow):
    if slow:
        time.sleep(600)


def nvidia_smi(words):
    if orders().get("no_gpu"):
        sys.exit(9)
    facts = {"name": orders().get("gpu", "NVIDIA H200"), "driver_version": "580.1", "clocks.sm": "1980 MHz",
             "memory.total": "143771 MiB", "power.limit": "700.00 W"}
    query = [word for word in words if word.startswith("--query-gpu=")]
    print(", ".join(facts.get(field, "1") for field in query[0].split("=")[1].split(",")) if query else "fine")


def compute_sanitizer(words):
    tool = words[words.index("--tool") + 1]
    command = words[words.index("--error-exitcode") + 2:]
    done = subprocess.Popen(command, env={**os.environ, "FAKE_TOOL": tool}, stdout=subprocess.PIPE, text=True)
    errors = 0
    print("========= COMPUTE-SANITIZER")
    for line in done.stdout:
        errors += line.startswith("========= Error")
        print(line, end="", flush=True)
    if done.wait() < 0:
        sys.exit(1)  # a killed program prints no summary
    print(f"========= RACECHECK SUMMARY: {errors} hazards displayed ({errors} errors, 0 warnings)"
          if tool == "racecheck" else f"========= ERROR SUMMARY: {errors} errors")
    sys.exit(9 if errors else done.returncode)


def matches(name, pattern):
    good, _, bad = pattern.partition("-")
    among = lambda text: any(fnmatch.fnmatchcase(name, one) for one in text.split(":") if one)
    return (among(good) or not good) and not among(bad)


def test_cuda(words):
    pattern = next(word.split("=", 1)[1] for word in words if word.startswith("--gtest_filter="))
    chosen = [name for name in TESTS if matches(name, pattern)]
    if "--gtest_list_tests" in words:
        print("Running main() from a file")
        for name in chosen:
            suite, _, test = name.rpartition(".")
            print(f"{suite}.\n  {test}  # GetParam() = 1")
        return
    say, tool, failed = orders(), os.environ.get("FAKE_TOOL", ""), False
    share = os.environ.get("CONVSCOPE_TEST_RANDOM_SHARE", "")
    (ROOT / "environment.json").write_text(json.dumps(dict(os.environ)))
    for name in chosen:
        print(f"[ RUN      ] {name}", flush=True)
        note(tool or "plain", name, *([share] if share else []))
        sleep_if(name in say.get("slow", []))
        if name in say.get("crash", []):
            os.kill(os.getpid(), 11)
        if name in say.get("report", {}).get(tool, []):
            print("========= Error: Race reported between Write access and Read access\n=========     in a kernel")
        if name in say.get("fail", []):
            failed = True
            print(f"a_test.cpp:1: Failure\n[  FAILED  ] {name}, where GetParam() = 1 (3 ms)", flush=True)
        else:
            word = "[  SKIPPED ]" if name.endswith("Skipped") else "[       OK ]"
            print(f"{word} {name} (3 ms)", flush=True)
    print(f"[==========] {len(chosen)} tests ran.")
    sys.exit(1 if failed else 0)


def rows_of(words):
    value = lambda name, other="": words[words.index(name) + 1] if name in words else other
    lines = [words[i + 1] for i, word in enumerate(words) if word == "--problem"]
    for path in (words[i + 1] for i, word in enumerate(words) if word == "--shapes"):
        lines += [line for line in pathlib.Path(path).read_text().splitlines() if line and line[0] != "#"]
    for line in lines:
        note("bench", line)
        sleep_if(line in orders().get("slow", []))
        for direction in value("--direction", "forward,backward_data,backward_weight").split(","):
            for algorithm, ms in (("direct", 2.0), ("fft", 4.0)):
                bad = line in orders().get("wrong", []) and algorithm == "fft"
                yield {"problem": line, "direction": direction, "algorithm": algorithm, "median_ms": ms,
                       "status": "wrong" if bad else "ok", "auto_choice": algorithm == "direct"}


def convscope(words):
    if words[0] == "info":
        note("info", orders().get("gpu", "NVIDIA H200"))
        path = pathlib.Path(os.environ["CONVSCOPE_CACHE_DIR"]) / "peaks_cuda.json"
        path.parent.mkdir(exist_ok=True)
        known = json.loads(path.read_text())["machines"] if path.exists() else {}
        path.write_text(json.dumps({"machines": {**known, orders().get("gpu", "NVIDIA H200"): {}}}))
        print("measures")
        print(json.dumps({"gpu_peaks": {"f32_flops_per_second": 5e13}}, indent=1))
        return
    if words[1] == "net":
        note("net", *words[2:3], words[words.index("--batch") + 1])
        sleep_if(words[2] in orders().get("slow", []))
        print("| inference | 1 | 2.0 |")
        rows = [{"median_ms": 2.0, "execution": "recorded"}]
    elif words[1] == "sparse_net":
        rows = [{"layer": 1, "median_ms": 1.0}]
        print("| layer | 1 |")
    else:
        rows = []
        for row in rows_of(words):  # the file is rewritten after each problem
            rows.append(row)
            pathlib.Path(words[words.index("--json") + 1]).write_text(json.dumps({"rows": rows}))
        print("bench\nall right")
    pathlib.Path(words[words.index("--json") + 1]).write_text(json.dumps({"rows": rows}))


NAMES = {"nvidia-smi": nvidia_smi, "compute-sanitizer": compute_sanitizer, "test_cuda": test_cuda,
         "convscope": convscope}
if __name__ == "__main__":
    NAMES[os.path.basename(sys.argv[0])](sys.argv[1:])
