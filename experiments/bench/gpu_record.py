#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The record of a GPU check: what was measured, on which GPU, from which sources.

    gpu_record.py hash                 the hash of today's device code
    gpu_record.py write FOLDER         FOLDER's parts (gpu_check.sh leaves them there) -> a record
    gpu_record.py verify               exit code 1 when the newest record is not of today's sources,
                                       is incomplete, or says that something failed

CI has no GPU. So that a change of device code cannot pass unmeasured, the newest record in
experiments/bench/records/ must hold the hash of the sources as they are, but for comments and for the
error bounds that cards claim.

What a record lacks is named in it by hand, `incomplete: {part: reason}`, and `verify` prints that. When the
GPU is gone before a last small change, `later: {sha256, reason}` names the sources behind that change;
`sources_sha256` stays what was measured. Both are debts: the next run on a GPU pays them.
"""
import datetime
import hashlib
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDS = ROOT / "experiments" / "bench" / "records"
FOLDERS = ("framework", "layers", "optim", "quant", "sparsity", "datasets", "experiments")
FORMAT = "convscope gpu record 1"
SANITIZERS = ("memcheck", "racecheck", "initcheck")
PARTS = ("tests", "sanitizers", "ceilings", "conv2d", "deform", "sparse", "compressed",
         "networks")


def device_sources():
    """*.cu, *.cuh, and headers whose functions are compiled for the device too. The emulation runs
    on the CPU only and is no part of what a GPU executes."""
    out = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if "emulation" in path.parts or not path.is_file():
                continue
            if path.suffix in (".cu", ".cuh"):
                out.append(path)
            elif path.suffix == ".h" and "CONVSCOPE_HOST_DEVICE" in path.read_text():
                out.append(path)
    return out


# A comment, or a literal, in which nothing is one.
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')", re.DOTALL)


# What a card says of its errors: a number for the tests on the host, which no kernel ever sees.
CLAIM = re.compile(r"^\s*\.error_growth = \d+,", re.MULTILINE)


def code_of(text):
    """The lines without comments, spare blanks and the error bounds of cards: what is compiled for
    the device. No GPU has to be asked about a better sentence."""
    lines = CLAIM.sub("", COMMENT.sub(lambda found: found.group(1) or " ", text)).splitlines()
    return "\n".join(line for line in (" ".join(line.split()) for line in lines) if line)


def source_hash():
    digest = hashlib.sha256()
    for path in device_sources():
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0")
        digest.update(code_of(path.read_text()).encode() + b"\0")
    return digest.hexdigest()


def nvidia_smi(fields):
    done = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        return {}
    return dict(zip(fields, (cell.strip() for cell in done.stdout.splitlines()[0].split(","))))


def read_json(path):
    return json.loads(path.read_text()) if path.exists() and path.read_text().strip() else None


def write(folder):
    folder = pathlib.Path(folder)
    facts = nvidia_smi(["name", "driver_version", "memory.total", "clocks.sm", "clocks.mem",
                        "clocks.max.sm", "clocks.max.mem", "power.limit", "temperature.gpu"])
    nvcc = subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout
    release = re.search(r"release [\d.]+, (\S+)", nvcc)
    record = {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "sources_sha256": source_hash(),
        "source_files": len(device_sources()),
        "gpu": facts,
        "nvcc": release.group(1) if release else None,
        "tests": read_json(folder / "tests.json"),
        "sanitizers": read_json(folder / "sanitizers.json"),
        "ceilings": read_json(folder / "ceilings.json"),
        "conv2d": [part for part in (read_json(path) for path in sorted(folder.glob("conv2d_*.json")))
                   if part],
        "deform": read_json(folder / "deform.json"),
        "sparse": {path.stem[len("sparse_"):]: read_json(path)
                   for path in sorted(folder.glob("sparse_*.json"))},
        "compressed": {path.stem[len("compressed_"):]: read_json(path)
                       for path in sorted(folder.glob("compressed_*.json"))},
        "networks": {path.stem[len("net_"):]: read_json(path)
                     for path in sorted(folder.glob("net_*.json"))},
    }
    name = re.sub(r"[^a-z0-9]+", "-", facts.get("name", "unknown").lower().replace("nvidia", ""))
    out = folder / f"{record['date'][:10]}-{name.strip('-')}.json"
    out.write_text(json.dumps(record, indent=1) + "\n")
    print(out)


def problems_of(record):
    if record.get("format") != FORMAT:
        yield f"expected format '{FORMAT}', got {record.get('format')!r}"
        return
    if source_hash() not in (record["sources_sha256"], record.get("later", {}).get("sha256")):
        yield ("it was made from other device code than today's: run experiments/bench/gpu_check.sh "
               "on a machine with a GPU and commit the record that it writes")
    for part in PARTS:
        if not record.get(part):
            yield f"its part '{part}' is missing"
    if not record.get("gpu", {}).get("driver_version"):
        yield "it does not name the driver"
    tests = record.get("tests") or {}
    if tests.get("failed", 1) != 0 or tests.get("passed", 0) == 0:
        yield f"its tests did not pass: {tests}"
    for tool in SANITIZERS:
        result = (record.get("sanitizers") or {}).get(tool)
        if result is None:
            yield f"compute-sanitizer {tool} was not run"
        elif result.get("errors", 1) != 0:
            yield f"compute-sanitizer {tool} found {result.get('errors')} errors"
        elif result.get("exit", 0) != 0 and tool not in record.get("incomplete", {}):
            yield f"compute-sanitizer {tool} did not run to its end (exit code {result['exit']})"
    for part in record.get("conv2d") or []:
        for row in part["rows"]:
            if row["wrong"]:
                yield f"wrong results: {row['wrong']} on {row['problem']} {row['direction']}"
    for row in (record.get("deform") or {}).get("rows", []):
        if row["wrong"]:
            yield f"wrong results: {', '.join(row['wrong'])} on {row['problem']} in {row['precision']}"
    for name, part in (record.get("sparse") or {}).items():
        for row in part["rows"]:
            if row.get("wrong"):
                yield f"wrong results, sparse {name}: {row['wrong']} on {row.get('problem', row)}"
    for name, part in (record.get("compressed") or {}).items():
        for row in part["rows"]:
            if row["wrong"]:
                yield f"wrong results, {name}: {row['wrong']} on {row['problem']}"


def newest():
    records = [(json.loads(path.read_text()), path) for path in RECORDS.glob("*.json")]
    return max(records, key=lambda one: one[0].get("date", "")) if records else None


def verify():
    found = newest()
    if found is None:
        print(f"no record in {RECORDS.relative_to(ROOT)}: run experiments/bench/gpu_check.sh on a "
              "machine with a GPU")
        return 1
    record, path = found
    problems = list(problems_of(record))
    for problem in problems:
        print(f"{path.relative_to(ROOT)}: {problem}")
    if not problems:
        print(f"{path.relative_to(ROOT)}: {record['gpu']['name']}, driver "
              f"{record['gpu']['driver_version']}, {record['tests']['passed']} tests passed, "
              f"{record['source_files']} source files")
        if record["sources_sha256"] != source_hash():
            print(f"not measured as they are: {record['later']['reason']}")
        if record["tests"].get("set_aside"):
            print(f"set aside: {record['tests']['set_aside']} failed tests")
        for tool, result in record["sanitizers"].items():
            if result.get("set_aside"):
                print(f"set aside: {result['set_aside']} reports of {tool}")
            for name in result.get("failed_tests", []):
                print(f"failed under {tool}, and only there: {name}")
        for part, why in record.get("incomplete", {}).items():
            print(f"incomplete: {part}: {why}")
    return 1 if problems else 0


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command == "hash":
        print(source_hash())
    elif command == "write" and len(sys.argv) == 3:
        write(sys.argv[2])
    elif command == "verify":
        return verify()
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
