#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Creates the environment of the notebooks, and opens them.

  set_up.py --environment DIR --packages                          creates it (about 3 minutes, once)
  set_up.py --environment DIR --include A:B --library FILE        and sets the paths of its kernel
            [--lab --course DIR [--no-browser] [--fresh] [NAME]]  and starts JupyterLab in a copy

`./bootstrap.sh notebooks` and `convscope notebook` call this script. A second call installs nothing. If
something is missing, the script says so in one sentence and ends with exit code 5.
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

HERE = pathlib.Path(__file__).resolve().parent
OLDEST, NEWEST = (3, 11), (3, 13)
KERNEL = "xcpp20"  # xeus-cpp's name: the same notebooks run on both
UNAVAILABLE = 5


class Missing(Exception):
    """Raised with one sentence that says what is missing and how to get it."""


def say(text):
    print(f"notebooks: {text}", file=sys.stderr, flush=True)


def check_python():
    version = sys.version_info[:2]
    if not OLDEST <= version <= NEWEST:
        raise Missing(f"expected Python {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}, because cppyy has "
                      f"packages for these, got {version[0]}.{version[1]} ({sys.executable}); "
                      "CONVSCOPE_PYTHON names another one")
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        raise Missing(f"expected the module venv of {sys.executable}, because the packages go into a "
                      "separate environment, got none; on Debian: apt-get install python3-venv") from None


def check_compiler():
    """Checks for a compiler. The installation of cppyy compiles code, and cling reads the standard library of
    the compiler."""
    compiler = os.environ.get("CXX", "").split(" ")[0] or "c++"
    if not shutil.which(compiler) and not shutil.which("g++"):
        raise Missing(f"expected a C++ compiler in PATH, because cppyy is compiled and cling reads its "
                      f"headers, got neither '{compiler}' nor 'g++'; on Debian: apt-get install g++")
    header = pathlib.Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        raise Missing(f"expected Python's headers, because cppyy is compiled against them, got no {header}; "
                      "on Debian: apt-get install python3-dev")


def python_of(environment):
    return environment / "bin" / "python"


def wanted(lab):
    """Returns a hash of the requirements; an environment with the same hash is up to date."""
    files = ["requirements.txt", "constraints.txt"] + ["requirements_lab.txt"] * lab
    text = "".join((HERE / name).read_text() for name in files)
    return hashlib.sha256(text.encode()).hexdigest()


def is_ready(environment, lab):
    stamps = [environment / f"ready_{kind}" for kind in (["lab"] if lab else ["kernel", "lab"])]
    return any(stamp.is_file() and stamp.read_text() == wanted(stamp.name == "ready_lab")
               for stamp in stamps) and python_of(environment).exists()


def confirmed(question):
    say(f"{question} [Y/n]")
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


def make_environment(environment, lab, asks=False):
    if is_ready(environment, lab):
        return
    check_python()
    check_compiler()
    what = f"{'JupyterLab and ' * lab}cppyy from PyPI into {environment} (about 3 minutes, once)"
    if asks and not confirmed(f"install {what}?"):
        raise Missing(f"expected the packages of the notebooks in {environment}, but they were not installed; "
                      "`convscope look` and `convscope notebook --list` need no packages")
    say(f"installing {what}")
    environment.parent.mkdir(parents=True, exist_ok=True)
    for stamp in environment.glob("ready_*"):
        stamp.unlink()
    log = environment.parent / f"{environment.name}.log"
    files = ["requirements.txt"] + ["requirements_lab.txt"] * lab
    pip = [str(python_of(environment)), "-m", "pip", "install", "--disable-pip-version-check",
           "--no-input", "--constraint", str(HERE / "constraints.txt")]
    for name in files:
        pip += ["--requirement", str(HERE / name)]
    with open(log, "w") as out:
        for words in ([sys.executable, "-m", "venv", str(environment)], pip):
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
            if done.returncode != 0:
                lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
                errors = [line for line in lines if line.startswith(("ERROR", "error"))] or lines[-1:]
                raise Missing("expected pip to install the packages of "
                              f"{', '.join(files)}, got: {' '.join(errors[:1]) or 'no message'} "
                              f"(the whole log: {log})")
    (environment / f"ready_{'lab' if lab else 'kernel'}").write_text(wanted(lab))


