#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the record of a GPU check: results, dates, GPU and sources.

    gpu_record.py hash                 the hash of today's device code
    gpu_record.py write FOLDER         writes a record of the parts and stamps in FOLDER (from gpu_check.sh)
          [--base FILE|none]           record from which missing parts are copied; default: the newest
          [--out DIR]                  destination; default: experiments/bench/records
    gpu_record.py verify               exit code 1 when the newest record is not of today's sources,
                                       is incomplete, or contains a failure
    gpu_record.py later "REASON"       states why the newest record's checks are valid for today's sources
    gpu_record.py incomplete PART "REASON"   why an unfinished part is accepted, or a sanitizer under which
                                       a test failed without any report
    gpu_record.py note "TEXT"          a remark

CI has no GPU, so CI requires that the newest record in experiments/bench/records/ holds results of the tests and
sanitizers for the current sources. Changed comments and changed error bounds need no new record, because the hash of
the sources leaves them out. `write` needs no GPU.

The member `measured` of a record says for each item (a part, a list of convolutions or a sanitizer) from which sources,
when and on which GPU it was measured. Results for older sources, and the members `later` and `incomplete`, are debts:
`verify` prints them, and the next run on a GPU measures the items again. Records without `measured` (older ones) can be
read.
"""
import argparse
import collections
import hashlib
import json
import pathlib
import re
import subprocess
import sys

from gpu_stamp import now, read_json, write_json

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDS = ROOT / "experiments" / "bench" / "records"
FOLDERS = ("framework", "layers", "optim", "quant", "sparsity", "datasets", "experiments")
FORMAT = "convscope gpu record 1"
SANITIZERS = ("memcheck", "racecheck", "initcheck")
PARTS = ("tests", "sanitizers", "peaks", "conv2d", "deform", "sparse", "compressed",
         "networks")


def device_sources():
    """Returns *.cu, *.cuh, and headers whose functions are compiled for the device. The emulation is not
    included, because it runs on the CPU only."""
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


# Matches comments. It also matches literals (the group), because a '//' inside a literal begins no comment.
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')", re.DOTALL)


# The error bound that an algorithm states. The tests use it on the host; no kernel does.
CLAIM = re.compile(r"^\s*\.error_growth = \d+,", re.MULTILINE)


def code_of(text):
    """Returns the lines that are compiled for the device, without comments, extra blanks and error bounds. A changed
    comment needs no new measurement."""
    lines = CLAIM.sub("", COMMENT.sub(lambda found: found.group(1) or " ", text)).splitlines()
    return "\n".join(line for line in (" ".join(line.split()) for line in lines) if line)


def source_hash():
    digest = hashlib.sha256()
    for path in device_sources():
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0")
        digest.update(code_of(path.read_text()).encode() + b"\0")
    return digest.hexdigest()


def nvcc_release():
    try:
        done = subprocess.run(["nvcc", "--version"], capture_output=True, text=True)
    except OSError:
        return None
    release = re.search(r"release [\d.]+, (\S+)", done.stdout)
    return release.group(1) if release else None


# ---- items: measured separately. Each has a file and a stamp in a folder of parts. ----------------------

GROUPS = {"sparse": "sparse_", "compressed": "compressed_", "networks": "net_"}
SINGLE = ("tests", "huge", "peaks", "deform", "mnist_to_99")
CHECKS = ("tests", *SANITIZERS)  # must match today's sources
KNOWN = ("format", "date", "sources_sha256", "source_files", "gpu", "nvcc", "measured", "incomplete", "later",
         "notes", "sanitizers", "conv2d", *GROUPS, *SINGLE)


def name_of_list(part):
    """Returns the name of a list of convolutions. For an older list without a name, derives it from the rows."""
    if "name" in part:
        return part["name"]
    problem = part["rows"][0]["problem"] if part["rows"] else ""
    sizes = dict(word.split("=") for word in problem.split(",") if word)
    groups = sizes.get("groups", "1")
    kind = "dense" if groups == "1" else "depthwise" if groups == sizes.get("c") else "grouped"
    last = part.get("layout", "nchw") in ("nhwc", "channels_last")
    words = [kind, part["precision"]]
    if part["precision"] == "tf32" and last:
        words.append("last")
    if part["precision"] == "bf16" and kind != "depthwise" and not last:
        words.append("nchw")
    if part.get("weights") == "often":
        words.append("prepared")
    return "_".join(words) + ("" if sizes.get("n", "32") == "32" else f"_n{sizes['n']}")


def items_of(record):
    """Returns {name of the item: its value}."""
    out = {name: record[name] for name in SINGLE if record.get(name)}
    out.update(record.get("sanitizers") or {})
    for part in record.get("conv2d") or []:
        name = item = f"conv2d_{name_of_list(part)}"
        number = 2
        while item in out:
            item, number = f"{name}_{number}", number + 1
        out[item] = part
    for group, prefix in GROUPS.items():
        out.update({prefix + name: part for name, part in (record.get(group) or {}).items()})
    out.update({name: part for name, part in record.items() if name not in KNOWN})  # e.g. ranks
    return out


def members_of(items):
    """Returns the members of a record, the inverse of items_of()."""
    out = {name: items.get(name) for name in SINGLE[:3]}
    out["sanitizers"] = {tool: items[tool] for tool in SANITIZERS if tool in items}
    out["conv2d"] = [{"name": item[len("conv2d_"):], **items[item]} for item in sorted(items)
                     if item.startswith("conv2d_")]
    out["deform"] = items.get("deform")
    for group, prefix in GROUPS.items():
        out[group] = {item[len(prefix):]: items[item] for item in sorted(items) if item.startswith(prefix)}
    taken = {*SINGLE[:4], *SANITIZERS}
    prefixes = ("conv2d_", *GROUPS.values())
    out.update({item: value for item, value in items.items() if item not in taken and not item.startswith(prefixes)})
    return out


def part_of(item):
    """Returns the name of the record's member that holds the results of an item. `incomplete` has the same names as
    keys."""
    return next((group for group, prefix in {"conv2d": "conv2d_", **GROUPS}.items() if item.startswith(prefix)), item)


def device_of(value):
    """Returns the GPU that a part names, or None."""
    if not isinstance(value, dict):
        return None
    gpus = ((value.get("machine") or {}).get("cuda") or {}).get("devices") or [{}]
    return value.get("device") or gpus[0].get("name")


def measured_of(record):
    """Returns {item: GPU, date and sources}. In a record without `measured`, all items were measured in one call,
    except those with a remark in `incomplete`: their sources are unknown."""
    if "measured" in record:
        return record["measured"]
    out = {}
    for item, value in items_of(record).items():
        remark = (record.get("incomplete") or {}).get(part_of(item))
        known = item in CHECKS or remark is None
        gpu, other = record.get("gpu", {}), device_of(value)
        out[item] = {"sources_sha256": record["sources_sha256"] if known else None, "date": record["date"],
                     "gpu": gpu if other in (None, gpu.get("name")) else {"name": other}, "complete": True,
                     **({"remark": remark} if remark else {})}
    return out


# ---- write --------------------------------------------------------------------------------------------

def taken_over(entry, base):
    return {**entry, "taken_over_from": entry.get("taken_over_from", f"the record of {base['date']}")}


def compose(folder, base):
    """Returns a record of the parts in the folder, and remarks about it. Missing parts are copied from `base`."""
    folder, remarks = pathlib.Path(folder), []
    stamps = {path.name[:-len(".stamp")]: read_json(path) for path in sorted(folder.glob("*.stamp"))}
    stamps = {item: stamp for item, stamp in stamps.items() if stamp}
    if not stamps:
        sys.exit(f"gpu_record: expected parts with their stamps in {folder}, got none")
    for path in sorted(folder.glob("*.json")):
        if path.stem.startswith(("conv2d_", *GROUPS.values())) and f"{path.name[:-5]}" not in stamps:
            remarks.append(f"{path.name} has no stamp, so it is left out")
    older, origins = (items_of(base), measured_of(base)) if base else ({}, {})
    items = dict(older)
    measured = {item: taken_over(origins.get(item, {}), base) for item in older}
    used = []
    for item, stamp in stamps.items():
        value = read_json(folder / f"{item}.json")
        there = item in older
        if there and origins.get(item, {}).get("date", "") > stamp["date"]:
            remarks.append(f"{item}: that of {origins[item]['date']} is newer than the folder's")
            continue
        if value is None or (not stamp["complete"] and there and item not in (*CHECKS, "huge")
                             and not list(wrong_in(item, value))):
            # A complete list for older sources is more useful than the first rows for new sources.
            cut = {"date": stamp["date"], "sources_sha256": stamp["sources_sha256"],
                   "rows": len(value["rows"] if isinstance(value, dict) and "rows" in value else value or [])}
            if there:
                measured[item]["cut_off"] = cut
            remarks.append(f"{item} was cut off" + ("" if there else ", and no older record replaces it"))
            continue
        used.append(item)
        if isinstance(value, dict):
            value = {key: part for key, part in value.items() if key != "done"}
        items[item] = value
        measured[item] = {key: stamp[key] for key in ("sources_sha256", "date", "began", "gpu", "also_on", "complete")
                          if key in stamp}
    if not used:
        sys.exit(f"gpu_record: no part of {folder} can be used: {'; '.join(remarks)}")
    lent = collections.defaultdict(list)
    for item, entry in measured.items():
        if "taken_over_from" in entry:
            lent[entry["taken_over_from"]].append(item)
    remarks += [f"taken over from {origin}: {', '.join(names)}" for origin, names in lent.items()]
    first = stamps["tests"] if "tests" in used else max((stamps[item] for item in used), key=lambda s: s["date"])
    record = {"format": FORMAT, "date": now(),
              "sources_sha256": measured.get("tests", first).get("sources_sha256"),
              "source_files": first.get("source_files"), "gpu": first["gpu"], "nvcc": first.get("nvcc"),
              **members_of(items), "measured": measured}
    # A remark of the base is kept only if the check to which it refers was copied from the base, too.
    over = {item for item in (*CHECKS, "huge") if "taken_over_from" in measured.get(item, {})}
    said = {part: why for part, why in ((base or {}).get("incomplete") or {}).items() if part in over}
    if said:
        record["incomplete"] = said
    if base and base.get("notes") and any("taken_over_from" in entry for entry in measured.values()):
        record["notes"] = [text if text.startswith("Of the record of ") else f"Of the record of {base['date']}: {text}"
                           for text in base["notes"]]
    if later := (base or {}).get("later"):
        hashes = {item: measured[item]["sources_sha256"] for item in CHECKS if item in measured}
        hashes = {item: sha for item, sha in hashes.items() if excuses(base, item, sha, later["sha256"])}
        if hashes:
            record["later"] = {**later, "measured": hashes}
    return record, remarks


def write(folder, base=None, out=None):
    """Writes the record and returns its path."""
    if base is None:
        found = newest()
        base = found[0] if found else None
    else:
        base = None if base == "none" else read_record(pathlib.Path(base))
    record, remarks = compose(folder, base)
    for remark in remarks:
        print(f"gpu_record: {remark}", file=sys.stderr)
    name = re.sub(r"[^a-z0-9]+", "-", record["gpu"].get("name", "unknown").lower().replace("nvidia", ""))
    out = pathlib.Path(out or RECORDS)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{record['date'][:10]}-{name.strip('-')}.json"
    write_json(path, record)
    return path


# ---- verify -------------------------------------------------------------------------------------------

def excuses(record, item, sha, today):
    """Returns whether `later` declares that results for sources with the hash `sha` are valid for today's sources."""
    later = record.get("later") or {}
    if later.get("sha256") != today:
        return False
    return later["measured"].get(item) == sha if "measured" in later else sha == record["sources_sha256"]


