# SPDX-License-Identifier: Apache-2.0
"""Loads the library, so that its threads neither spin nor hang.

Threads of GCC's OpenMP wait for work by spinning, which takes the cores from NumPy and from other programs.
So the library is loaded with a short spin, as in the program `convscope`. User settings of OMP_WAIT_POLICY
or GOMP_SPINCOUNT have priority. The setting is read while the library is loaded; it is removed afterwards,
so that child processes do not inherit it.
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


# Threads do not survive a fork, and OpenMP would wait for them. So a child of os.fork(), as in
# multiprocessing, computes in one thread.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_thread)
