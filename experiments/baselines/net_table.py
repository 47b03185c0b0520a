# SPDX-License-Identifier: Apache-2.0
"""Computes the medians and ratios of nets_vs_baselines.py, and its table. Uses only Python's standard library.

A turn is the measurement of one process of one system: {"ms": [...], "min": ms, "process": bytes, "before":
bytes}; `min` and `before` may be absent.
"""
import math
import statistics

OURS = "Convscope"
HEADER = ["case", "threads", "system", "median ms", "min ms", "ratio", "by min", "MiB", "before"]


def summary(turns):
    """Returns for one system the median of its turns' medians, the shortest run, and the largest memory."""
    return {"median_ms": statistics.median(statistics.median(turn["ms"]) for turn in turns),
            "min_ms": min(min([*turn["ms"], turn.get("min", math.inf)]) for turn in turns),
            "process_bytes": max(turn["process"] for turn in turns),
            "before_bytes": max(turn.get("before", 0) for turn in turns)}


def row_of(case, threads, turns):
    """Turns one case, {system: [turns]} with Convscope and at least one baseline, into a row of the JSON file.
    A ratio is a system's time / Convscope's time: above 1, Convscope is faster. The best baseline has the
    smallest median; `ratio_min` is the shortest time of any baseline / Convscope's shortest time."""
    systems = {name: summary(own_turns) for name, own_turns in turns.items()}
    ours = systems[OURS]
    for one in systems.values():
        one["ratio"] = one["median_ms"] / ours["median_ms"]
        one["ratio_min"] = one["min_ms"] / ours["min_ms"]
    baselines = [name for name in systems if name != OURS]
    best = min(baselines, key=lambda name: systems[name]["median_ms"])
    return {"case": case, "threads": threads, "systems": systems, "best_baseline": best,
            "ratio": systems[best]["ratio"],
            "ratio_min": min(systems[name]["ratio_min"] for name in baselines)}


def mebibytes(value):
    return f"{value / 2**20:.0f}" if value > 0 else "-"


def cells_of(row):
    """Returns a line for each system, first Convscope, then the baselines by median; * marks the best
    baseline."""
    baselines = sorted((name for name in row["systems"] if name != OURS),
                   key=lambda name: row["systems"][name]["median_ms"])
    for name in [OURS, *baselines]:
        one = row["systems"][name]
        ratio = ["", ""] if name == OURS else [f"{one['ratio']:.2f}", f"{one['ratio_min']:.2f}"]
        yield [row["case"], str(row["threads"]), name + (" *" if name == row["best_baseline"] else ""),
               f"{one['median_ms']:.3f}", f"{one['min_ms']:.3f}", *ratio,
               mebibytes(one["process_bytes"]), mebibytes(one["before_bytes"])]


def markdown(cells):
    return "| " + " | ".join(cells) + " |"


def head():
    return markdown(HEADER) + "\n|" + "---|" * len(HEADER)


def load_remark(others, threads, cores):
    """Returns a sentence when other programs left fewer than `threads` of the cores, else "". A system
    whose threads wait by spinning, as PyTorch's do, then loses most."""
    if others <= cores - threads + 0.3:
        return ""
    return (f"other programs kept {others:.1f} of {cores} cores busy, so {threads} "
            f"thread{'' if threads == 1 else 's'} did not have one core each: use the ratios of "
            "--threads 1 --clock cpu")


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def closing(rows):
    """Returns for each number of threads the ratio best baseline / Convscope over all cases, and how often
    Convscope is faster."""
    out = []
    for threads in sorted({row["threads"] for row in rows}):
        some = [row for row in rows if row["threads"] == threads]
        ratios = [row["ratio"] for row in some]
        worst = min(some, key=lambda row: row["ratio"])
        out.append(f"{threads} thread{'' if threads == 1 else 's'}: the best baseline of each case by "
                   f"Convscope: geometric mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f} "
                   f"({worst['case']}, {worst['best_baseline']}); ahead in "
                   f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)} cases")
    return "\n".join(out)