def wrong_in(item, value):
    """Returns sentences about wrong results."""
    if isinstance(value, dict):
        for row in value.get("rows") or []:
            if row.get("wrong"):
                wrong = row["wrong"] if isinstance(row["wrong"], str) else ", ".join(row["wrong"])
                where = " ".join(str(row[key]) for key in ("problem", "direction", "precision") if key in row)
                yield f"wrong results, {item}: {wrong} on {where or row}"


def fails_alone(result):
    """Returns whether the tests failed under a tool, but the tool reported no error. The tool's run then counts as
    incomplete, and these tests must pass without the tool."""
    failed, reported = result.get("failed_tests") or [], result.get("reported_tests") or []
    return bool(failed) and not reported and len(failed) == result.get("errors")


def problems_of(record):
    if record.get("format") != FORMAT:
        yield f"expected format '{FORMAT}', got {record.get('format')!r}"
        return
    today, items, measured = source_hash(), items_of(record), measured_of(record)
    older = [item for item in CHECKS if item in items
             and measured.get(item, {}).get("sources_sha256") != today
             and not excuses(record, item, measured.get(item, {}).get("sources_sha256"), today)]
    if older:
        yield (f"made from other device code than today's: {', '.join(older)}; run experiments/bench/gpu_check.sh "
               "on a machine with a GPU and commit its record")
    for part in PARTS:
        if not record.get(part):
            yield f"its part '{part}' is missing"
    for item in items:
        if not measured.get(item, {}).get("date"):
            yield f"it does not say when '{item}' was measured"
    if not record.get("gpu", {}).get("driver_version"):
        yield "it does not name the driver"
    tests = record.get("tests") or {}
    if tests.get("failed", 1) != 0 or tests.get("passed", 0) == 0:
        yield f"its tests did not pass: {tests}"
    if (record.get("huge") or {}).get("failed"):
        yield f"its tests beyond 2^31 did not pass: {record['huge']}"
    for item in CHECKS:
        not_done = (items.get(item) or {}).get("not_done")
        if not_done and item not in record.get("incomplete", {}):
            yield f"{item}: {some(not_done)} not done"
    for tool in SANITIZERS:
        result = (record.get("sanitizers") or {}).get(tool)
        if result is None:
            yield f"compute-sanitizer {tool} was not run"
        elif result.get("errors", 1) != 0 and not (fails_alone(result) and tool in record.get("incomplete", {})):
            yield f"compute-sanitizer {tool} found {result.get('errors')} errors"
        elif result.get("tests", 0) == 0:
            yield f"compute-sanitizer {tool} saw no test"
        elif result.get("exit", 0) != 0 and tool not in record.get("incomplete", {}):
            yield f"compute-sanitizer {tool} did not run to its end (exit code {result['exit']})"
    for item, value in items.items():
        yield from wrong_in(item, value)


