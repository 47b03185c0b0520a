#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds what all cases share: the tested program, the undamaged input files, and the environment variables
of a call."""
import os
import pathlib
import random
import shutil
import subprocess

import run_files
import valid_files
from calls import MEMORY_BYTES, Call

CALL_SECONDS = 60  # a call that takes longer and does not train counts as a hang


class Stage:
    def __init__(self, program, folder, seed=1, maker=None):
        """maker: the program that makes the valid files; default: the program under test."""
        self.program, self.folder, self.seed = pathlib.Path(program), pathlib.Path(folder), seed
        self.sound = self.folder / "sound"
        self.folder.mkdir(parents=True, exist_ok=True)
        # Without measured peaks, `auto` uses built-in ones, so each run chooses the same
        # algorithms.
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith(("CONVSCOPE_", "OMP_", "GOMP_"))}
        self.env |= {"CONVSCOPE_CACHE_DIR": str(self.folder / "cache"), "CONVSCOPE_MEASURE": "off",
                     "LC_ALL": "C.UTF-8",
                     "GOMP_SPINCOUNT": "0"}
        self.seconds = valid_files.make(maker or program, self.sound, self.env)
        self.whole = {}
        for name in ("q", "rich"):
            self.whole[name] = run_files.bits(self.newest(self.sound / "runs" / name))
        self.sweep = self.sweep_bits(self.sound / "runs/s")
        self.files = run_files.names_in(self.newest(self.sound / "runs/q"))
        self.namespaces = can_mount()
        self.patience, self.memory = CALL_SECONDS, MEMORY_BYTES
        self.shim = None

    @staticmethod
    def newest(folder):
        return sorted(path for path in folder.glob("2*") if path.is_dir())[-1]

    @staticmethod
    def sweep_bits(folder):
        """Returns finished runs by row and seed. Two finished runs of one member are an error."""
        found = {}
        for run in run_files.finished(folder):
            found.setdefault(f"{run.parent.name} {run.name.split('-')[-1]}", []).append(
                run_files.bits(run))
        return found

    def random(self, part, number):
        return random.Random(f"{self.seed} {part} {number}")

    def start(self, folder, *words, **options):
        env = self.env | options.pop("more_env", {})
        options.setdefault("cwd", folder)
        options.setdefault("memory", self.memory)
        return Call([self.program, *words], folder, env=env, **options)

    def call(self, folder, *words, seconds=None, stoppable=False, **options):
        return self.start(folder, *words, **options).outcome(seconds or self.patience, stoppable)

    def train(self, folder, config, *words, **options):
        return self.call(folder, "run", f"{config}.yaml", "-o", "runs", "--threads", 1, *words,
                         **options)

    def copy(self, folder, *names):
        """Copies valid files or folders to the same relative paths in the folder of a case."""
        for name in names:
            to = folder / name
            to.parent.mkdir(parents=True, exist_ok=True)
            if (self.sound / name).is_dir():
                shutil.copytree(self.sound / name, to, symlinks=True)
            else:
                shutil.copy2(self.sound / name, to)


NO_MOUNT = 77  # exit code of a script that is not allowed to mount


def namespace_words():
    """Returns the words that begin a command. The program that follows them runs in a namespace
    with private mounts, which disappear when the program ends."""
    return ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]


def can_mount():
    try:
        return subprocess.run([*namespace_words(), "sh", "-c", "mount -t tmpfs -o size=1m none /mnt"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
