# SPDX-License-Identifier: Apache-2.0
"""Makes run folders for pages: the program trains one run; the others are copies of it with other
names."""
import json
import pathlib
import shutil
import subprocess

SETTINGS = ["data.train_size=640", "data.test_size=128", "train.epochs=4", "expect.test_acc_min=0",
            "log.every_steps=2"]
HOSTILE = '<script>hacked = true</script><img src=x onerror="hacked = true">'


def train(program, root, folder, *settings):
    """Returns the run folder of a short training below folder/runs."""
    config = root / "experiments/configs/quickstart.yaml"
    done = subprocess.run([str(program), "run", str(config), *SETTINGS, *settings], cwd=folder,
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    runs = [path for path in pathlib.Path(folder).glob("runs/*/*") if not path.is_symlink()]
    return max(runs, key=lambda path: path.stat().st_mtime)


def copy_run(source, target, **changes):
    """Copies a run folder and changes some values of its summary, status or config."""
    target.mkdir(parents=True)
    for name in ("config.yaml", "env.json", "status.json", "summary.json", "epochs.csv",
                 "report.html", "layers.csv", "metrics.jsonl", "log.txt"):
        if (source / name).exists():
            shutil.copy(source / name, target / name)
    for name in ("summary.json", "status.json", "env.json"):
        content = json.loads((target / name).read_text())
        content.update(changes.get(name.split(".")[0], {}))
        (target / name).write_text(json.dumps(content))
    config = (target / "config.yaml").read_text()
    for old, new in changes.get("config", []):
        assert old in config, old
        config = config.replace(old, new)
    (target / "config.yaml").write_text(config)
    return target


def many_runs(source, folder):
    """Makes six runs for the index page: different accuracies and learning rates, hostile names,
    one unreadable run, one failed run. Returns the accuracy of each run that has one."""
    accuracies = {"alpha": 9.5, "beta": 98.25, "gamma": 100.0, HOSTILE.replace("/", "&"): 71.0}
    for number, (name, accuracy) in enumerate(accuracies.items()):
        run = f"2026-01-0{number + 1}_000000-s1"
        copy_run(source, folder / name / run,
                 summary={"name": name.replace("&", "/"), "id": run, "acc": accuracy,
                          "tags": "first, " + HOSTILE if number == 3 else "first",
                          "note": HOSTILE if number == 3 else "two words" if number == 1 else ""},
                 env={"project": {"path": "/p", "branch": "topic", "commit": "0123456789abcdef",
                                  "dirty": number == 0}},
                 config=[("lr: 0.05", f"lr: 0.0{number + 1}")])
    failed = copy_run(source, folder / "failed #1?" / "2026-01-05_000000-s1",
                      summary={"name": "failed #1?", "acc": None},
                      status={"state": "FAILED", "reason": "the loss is not finite",
                              "exit_code": 1})
    (failed / "epochs.csv").unlink()
    broken = folder / "broken" / "2026-01-06_000000-s1"
    broken.mkdir(parents=True)
    (broken / "config.yaml").write_text("name: broken\n")
    (broken / "summary.json").write_text('{"name": ')
    return list(accuracies.values())
