# SPDX-License-Identifier: Apache-2.0
"""Opens the library, and sees to it that its threads neither spin nor hang.

Threads of GCC's OpenMP wait for work by spinning, which takes the cores from NumPy and from other
programs, so the library is opened with a short spin, as the program `convscope` does. Whoever sets
OMP_WAIT_POLICY or GOMP_SPINCOUNT keeps that. The setting counts while the library is opened; it is taken
back then, so that child processes do not inherit it.
"""
import os

_SPIN = "GOMP_SPINCOUNT"
_mine = "OMP_WAIT_POLICY" not in os.environ and _SPIN not in os.environ
if _mine:
    os.environ[_SPIN] = "500"
try:
    from . import _native as native
finally:
    if _mine:
        del os.environ[_SPIN]


def _one_thread():
    native.set_num_threads(1)


# The threads of a process do not live on in its copy, and OpenMP would wait for them: a child of
# os.fork(), as multiprocessing makes them, computes in one thread.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_thread)
