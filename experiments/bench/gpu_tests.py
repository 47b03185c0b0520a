# SPDX-License-Identifier: Apache-2.0
"""Runs Google tests of a GPU check in small groups, one process per group, by several workers until a
deadline.

When the process of a group has ended, one line of JSON with the results is appended to PART.rows. The next call with
the same sources and folder runs the remaining tests, and repeats failed tests once. PART.json has the numbers of passed
and failed tests, and the names of tests that are not done.

A test may be divided into shares, one per process (tests/support/random_share.h); it is done when all shares are. Under
compute-sanitizer a process counts only if the tool has printed its summary, because a process that stopped earlier
might still have reported errors.
"""
import collections
import fnmatch
import json
import os
import re
import signal
import subprocess
import threading
import time

from gpu_stamp import write_json

RUN = re.compile(r"\[ RUN      \] (\S+)")
END = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+)(?:.*\((\d+) ms\))?")
# 'ERROR SUMMARY: 0 errors', 'RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)'
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|SUMMARY: .*\((\d+) error")
REPORT = re.compile(r"^=+ (?:Invalid|Uninitialized|Error|Race|Program hit|Leaked|Misaligned|Address|Fatal)")
TOOL_FOUND_ERRORS = 9  # --error-exitcode
GRACE_SECONDS = 5
TELL_SECONDS = 30


class Clock:
    """Decides when to stop: after some seconds, or at a signal."""

    def __init__(self, seconds=None):
        self.begin = time.monotonic()
        self.end = None if not seconds else self.begin + seconds
        self.stopped = threading.Event()

    def left(self):
        if self.stopped.is_set():
            return 0.0
        return None if self.end is None else max(0.0, self.end - time.monotonic())

    def is_over(self):
        left = self.left()
        return left is not None and left <= 0

    def shorter(self, seconds):
        """Returns a clock that ends after `seconds` seconds, or earlier when this clock ends."""
        out = Clock(seconds)
        out.stopped = self.stopped
        out.end = min((end for end in (out.end, self.end) if end is not None), default=None)
        return out


def stop(process):
    """Stops the process and its children: first with SIGTERM, later with SIGKILL."""
    for which in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, which)
        except ProcessLookupError:
            break
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def run_until(clock, command, environment, output):
    """Returns (exit code, whether the clock stopped it)."""
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=output,
                               stderr=subprocess.STDOUT if output is not None else None, start_new_session=True)
    while True:
        try:
            return process.wait(0.1), False
        except subprocess.TimeoutExpired:
            if clock.is_over():
                stop(process)
                return process.returncode, True


def list_tests(program, pattern):
    done = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={pattern}"], capture_output=True,
                          text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{program} --gtest_list_tests: exit code {done.returncode}\n{done.stderr[-2000:]}")
    names, suite = [], ""
    for line in done.stdout.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith("  "):
            names.append(suite + word)
        elif word.endswith("."):
            suite = word
    return [name for name in names if "DISABLED_" not in name]


def outcome(text, code, names, tool, stopped):
    """Parses the output of a process. Returns {test: {result, ms, errors}}, and the names of tests to run again."""
    results, running, last, reports, errors = {}, None, names[0], collections.Counter(), None
    for line in text.splitlines():
        if found := RUN.search(line):
            running = last = found.group(1)
        elif (found := END.search(line)) and found.group(2) == running:
            word = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[found.group(1)]
            results[running] = {"result": word, "ms": int(found.group(3) or 0)}
            running = None
        elif tool and REPORT.match(line):
            reports[last] += 1
        if tool and (found := SUMMARY.search(line)):
            errors = max(errors or 0, int(found.group(1) or found.group(2)))
    if stopped:
        return ({}, []) if tool else (results, [])
    crash = {"result": "failed", "ms": 0, "why": f"exit code {code}"}
    missing = [name for name in names if name not in results]
    if (tool and errors is None) or missing:
        if tool:
            results = {}  # tests before the crash run again, without the crashing one
        if running:
            results[running] = crash
        elif not results:  # the process did not start
            return {name: crash for name in names}, []
        return results, [name for name in names if name not in results]
    allowed = (0, 1, TOOL_FOUND_ERRORS) if tool else (0, 1)
    failed = any(one["result"] == "failed" for one in results.values())
    if code not in allowed or (code == 1 and not failed) or (code == TOOL_FOUND_ERRORS and not errors):
        results[names[-1]] = crash
    if errors:
        # Reports are counted for each test. The tools print only some of them; the rest is added to one test.
        for name, count in reports.items():
            results[name]["errors"] = count
        most = reports.most_common(1)[0][0] if reports else names[0]
        rest = errors - sum(reports.values())
        results[most]["errors"] = max(1, results[most].get("errors", 0) + rest)
    return results, []


