# SPDX-License-Identifier: Apache-2.0
"""Starts and times the processes of every comparison in this folder. Uses only Python's standard library."""
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def environment(threads):
    """Returns the environment variables that set the number of threads, the same for both programs."""
    count = str(threads)
    return dict(os.environ, OMP_NUM_THREADS=count, MKL_NUM_THREADS=count, OPENBLAS_NUM_THREADS=count)


def on_cores(threads, pin):
    """Returns a preexec_fn for subprocess that pins the process to the first `threads` cores it may use. It should not
    be used on a busy machine, where a pinned thread waits for its core while another core is free."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    return (lambda: os.sched_setaffinity(0, cores)) if pin else None


def default_python():
    """Returns the Python that has the baselines, if setup.py has installed it, or else this one."""
    there = pathlib.Path(__file__).resolve().parents[2] / "build" / "baselines" / "bin" / "python"
    return str(there) if there.exists() else sys.executable


def run(command, codes=(0,), **options):
    """Runs a command and returns the finished process, with its output as text. An exit code that is not in `codes`
    ends the comparison."""
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode not in codes:
        sys.exit(f"failed: {' '.join(command)}\n{done.stderr}")
    return done


def bench(command, codes=(0,), **options):
    """Runs a `convscope bench` command and returns the content of its JSON file. With 1 in `codes`, the rows may hold
    wrong results; the program's messages are then printed."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "bench.json"
        done = run([*command, "--json", path], codes, **options)
        if not path.exists() or not path.read_text():
            sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stderr}")
        if done.returncode != 0:
            print(done.stderr[-2000:], file=sys.stderr)
        return json.loads(path.read_text())


def files_of(folder, inputs, outputs):
    """Returns the options of `convscope op` for arrays NAME.npy, and for results out_NAME.npy, in a folder."""
    return [word for name in inputs for word in (f"--{name}", folder / f"{name}.npy")] + [
        word for name in outputs for word in (f"--out-{name}", folder / f"out_{name}.npy")]


def add_turn_options(parser, seconds, quick, baselines):
    """Adds the options of comparisons in which processes of all systems run in turn."""
    parser.add_argument("--program", default="build/release/bin/convscope")
    parser.add_argument("--python", default=default_python(),
                        help=f"a Python that has {baselines} (default: build/baselines/bin/python)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3, help="turns of each system")
    parser.add_argument("--seconds", type=float, default=seconds, help="counted time of a turn")
    parser.add_argument("--quick", action="store_true", help=f"one turn of {quick} seconds")
    parser.set_defaults(quick_seconds=quick)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall",
                        help="cpu: time on the core, for --threads 1 on a busy machine")
    parser.add_argument("--pin", action="store_true", help="bind all to the first cores")
    parser.add_argument("--json", help="where to write the rows")


def parsed_turns(parser):
    """Returns the options of add_turn_options() and the parser's others."""
    args = parser.parse_args()
    if args.clock == "cpu" and args.threads != [1] and not getattr(args, "child", None):
        parser.error("expected --threads 1 with --clock cpu: it counts one thread's time")
    if args.repeats < 1 or min(args.threads) < 1:
        parser.error("expected --repeats and --threads of at least 1")
    if args.quick:
        args.repeats, args.seconds = 1, args.quick_seconds
    return args


def clock_of(name):
    """Returns the function that reads a clock. `cpu` counts the whole process, because many systems start threads."""
    return time.process_time if name == "cpu" else time.perf_counter


def repeated_ms(call, seconds, clock):
    """Warms up, then returns the milliseconds of every call until the time is over, of three calls at least."""
    warm_until = time.perf_counter() + 0.2 * seconds
    for i in range(1000):
        call()
        if i >= 2 and time.perf_counter() > warm_until:
            break
    now, times, end = clock_of(clock), [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = now()
        call()
        times.append(1e3 * (now() - start))
    return times


def median_ms(call, seconds, clock, least=3, most=math.inf):
    """Returns the median milliseconds of a call after an uncounted one. The counted calls take `seconds` together, but
    they are at least `least` and at most `most` calls."""
    now, times = clock_of(clock), []
    call()
    while len(times) < least or (sum(times) < seconds and len(times) < most):
        begin = now()
        call()
        times.append(now() - begin)
    return 1000 * statistics.median(times)


def peak_bytes():
    """Returns the peak resident set of this process, as Linux counts it."""
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
