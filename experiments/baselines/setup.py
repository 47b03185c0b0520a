#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the systems that Convscope is compared with: one folder, pinned versions, from PyPI.

The folder is both a Python environment and a prefix for CMake. CMake looks in build/baselines first, so the plug-in
for oneDNN is built against 3.2 there and not against Debian's 2.6.3. A second call installs only what is
missing.

    python3 experiments/baselines/setup.py                        # all of it
    python3 experiments/baselines/setup.py --only onednn          # 40 MB: for `bench conv2d --baseline onednn`
    python3 experiments/baselines/setup.py --only networks        # for nets_vs_baselines.py
    python3 experiments/baselines/setup.py --folder /tmp/baselines    # then cmake -DCONVSCOPE_BASELINES_DIR=/tmp/baselines
    python3 experiments/baselines/setup.py --list                 # versions, nothing installed
"""
import argparse
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "baselines"
# oneDNN's wheels are numbered by oneAPI's year: 2023.2.0 holds oneDNN 3.2.0, here with GCC's OpenMP.
GROUPS = {
    "onednn": ["onednn-cpu-gomp==2023.2.0", "onednn-devel-cpu-gomp==2023.2.0"],
    "networks": ["numpy==2.4.6", "onnx==1.23.2", "onnxscript==0.7.2", "onnxruntime==1.32.0",
                 "openvino==2026.4.1", "torch==2.15.0", "torchvision==0.29.2"],
}
ONEDNN_FILES = ["lib/libdnnl.so.3", "lib/cmake/dnnl/dnnl-config.cmake", "include/oneapi/dnnl/dnnl.hpp"]


class Problem(Exception):
    """An error with one sentence for the user."""


def wanted(groups):
    """Returns the pinned packages of these groups, in order."""
    return [package for name in GROUPS if name in groups for package in GROUPS[name]]


def python_of(folder):
    return folder / "bin" / "python"


def installed(folder, run=subprocess.run):
    """Returns {name: version} of the environment's packages; {} when there is none."""
    if not python_of(folder).exists():
        return {}
    done = run([str(python_of(folder)), "-m", "pip", "list", "--format", "freeze",
                "--disable-pip-version-check"], capture_output=True, text=True)
    pairs = (line.split("==", 1) for line in done.stdout.splitlines() if "==" in line)
    return {name.lower().replace("_", "-"): version.strip() for name, version in pairs}


def missing(packages, there):
    """Returns the packages that are absent or have another version. A version with a local suffix (2.15.0+cpu) counts
    as the same version."""
    def is_there(package):
        name, version = package.split("==")
        return there.get(name, "").split("+")[0] == version
    return [package for package in packages if not is_there(package)]


def make_environment(folder, run=subprocess.run):
    if python_of(folder).exists():
        return
    if folder.exists() and any(folder.iterdir()):
        raise Problem(f"expected {folder} to be empty or an environment of an earlier call, got other "
                      "files in it; give another --folder")
    done = run([sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Problem(f"no Python environment could be made in {folder}: "
                      f"{last_line(done)}; Debian: apt-get install python3-venv")


def last_line(done):
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["it said nothing"])[-1]


def install(folder, packages, run=subprocess.run):
    command = [str(python_of(folder)), "-m", "pip", "install", "--disable-pip-version-check",
               "--quiet", "--retries", "1", *packages]
    done = run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Problem(f"pip could not install {', '.join(packages)}: {last_line(done)}; is PyPI "
                      f"reachable? Call again, nothing that is installed is fetched twice")


def check_onednn(folder):
    for name in ONEDNN_FILES:
        if not (folder / name).exists():
            raise Problem(f"expected {folder / name} after the installation, got none; "
                          f"remove {folder} and call again")


def next_command(folder, groups):
    out = []
    if "onednn" in groups:
        where = "" if folder == FOLDER else f" -DCONVSCOPE_BASELINES_DIR={shlex.quote(str(folder))}"
        out += [f"cmake --preset release{where} && cmake --build --preset release --target program",
                "build/release/bin/convscope bench conv2d --shapes experiments/shapes/resnet18.txt "
                "--threads 1 --baseline onednn"]
    if "networks" in groups:
        out.append(f"{shlex.quote(os.path.relpath(python_of(folder)))} "
                   "experiments/baselines/nets_vs_baselines.py --program build/release/bin/convscope")
    return out


def main(arguments=None, run=subprocess.run):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER,
                        help="where all of it goes (default: build/baselines)")
    parser.add_argument("--only", choices=sorted(GROUPS), action="append",
                        help="only this part; may be given again (default: all)")
    parser.add_argument("--list", action="store_true", help="print the versions and stop")
    args = parser.parse_args(arguments)
    groups = args.only or list(GROUPS)
    if args.list:
        print("\n".join(wanted(groups)))
        return 0
    folder = pathlib.Path(os.path.abspath(args.folder))
    try:
        make_environment(folder, run)
        absent = missing(wanted(groups), installed(folder, run))
        for package in absent:
            size = " (gigabytes with what it needs)" if package.startswith("torch==") else ""
            print(f"setup: fetching {package}{size}", file=sys.stderr)
        if absent:
            install(folder, absent, run)
        if "onednn" in groups:
            check_onednn(folder)
    except Problem as problem:
        print(f"setup: {problem}", file=sys.stderr)
        return 1
    print(f"{folder}: {len(absent)} packages installed, {len(wanted(groups)) - len(absent)} were there")
    for package in wanted(groups):
        print(f"  {package}")
    print("next:")
    for command in next_command(folder, groups):
        print(f"  {command}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