def is_bad(result):
    return result["result"] == "failed" or result.get("errors", 0) > 0


class TestRun:
    """One part: the tests that match a filter, run directly or under a sanitizer."""

    def __init__(self, stamps, part, program, names, tool="", environment=None, shares=None, set_aside=None):
        self.stamps, self.part, self.program, self.tool = stamps, part, program, tool
        self.environment = environment or {}
        self.set_aside = set_aside or {}  # {pattern of names: why its reports do not count}
        self.names = names
        self.units = []  # 'Suite.Test', or 'Suite.Test 2/8'
        for name in names:
            parts = next((n for pattern, n in (shares or {}).items() if fnmatch.fnmatchcase(name, pattern)), 1)
            self.units += [f"{name} {i}/{parts}" for i in range(1, parts + 1)] if parts > 1 else [name]
        self.rows = stamps.folder / f"{part}.rows"
        self.logs = stamps.folder / "logs"
        self.results, self.known_ms, self.again, self.count = {}, {}, set(), 0
        self._read()
        self.again = {unit for unit, result in self.results.items() if is_bad(result)}

    def _read(self):
        units = set(self.units)
        for line in self.rows.read_text().splitlines() if self.rows.exists() else []:
            try:
                row = json.loads(line)
            except ValueError:  # the line was cut off while it was written
                continue
            self.known_ms.update({unit: one["ms"] for unit, one in row["tests"].items()})
            if row["sources"] == self.stamps.sources:
                self.results.update({u: one for u, one in row["tests"].items() if u in units})

    def pending(self):
        return [unit for unit in self.units if unit not in self.results or unit in self.again]

    def why_aside(self, unit):
        return next((why for pattern, why in self.set_aside.items()
                     if fnmatch.fnmatchcase(unit.split()[0], pattern)), None)

    def tasks(self, size, long):
        """Returns tasks, [(expected milliseconds, units)]. A long test is its own task; other tests are grouped."""
        def expected(unit):
            by_name = any(fnmatch.fnmatchcase(unit.split()[0], pattern) for pattern in long)
            return max(self.known_ms.get(unit, 0), 60000 if by_name else 0)

        out, group = [], []
        for unit in self.pending():
            if expected(unit) >= 20000 or " " in unit or self.why_aside(unit):
                out.append((expected(unit), [unit]))
                continue
            group.append(unit)
            if len(group) == size:
                out.append((sum(map(expected, group)), group))
                group = []
        return out + ([(sum(map(expected, group)), group)] if group else [])

    def run(self, units, clock):
        """Runs one process. Returns those of its units (tests or shares of a test) that have to run again in this
        call."""
        names = [unit.split()[0] for unit in units]
        environment = dict(self.environment)
        if " " in units[0]:
            environment["CONVSCOPE_TEST_RANDOM_SHARE"] = units[0].split()[1]
        command = [self.program, "--gtest_filter=" + ":".join(names)]
        if self.tool:
            command = ["compute-sanitizer", "--tool", self.tool, "--error-exitcode", str(TOOL_FOUND_ERRORS),
                       *command]
        with LOCK:
            self.count += 1
            log = self.logs / f"{self.part}-{os.getpid()}-{self.count}.log"
        with open(log, "w") as file:
            code, stopped = run_until(clock, command, environment, file)
        text = log.read_text(errors="replace")
        found, again = outcome(text, code, names, self.tool, stopped)
        unit_of = dict(zip(names, units))
        found = {unit_of[name]: result for name, result in found.items()}
        for unit, result in found.items():
            if result.get("errors") and self.why_aside(unit):
                result["set_aside"] = result.pop("errors")
        with LOCK:
            self._keep(found, code)
        bad = [unit for unit, result in found.items() if is_bad(result)]
        if bad or any(result.get("set_aside") for result in found.values()):
            self._show(bad, text, log)
        else:
            log.unlink()
        return [unit_of[name] for name in again]

    def _keep(self, found, code):
        if not found:
            return
        row = {"sources": self.stamps.sources, "exit": code, "tests": found}
        with open(self.rows, "a") as file:
            # An earlier call may have left an incomplete line, so each row begins on a new line.
            file.write(("\n" if file.tell() else "") + json.dumps(row))
            file.flush()
            os.fsync(file.fileno())
        self.results.update(found)
        self.again -= found.keys()
        self.write()

    def _show(self, bad, text, log):
        for unit in bad:
            print(f"gpu_check: {self.part}: {unit} failed ({log})", flush=True)
        if bad:
            lines = [line for line in text.splitlines() if re.search("FAILED|Which is:|rror|=========", line)]
            print("\n".join(line[:400] for line in lines[:20]), flush=True)

    def begin(self):
        self.logs.mkdir(parents=True, exist_ok=True)
        self.stamps.begin(self.part)
        self.write()

    def end(self):
        summary = self.write()
        failed = bool(summary["failed_tests"] or summary.get("errors"))
        self.stamps.end(self.part, complete=not summary["not_done"] and bool(self.names),
                        failed=failed or not self.names)
        return summary

    def summary(self):
        units_by_name = collections.defaultdict(list)
        for unit in self.units:
            units_by_name[unit.split()[0]].append(unit)
        failed, counts, done = [], collections.Counter(), 0
        for name, units in units_by_name.items():
            results = [self.results[unit] for unit in units if unit in self.results]
            bad = [unit for unit in units if unit in self.results and self.results[unit]["result"] == "failed"]
            failed += bad
            done += len(results) == len(units)
            if bad:
                counts["failed"] += 1
            elif len(results) == len(units):
                counts["skipped" if all(r["result"] == "skipped" for r in results) else "passed"] += 1
        not_done = [unit for unit in self.units if unit not in self.results]
        out = {"wanted": len(units_by_name), "not_done": not_done, "failed_tests": failed}
        if not self.tool:
            return {**{word: counts[word] for word in ("passed", "failed", "skipped")}, **out}
        here = self.results
        return {"errors": sum(here[unit].get("errors", 0) for unit in here) + len(failed), "tests": done, **out,
                "reported_tests": [unit for unit in self.units if here.get(unit, {}).get("errors")],
                "set_aside": sum(here[unit].get("set_aside", 0) for unit in here),
                "set_aside_tests": {unit: self.why_aside(unit) for unit in self.units
                                    if here.get(unit, {}).get("set_aside")}}

    def write(self):
        summary = self.summary()
        write_json(self.stamps.folder / f"{self.part}.json", summary)
        return summary

    def sentence(self):
        s = self.summary()
        rest = f", {len(s['not_done'])} not done" if s["not_done"] else ""
        if self.tool:
            aside = f", {s['set_aside']} set aside" if s["set_aside"] else ""
            return f"{self.part}: {s['errors']} errors{aside}, {s['tests']} of {s['wanted']} tests{rest}"
        return f"{self.part}: {s['passed']} passed, {s['failed']} failed, {s['skipped']} skipped{rest}"


