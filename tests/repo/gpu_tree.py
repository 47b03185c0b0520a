# SPDX-License-Identifier: Apache-2.0
"""Makes a small tree in which a GPU check runs without a GPU. The tree has the scripts of the check and of the
baselines, stub programs (fake_gpu.py) and a stub of PyTorch."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

FAKE = (pathlib.Path(__file__).parent / "fake_gpu.py").read_text()
TORCH = '''
import json, os, pathlib
__version__ = "9.9"
class Anything:
    def __init__(self, *a, **k): pass
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return Anything()
    def __call__(self, *a, **k): return Anything()
    def __enter__(self): return self
    def __exit__(self, *a): return False
    def elapsed_time(self, other): return 1.0
class cuda:
    Stream = CUDAGraph = Event = graph = stream = Anything
    def current_stream(): return Anything()
    def empty_cache(): pass
    def get_device_name():
        path = pathlib.Path(os.environ["FAKE_ROOT"]) / "fake.json"
        return (json.loads(path.read_text()) if path.exists() else {}).get("gpu", "NVIDIA H200")
class backends:
    cuda = Anything()
    class cudnn:
        def version(): return 91900
def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    return Anything()
'''
DEFORM = '''
import json, sys
row = {"problem": "c=4", "precision": "f32", "wrong": []}
open(sys.argv[sys.argv.index("--json") + 1], "w").write(json.dumps({"rows": [row]}))
'''
PROBLEMS = [f"n=32,c={c},h=8,w=8,k=16" for c in (1, 2, 3, 4, 5, 6)]
RANDOM = "Conv2dOnCuda.AgreesWithTheReferenceOnRandomProblems"
TOOLS = ["memcheck", "racecheck", "initcheck"]
FEW = "FewChannel*"  # CONVSCOPE_SANITIZER_FILTER: three tests, at most two processes of each tool


class Tree(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name) / "tree"
        for folder in ("bench", "baselines"):
            (self.root / "experiments" / folder).mkdir(parents=True)
            for path in (REPOSITORY / "experiments" / folder).iterdir():
                if path.suffix in (".py", ".sh"):
                    shutil.copy(path, self.root / "experiments" / folder)
        self.add("experiments/baselines/deform_vs_torchvision.py", DEFORM)
        for name in ("gpu_dense", "gpu_depthwise", "gpu_grouped", "resnet18", "resnet50", "mobilenet_v2", "sparse",
                     "sparse_other"):
            self.add(f"experiments/shapes/{name}.txt", "# a list\n" + "\n".join(PROBLEMS) + "\n")
        self.add("framework/a.cu", "int a;\n")
        for name in ("fakes/nvidia-smi", "fakes/compute-sanitizer", "built/bin/test_cuda", "built/bin/convscope"):
            self.add(name, f"#!{sys.executable}\n{FAKE}")
            (self.root / name).chmod(0o755)
        self.add("built/lib/libconvscope_cuda.so", "")
        self.add("python/torch/__init__.py", TORCH)
        self.add("python/torchvision/__init__.py", "from unittest import mock\nmodels = mock.MagicMock()\n")
        self.records = self.root / "experiments" / "bench" / "records"
        self.records.mkdir()
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("CONVSCOPE_")}
        self.environment.update({
            "FAKE_ROOT": str(self.root), "CUDA_HOME": "/nowhere", "CUDA_PATH": "/nowhere",
            "PYTHONPATH": str(self.root / "python"), "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": f"{self.root / 'fakes'}:{os.environ['PATH']}", "CONVSCOPE_COMPARE": "dense_f32 dense_bf16_n1",
            "CONVSCOPE_SANITIZER_FILTER": FEW, "CONVSCOPE_SANITIZER_JOBS": "3", "CONVSCOPE_BASELINE_KINDS": "CUDA graph"})
        self.fake()

    def add(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def fake(self, **orders):
        """Sets which calls fail from now on, and empties the list of calls."""
        self.add("fake.json", json.dumps(orders))
        self.add("calls.log", "")

    def calls(self, first):
        return [line.split()[1:] for line in (self.root / "calls.log").read_text().splitlines()
                if line.split()[0] == first]

    def command(self, *words):
        return ["bash", str(self.root / "experiments/bench/gpu_check.sh"), "--programs", str(self.root / "built"),
                "--parts", str(self.root / "parts"), "--jobs", "2", *words]

    def check(self, *words, code=0):
        done = subprocess.run(self.command(*words), capture_output=True, text=True, env=self.environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def stopped_when(self, enough, *words):
        """Starts a check and stops it by a signal when enough() is true, as at the end of the time on a rented
        machine. Returns the output of the check."""
        process = subprocess.Popen(self.command(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env=self.environment)
        end = time.monotonic() + 120
        while not enough() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 75, out)
        return out

    def rows(self, part):
        path = self.root / "parts" / f"{part}.rows"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def record(self, *words, code=0):
        done = subprocess.run([sys.executable, str(self.root / "experiments/bench/gpu_record.py"), *words],
                              capture_output=True, text=True, env=self.environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def written(self):
        return json.loads(max(self.records.glob("*.json")).read_text())

    def part(self, name):
        return json.loads((self.root / "parts" / name).read_text())

    def old_record(self, **more):
        """Writes records for the current sources in the older format, which lacks the field
        `measured`."""
        rows = [{"problem": PROBLEMS[0] + ",groups=1", "direction": "forward", "precision": "f32", "wrong": []}]
        elsewhere = {"cuda": {"devices": [{"name": "NVIDIA A30"}]}}
        clean = {"errors": 0, "exit": 0, "tests": 3}
        self.add("experiments/bench/records/2020-01-01-h100.json", json.dumps({
            "format": "convscope gpu record 1", "date": "2020-01-01T00:00:00Z",
            "sources_sha256": self.record("hash").strip(), "source_files": 1,
            "gpu": {"name": "NVIDIA H100", "driver_version": "1"}, "nvcc": None,
            "tests": {"passed": 5, "failed": 0, "skipped": 1}, "sanitizers": {tool: clean for tool in TOOLS},
            "peaks": {"f32": 1}, "conv2d": [{"precision": "f32", "layout": "nchw", "weights": "once", "rows": rows}],
            "deform": {"device": "NVIDIA A100", "rows": []},
            "sparse": {"f32": {"machine": elsewhere, "rows": []}},
            "compressed": {"int8": {"rows": []}}, "networks": {"lenet5": [{"batch": 1}]}, "ranks": {"ms": 1}, **more}))