def some(names, most=6):
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def debts_of(record):
    """Returns the parts that are accepted today but have to be measured again."""
    today, items, measured = source_hash(), items_of(record), measured_of(record)
    if any(excuses(record, item, measured[item]["sources_sha256"], today) for item in CHECKS if item in measured):
        yield f"not measured in their present form: {record['later']['reason']}"
    if record["tests"].get("set_aside"):
        yield f"set aside: {record['tests']['set_aside']} failed tests"
    for tool, result in record["sanitizers"].items():
        if result.get("set_aside"):
            yield f"set aside: {result['set_aside']} reports of {tool}"
        for why in dict.fromkeys((result.get("set_aside_tests") or {}).values()):
            names = [name for name, reason in result["set_aside_tests"].items() if reason == why]
            yield f"set aside: {tool}, {some(names)}: {why}"
        for name in result.get("failed_tests", []):
            yield f"failed under {tool}, and only there: {name}"
    for part, why in record.get("incomplete", {}).items():
        yield f"incomplete: {part}: {why}"
    if "measured" not in record:
        return
    if not record.get("huge"):
        yield "not run: huge, the tests beyond 2^31"
    groups, here = collections.defaultdict(list), record["gpu"].get("name")
    for item in items:
        entry = measured[item]
        gpu = entry.get("gpu", {}).get("name")
        if entry["sources_sha256"] != today:
            of = (entry["sources_sha256"] or "not known")[:9].rstrip()
            groups[f"of other sources than today's ({of}; {gpu}, {entry['date'][:10]})"].append(item)
        elif gpu != here:
            groups[f"on another GPU ({gpu}, {entry['date'][:10]})"].append(item)
        if item in ("huge", *CHECKS) and (items[item].get("not_done")):
            yield f"not done: {item}: {some(items[item]['not_done'])}"
        elif not entry.get("complete", True) and item not in CHECKS:
            groups["not to the end"].append(item)
        if "also_on" in entry:
            groups[f"partly on {', '.join(entry['also_on'])}"].append(item)
        if "cut_off" in entry:
            groups["cut off the last time, so an older one is kept here"].append(item)
        if "remark" in entry and item not in record.get("incomplete", {}):
            groups[f"said of it: {entry['remark']}"].append(item)
    for what, names in groups.items():
        yield f"{what}: {', '.join(names)}"