LOCK = threading.Lock()


class Worker(threading.Thread):
    """A thread that stores an exception of its work; wait_for() raises it."""

    def __init__(self, work):
        super().__init__(daemon=True)
        self.work, self.error = work, None

    def run(self):
        try:
            self.work()
        except Exception as error:  # to be raised in the main thread
            self.error = error


def begin_workers(runs, jobs, size, long, clock):
    """Starts threads that work through the tests of all runs, the longest first."""
    tasks = [(ms, i, run, units) for i, run in enumerate(runs) for ms, units in run.tasks(size, long)]
    queue = collections.deque(sorted(tasks, key=lambda task: -task[0]))

    def work():
        while not clock.is_over():
            with LOCK:
                if not queue:
                    return
                _, i, run, units = queue.popleft()
            again = run.run(units, clock)
            if again:
                with LOCK:
                    queue.append((0, i, run, again))

    for run in runs:
        run.begin()
    workers = [Worker(work) for _ in range(max(1, min(jobs, len(queue))))]
    for worker in workers:
        worker.start()
    return workers


def wait_for(workers, tell):
    """Waits in short steps, so that a signal is noticed; `tell` reports progress now and then."""
    said = time.monotonic()
    while any(worker.is_alive() for worker in workers):
        time.sleep(0.1)
        if time.monotonic() - said >= TELL_SECONDS:
            tell()
            said = time.monotonic()
    for worker in workers:
        if worker.error is not None:
            raise worker.error