def kernel_spec(environment, include, library):
    return {"argv": [str(python_of(environment)), str(HERE / "kernel" / "kernel.py"), "-f",
                     "{connection_file}"],
            "display_name": "C++20 (Convscope)", "language": "C++", "interrupt_mode": "signal",
            "env": {"CONVSCOPE_INCLUDE": include, "CONVSCOPE_LIBRARY": library,
                    "OMP_WAIT_POLICY": "passive"}}


def install_kernel(environment, include, library):
    folder = environment / "share" / "jupyter" / "kernels" / KERNEL
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.json").write_text(json.dumps(kernel_spec(environment, include, library), indent=1))


def notebooks():
    return sorted(HERE.glob("[0-9][0-9]_*.ipynb"))


def notebook_named(name):
    """Returns the notebook with this number, name or beginning of a name."""
    found = [path for path in notebooks() if path.stem.startswith(name.removesuffix(".ipynb"))]
    if len(found) != 1:
        raise Missing(f"expected the number or name of one notebook, got '{name}', which "
                      f"{'several have' if found else 'none has'} (there are: "
                      f"{', '.join(path.stem for path in notebooks())})")
    return found[0]


def copy_course(course, fresh):
    """Copies the course; the copy keeps the reader's changes."""
    course.mkdir(parents=True, exist_ok=True)
    kept = []
    for path in notebooks():
        there = course / path.name
        if there.exists() and not fresh:
            kept.append(path.stem)
            continue
        if there.exists():
            number = 1
            while (old := course / f"{path.stem}.old{number}.ipynb").exists():
                number += 1
            there.rename(old)
        shutil.copy(path, there)
    if kept:
        say(f"{len(kept)} notebooks of {course} stay as they are; --fresh copies them again")


def start_lab(environment, course, name, browser):
    words = [str(python_of(environment)), "-m", "jupyterlab", "--notebook-dir", str(course)]
    words += [] if browser else ["--no-browser"]
    words += ["--allow-root"] if os.geteuid() == 0 else []  # containers often run as root
    if name:
        words.append(str(course / notebook_named(name).name))
    say(f"the notebooks are in {course}; Ctrl-C ends JupyterLab")
    variables = {**os.environ, "JUPYTER_PATH": str(environment / "share" / "jupyter")}
    os.execve(words[0], words, variables)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", help="number or name of a notebook to open")
    parser.add_argument("--environment", type=pathlib.Path, required=True)
    parser.add_argument("--packages", action="store_true", help="install the packages, no more")
    parser.add_argument("--include", default="", help="folders of headers, joined by ':'")
    parser.add_argument("--library", default="", help="libconvscope.so")
    parser.add_argument("--course", type=pathlib.Path, help="folder for the reader's copy")
    parser.add_argument("--lab", action="store_true", help="install JupyterLab too, and start it")
    parser.add_argument("--no-browser", action="store_true", help="print only the address")
    parser.add_argument("--yes", action="store_true", help="install without a question on the terminal")
    parser.add_argument("--fresh", action="store_true", help="copy all notebooks again; old ones are kept")
    arguments = parser.parse_args()
    environment = arguments.environment.absolute()
    try:
        if arguments.name:
            notebook_named(arguments.name)
        make_environment(environment, arguments.lab, asks=sys.stdin.isatty() and not arguments.yes)
        if arguments.packages:
            return
        if not pathlib.Path(arguments.library).exists():
            raise Missing(f"expected the library of Convscope, got no {arguments.library}; build it first")
        install_kernel(environment, arguments.include, arguments.library)
        if arguments.lab:
            course = (arguments.course or environment.parent / "course").absolute()
            copy_course(course, arguments.fresh)
            start_lab(environment, course, arguments.name, not arguments.no_browser)
    except Missing as error:
        say(str(error))
        sys.exit(UNAVAILABLE)
    except OSError as error:
        say(f"expected to write the environment {environment}, got: {error}")
        sys.exit(6)


if __name__ == "__main__":
    main()
