#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads the files of run folders into pandas, and draws a figure with matplotlib: a starting point.

    python3 experiments/baselines/load_runs.py runs/ [-o accuracy.png]

From Python:
    from load_runs import load_runs
    epochs = load_runs("runs/")                    # a row for each epoch of each run
    masks = load_runs("runs/", table="sparsity.csv")    # or layers.csv, quant.csv

Every row has the columns run, name, seed, batch_size and acc of its run's summary.json.
"""
import argparse
import json
import pathlib
import sys

try:
    import pandas
except ImportError:
    sys.exit("load_runs.py: expected the Python package pandas, got none; "
             "try: pip install pandas matplotlib")


def run_folders(*paths):
    """Returns all folders at or below the paths that hold a run. Symbolic links such as `latest` are not counted
    again."""
    for path in map(pathlib.Path, paths):
        found = sorted(config.parent for config in path.rglob("config.yaml")
                       if not any(part.is_symlink() for part in [config.parent, *config.parents]))
        yield from found


def load_runs(*paths, table="epochs.csv"):
    """Returns a DataFrame with the rows that the file `table` has in the folders of all runs."""
    frames = []
    for folder in run_folders(*paths):
        try:
            rows = pandas.read_csv(folder / table)
            summary = json.loads((folder / "summary.json").read_text())
        except (OSError, ValueError) as error:  # an early stage of a run, or a broken file
            print(f"load_runs.py: {folder} is left out: {error}", file=sys.stderr)
            continue
        for column in ["acc", "batch_size", "seed", "name"]:
            rows.insert(0, f"run_{column}" if column in rows else column, summary.get(column))
        rows.insert(0, "run", str(folder))
        frames.append(rows)
    return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame()


def draw(epochs, path):
    """Draws test accuracy over the epochs: mean of the seeds, with a band of one standard deviation."""
    try:
        import matplotlib
    except ImportError:
        sys.exit("load_runs.py: expected the Python package matplotlib for the figure, got none; "
                 "try: pip install matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    markers = "os^DvPX*"
    for i, (name, rows) in enumerate(epochs.groupby("name")):
        by_epoch = rows.groupby("epoch")["test_acc"]
        mean, std = by_epoch.mean(), by_epoch.std().fillna(0)
        line, = axes.plot(mean.index, mean, marker=markers[i % len(markers)],
                          label=f"{name} (n={rows['run'].nunique()})")
        axes.fill_between(mean.index, mean - std, mean + std, alpha=0.2, color=line.get_color())
    axes.set_xlabel("epoch")
    axes.set_ylabel("right answers on the test images (%)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))  # next to the data
    figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", help="run folders, or folders of runs")
    parser.add_argument("-o", "--output", help="draw test accuracy to this file (png, pdf, svg)")
    arguments = parser.parse_args()
    epochs = load_runs(*arguments.runs)
    if epochs.empty:
        sys.exit(f"load_runs.py: expected runs with an epochs.csv below "
                 f"{', '.join(arguments.runs)}, got none")
    last = epochs.groupby("run").tail(1)
    shown = ["train_loss", "test_loss", "test_acc", "images_per_s"]
    print(last.groupby("name")[shown].agg(["mean", "std"]).round(4).to_string())
    if arguments.output:
        draw(epochs, arguments.output)
        print(arguments.output)


if __name__ == "__main__":
    main()
