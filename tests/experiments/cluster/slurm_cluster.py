#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a complete Slurm on this machine, with its files and ports separate from an installed Slurm. The
cluster has one controller, and each node is a slurmd process; stop() ends all of them."""
import getpass
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

DAEMONS = ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo"]
# A longer wait means a hang. The limit is generous, because a machine that compiles during the tests is several
# times slower.
PATIENCE_S = 180


def path_with_daemons():
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def missing():
    """Returns the name of the first required program that is missing, or "" when all are
    installed."""
    for name in DAEMONS:
        if not shutil.which(name, path=path_with_daemons()):
            return name
    return ""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_until(is_so, what, seconds=PATIENCE_S, pause=0.05):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = is_so()
        if found:
            return found
        time.sleep(pause)
    raise AssertionError(f"not within {seconds} s: {what}")


def descendants(pid):
    """Returns the process and all its descendants, the deepest last."""
    below = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        below.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        one = queue.pop(0)
        found.append(one)
        queue += below.get(one, [])
    return found


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Cluster:
    def __init__(self, folder, nodes=("a", "b"), cpus=2):
        self.folder, self.nodes = pathlib.Path(folder), nodes
        self.folder.mkdir(parents=True)
        self.env = dict(os.environ, SLURM_CONF=str(self.folder / "slurm.conf"),
                        PATH=path_with_daemons())
        self.processes = {}
        self.pausing = {}  # the time of the first sighting, by job
        ports = free_ports(1 + len(nodes))
        self.write_config(ports, cpus)
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def write_config(self, ports, cpus):
        user, host, at = getpass.getuser(), socket.gethostname(), self.folder
        key = at / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        (at / "state").mkdir()
        lines = [
            "ClusterName=test", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={ports[0]}",
            f"SlurmUser={user}", f"SlurmdUser={user}", "AuthType=auth/munge",
            f"AuthInfo=socket={at}/munge.socket", "CredType=cred/munge", f"StateSaveLocation={at}/state",
            f"SlurmdSpoolDir={at}/spool.%n", f"SlurmctldPidFile={at}/slurmctld.pid",
            f"SlurmdPidFile={at}/slurmd.%n.pid", f"SlurmctldLogFile={at}/slurmctld.log",
            f"SlurmdLogFile={at}/slurmd.%n.log", "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/none",
            "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core", "ReturnToService=2",
            "MpiDefault=none", "SwitchType=switch/none", "SlurmdTimeout=5", "KillWait=10",
            "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1"]
        for name, port in zip(self.nodes, ports[1:]):
            (at / f"spool.{name}").mkdir()
            lines.append(f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus}")
        lines.append(f"PartitionName=all Nodes={','.join(self.nodes)} Default=YES MaxTime=60 State=UP")
        (at / "slurm.conf").write_text("\n".join(lines) + "\n")

    def spawn(self, name, *words):
        log = open(self.folder / f"{name}.out", "ab")
        self.processes[name] = subprocess.Popen(
            words, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True)
        log.close()

    def start(self):
        at = self.folder
        self.spawn("munged", "munged", "--foreground", f"--key-file={at}/munge.key",
                   f"--socket={at}/munge.socket", f"--pid-file={at}/munged.pid",
                   f"--log-file={at}/munged.log", f"--seed-file={at}/munge.seed", "--num-threads=2",
                   "--force")
        wait_until(lambda: (at / "munge.socket").exists(), "munged answers")
        self.spawn("slurmctld", "slurmctld", "-D")
        for name in self.nodes:
            self.start_node(name)
        wait_until(lambda: self.node_states() == {name: "idle" for name in self.nodes},
                   "all nodes are idle")

    def start_node(self, name):
        self.spawn(f"slurmd.{name}", "slurmd", "-D", "-N", name)

    def ask(self, *words):
        return subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False).stdout.strip()

    def node_states(self):
        lines = self.ask("sinfo", "-h", "-N", "-o", "%N %T").splitlines()
        return dict(line.split() for line in lines)

    def tasks(self, extra="%N"):
        """Returns (array, task, state, reason, ...) of all jobs that wait or run."""
        out = self.ask("squeue", "-h", "-r", "-o", f"%F|%K|%T|%r|{extra}")
        return [tuple(line.split("|")) for line in out.splitlines()]

    def step_daemons(self, node):
        """Returns the slurmstepd processes of a node, which manage its tasks. They keep running
        when the node's slurmd ends."""
        wanted = {f"SLURM_CONF={self.folder}/slurm.conf".encode(), f"SLURMD_NODENAME={node}".encode()}
        found = set()
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if not wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                    continue
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if (pathlib.Path("/proc") / str(parent) / "cmdline").read_bytes()[:10] == b"slurmstepd":
                    found.add(parent)
            except (OSError, IndexError, ValueError):
                continue
        return found

    def lose_node(self, name):
        """Kills all processes at once, as a power failure does, and returns them."""
        killed = [self.processes[f"slurmd.{name}"].pid]
        for daemon in self.step_daemons(name):
            killed += descendants(daemon)
        for pid in killed:
            kill(pid)
        self.processes[f"slurmd.{name}"].wait()
        return killed

    def end_pauses(self):
        """Shortens Slurm's wait before it restarts a task from two minutes to two seconds. A shorter wait
        fails: in the second in which a task ended, the node refuses its restart ('Job credential revoked'),
        and the controller gives the task up."""
        now, pausing = time.monotonic(), {}
        for line in self.ask("squeue", "-h", "-r", "-o", "%A|%T|%r").splitlines():
            job, state, reason = line.split("|")
            if state == "PENDING" and reason == "BeginTime":
                pausing[job] = self.pausing.get(job, now)
                if now - pausing[job] > 2:
                    self.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
        self.pausing = pausing

    def told_of(self, job):
        """Returns the lines of the controller's log that concern one job array."""
        lines = (self.folder / "slurmctld.log").read_text().splitlines()
        return "\n".join(line for line in lines if re.search(rf"\bJobId={job}(_|\b)", line))

    def stop(self):
        if "slurmctld" in self.processes and self.processes["slurmctld"].poll() is None:
            self.ask("scancel", "--signal=KILL", "--full", f"--user={getpass.getuser()}")
            self.ask("scancel", f"--user={getpass.getuser()}")
        for node in self.nodes:
            for daemon in self.step_daemons(node):
                for pid in descendants(daemon):
                    kill(pid)
        for process in self.processes.values():
            kill(process.pid, signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                kill(process.pid)
                process.wait()
