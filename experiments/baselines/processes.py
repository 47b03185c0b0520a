# SPDX-License-Identifier: Apache-2.0
"""Threads, cores and memory of timed processes, for every comparison in this folder. Uses only Python's
standard library."""
import os


def environment(threads):
    """Returns the environment variables that set the number of threads, the same for both programs."""
    count = str(threads)
    return dict(os.environ, OMP_NUM_THREADS=count, MKL_NUM_THREADS=count, OPENBLAS_NUM_THREADS=count)


def on_cores(threads, pin):
    """Returns a preexec_fn for subprocess that pins the process to the first `threads` cores it may use. It should not
    be used on a busy machine, where a pinned thread waits for its core while another core is free."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    return (lambda: os.sched_setaffinity(0, cores)) if pin else None


def peak_bytes():
    """Returns the peak resident set of this process, as Linux counts it."""
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