def read_record(path):
    """Returns a record. Records of an older version call the measured peaks `ceilings`."""
    record = json.loads(path.read_text())
    if "ceilings" in record:
        record["peaks"] = record.pop("ceilings")
    for stamps in (record.get("measured") or {}, (record.get("later") or {}).get("measured") or {}):
        if "ceilings" in stamps:
            stamps["peaks"] = stamps.pop("ceilings")
    return record


def newest():
    records = [(read_record(path), path) for path in RECORDS.glob("*.json")]
    return max(records, key=lambda one: one[0].get("date", "")) if records else None


def shown(path):
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def verify():
    found = newest()
    if found is None:
        print(f"no record in {shown(RECORDS)}: run experiments/bench/gpu_check.sh on a machine with a GPU")
        return 1
    record, path = found
    problems = list(problems_of(record))
    for problem in problems:
        print(f"{shown(path)}: {problem}")
    if not problems:
        print(f"{shown(path)}: {record['gpu']['name']}, driver "
              f"{record['gpu']['driver_version']}, {record['tests']['passed']} tests passed, "
              f"{record['source_files']} source files")
        for debt in debts_of(record):
            print(debt)
    return 1 if problems else 0


# ---- statements about the newest record ------------------------------------------------------------------

def change_newest(change):
    found = newest()
    if found is None:
        sys.exit(f"gpu_record: there is no record in {shown(RECORDS)}")
    record, path = found
    change(record)
    write_json(path, record)
    print(shown(path))


