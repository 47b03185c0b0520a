# SPDX-License-Identifier: Apache-2.0
"""Makes the pages of the notebooks, with the outputs of their cells.

experiments/notebooks/run_notebooks.py runs the notebooks in their Python environment, and runs a notebook
again only when the notebook or the library has changed. If the environment cannot be made, the pages show
the cells without outputs, and the printed count says so.
"""

import hashlib
import html
import json
import os
import pathlib
import re
import subprocess
import sys

PLACE = "CONVSCOPE-HTML-{}"


def environment_of(program):
    """Returns the environment variables that the kernel needs, as `notebook --paths` prints it."""
    text = subprocess.run(
        [program, "notebook", "--paths"], capture_output=True, text=True, check=True
    ).stdout
    paths = dict(line.split("=", 1) for line in text.strip().split("\n"))
    return {
        "CONVSCOPE_INCLUDE": paths["CPLUS_INCLUDE_PATH"],
        "CONVSCOPE_LIBRARY": paths["CONVSCOPE_LIBRARY"],
    }


def run(repository, program, build):
    """Runs the notebooks and stores them in build/notebooks. Returns the errors, as sentences."""
    environment = repository.root / "build/notebooks/env"
    set_up = repository.root / "experiments/notebooks/set_up.py"
    made = subprocess.run(
        [sys.executable, str(set_up), "--packages", "--environment", str(environment)],
        capture_output=True,
        text=True,
    )
    if made.returncode != 0:
        return [f"notebooks are shown without outputs: {(made.stderr or made.stdout).strip()}"]
    paths = environment_of(program)
    library = pathlib.Path(paths["CONVSCOPE_LIBRARY"]).resolve()
    folder = build / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    wrong = []
    for name in repository.notebooks():
        path = repository.root / name
        stamp = hashlib.sha256(
            path.read_bytes() + str(library.stat().st_mtime).encode()
        ).hexdigest()
        done, kept = folder / path.name, folder / (path.stem + ".stamp")
        if done.is_file() and kept.is_file() and kept.read_text() == stamp:
            continue
        ran = subprocess.run(
            [
                str(environment / "bin/python"),
                str(path.parent / "run_notebooks.py"),
                "--save",
                str(folder),
                str(path),
            ],
            capture_output=True,
            text=True,
            env={**os.environ, **paths, "OMP_WAIT_POLICY": "passive"},
        )
        print(ran.stdout.strip().split("\n")[0], flush=True)
        if ran.returncode != 0:
            wrong.append(f"{name}: {ran.stdout.strip()} {ran.stderr.strip()[-500:]}")
        else:
            kept.write_text(stamp)
    return wrong


def output_html(output):
    kind = output["output_type"]
    if kind == "stream":
        return f'<pre class="{output["name"]}">{html.escape("".join(output["text"]))}</pre>'
    if kind == "error":
        text = f'{output["ename"]}: {output["evalue"]}'
        return f'<pre class="stderr">{html.escape(text)}</pre>'
    data = output["data"]
    for mime in ("image/svg+xml", "text/html"):
        if mime in data:
            return "".join(data[mime])
    if "image/png" in data:
        return f'<img alt="" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    return f'<pre>{html.escape("".join(data.get("text/plain", "")))}</pre>'


def page(repository, pages, name, build, store):
    """Writes the page of a notebook, and returns true if the page has outputs. HTML goes into `store`, because
    Markdown would change the HTML."""
    done = build / "notebooks" / os.path.basename(name)
    ran = done.is_file()
    notebook = json.loads(done.read_text() if ran else repository.text(name))
    stem = pathlib.PurePosixPath(name).stem
    parts = []
    for number, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(pages.converted(source, name))
            continue
        parts.append(f"```cpp\n{source.rstrip()}\n```")
        if cell.get("outputs"):
            key = f"{stem}-{number}"
            body = "".join(output_html(output) for output in cell["outputs"])
            # An id inside of a figure is unique in the figure, but not on the page.
            body = re.sub(r'\b(id="|url\(#|href="#)', rf"\g<1>{key}-", body)
            store[key] = f'<div class="output">{body}</div>'
            parts.append(PLACE.format(key))
    pages.write(name[:-6] + ".md", "\n\n".join(parts) + "\n")
    return ran
