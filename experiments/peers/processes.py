# SPDX-License-Identifier: Apache-2.0
"""What every comparison in this folder does with the processes that it times: threads, cores, memory.
Needs nothing but Python."""
import os


def environment(threads):
    """Both sides get the same number of threads."""
    count = str(threads)
    return dict(os.environ, OMP_NUM_THREADS=count, MKL_NUM_THREADS=count, OPENBLAS_NUM_THREADS=count)


def on_cores(threads, pin):
    """For subprocess' preexec_fn: the first `threads` cores that this process may use. Not on a busy
    machine, where a pinned thread waits for its core while another one is free."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    return (lambda: os.sched_setaffinity(0, cores)) if pin else None


def peak_bytes():
    """The resident set of this process at its highest, as Linux counts it."""
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