def say_later(record, reason):
    today, measured = source_hash(), measured_of(record)
    older = {item: measured[item]["sources_sha256"] for item in CHECKS
             if item in measured and measured[item]["sources_sha256"] != today}
    if not older:
        sys.exit("gpu_record: the tests and the sanitizers are of today's sources: nothing is later")
    before = record.get("later", {}).get("reason", "")
    record["later"] = {"sha256": today, "reason": reason if before in ("", reason) else f"{before}; {reason}",
                       "measured": older}


def say_incomplete(record, part, reason):
    if part not in {*items_of(record), *PARTS}:
        sys.exit(f"gpu_record: expected a part of the record, got '{part}'")
    record.setdefault("incomplete", {})[part] = reason


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("hash")
    writing = commands.add_parser("write")
    writing.add_argument("folder")
    writing.add_argument("--base")
    writing.add_argument("--out")
    commands.add_parser("verify")
    commands.add_parser("later").add_argument("reason")
    unfinished = commands.add_parser("incomplete")
    unfinished.add_argument("part")
    unfinished.add_argument("reason")
    commands.add_parser("note").add_argument("text")
    arguments = parser.parse_args()
    if arguments.command == "hash":
        print(source_hash())
    elif arguments.command == "write":
        print(write(arguments.folder, arguments.base, arguments.out))
    elif arguments.command == "verify":
        return verify()
    elif arguments.command == "later":
        change_newest(lambda record: say_later(record, arguments.reason))
    elif arguments.command == "incomplete":
        change_newest(lambda record: say_incomplete(record, arguments.part, arguments.reason))
    else:
        change_newest(lambda record: record.setdefault("notes", []).append(arguments.text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
