# SPDX-License-Identifier: Apache-2.0
"""Loads the library so that its OpenMP threads neither spin for long nor hang after a fork.

Threads of GCC's OpenMP wait for work by spinning, which takes the cores from NumPy and from other programs. So
this module loads the library with a short spin, as the program `convscope` does. The user's settings of
OMP_WAIT_POLICY or GOMP_SPINCOUNT have priority. OpenMP reads the setting when the library is loaded; the
setting is removed afterwards, so that child processes do not inherit it.
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


# Threads do not survive a fork, and OpenMP would wait for them forever. So a child of os.fork(), as in
# multiprocessing, computes in one thread.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_thread)
