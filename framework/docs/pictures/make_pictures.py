#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the two pictures of the README with the program: make_pictures.py PROGRAM

ladder.svg is a plot of `convscope bench conv2d --ladder winograd --threads 1`. look.svg holds a
screenshot of the page that `convscope look winograd` writes. The screenshot needs Chromium. Git keeps
no binary files here, so an SVG holds the PNG as text.
"""

import base64
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent
WIDTH, HEIGHT = 1150, 720
MOMENT = 2400  # look.svg shows this step of 7733, which sums the first tile's first products
# This style hides the title and the remarks above the player.
GO_THERE = f"""<style>header p, #played h2 {{ display: none }}</style>
<script>
addEventListener("load", () => {{
  const slider = document.getElementById("at");
  slider.value = {MOMENT};
  slider.dispatchEvent(new Event("input"));
}});
</script>"""


def call(*words, cwd):
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"expected {words[0]} {words[1]} to end with 0, got: {done.stderr[-600:]}")


def chunks(png):
    at = 8
    while at < len(png):
        size = struct.unpack(">I", png[at : at + 4])[0]
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        at += 12 + size


def unfiltered(data, width, height, depth):
    """Returns the rows of pixels of a PNG, decoded from the PNG's row filters."""
    stride, rows = width * depth, []
    before = bytearray(stride)
    for y in range(height):
        kind, *row = data[y * (stride + 1) : (y + 1) * (stride + 1)]
        for i in range(stride):
            left = row[i - depth] if i >= depth else 0
            up, corner = before[i], before[i - depth] if i >= depth else 0
            if kind == 1:
                guess = left
            elif kind == 2:
                guess = up
            elif kind == 3:
                guess = (left + up) // 2
            elif kind == 4:
                guess = min(
                    (left, up, corner), key=lambda one: abs(left + up - corner - one)
                )
            else:
                guess = 0
            row[i] = (row[i] + guess) & 255
        rows.append(row)
        before = row
    return rows


def smaller(png):
    """Returns the picture with at most 256 colours."""
    parts = list(chunks(png))
    width, height, bits, colour = struct.unpack(">IIBB", parts[0][1][:10])
    if bits != 8 or colour not in (2, 6):
        sys.exit(f"expected a PNG of 8 bits in RGB, got {bits} bits, type {colour}")
    depth = 3 if colour == 2 else 4
    data = zlib.decompress(b"".join(body for kind, body in parts if kind == b"IDAT"))
    rows = unfiltered(data, width, height, depth)
    for shift in range(8):  # coarser colours until 256 are enough
        low = (1 << shift) - 1
        table, out = {}, bytearray()
        for row in rows:
            out.append(0)
            for x in range(0, width * depth, depth):
                rgb = tuple(min(255, value | low) for value in row[x : x + 3])
                out.append(table.setdefault(rgb, len(table)) & 255)
        if len(table) <= 256:
            break

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    return (
        png[:8]
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
        + chunk(b"PLTE", b"".join(bytes(rgb) for rgb in table))
        + chunk(b"IDAT", zlib.compress(bytes(out), 9))
        + chunk(b"IEND", b"")
    )


def look(program, folder):
    call(program, "look", "winograd", cwd=folder)
    page = folder / "look-winograd.html"
    page.write_text(page.read_text().replace("</body>", GO_THERE + "</body>"))
    call(
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder}/profile",
        f"--window-size={WIDTH},{HEIGHT}",
        "--screenshot=look.png",
        page.as_uri(),
        cwd=folder,
    )
    text = base64.b64encode(smaller((folder / "look.png").read_bytes())).decode()
    lines = "\n".join(text[i : i + 96] for i in range(0, len(text), 96))
    (HERE / "look.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}">\n<title>convscope look winograd, step {MOMENT}</title>\n'
        f'<image width="{WIDTH}" height="{HEIGHT}" href="data:image/png;base64,\n{lines}"/>\n</svg>\n'
    )


def ladder(program, folder):
    words = ["bench", "conv2d", "--ladder", "winograd", "--threads", "1", "--json", "ladder.json"]
    call(program, *words, cwd=folder)
    words = ["plot", "ladder.json", "--kind", "ladder", "--width", "800"]
    call(program, *words, "-o", str(HERE / "ladder.svg"), cwd=folder)


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as name:
        look(program, pathlib.Path(name))
        ladder(program, pathlib.Path(name))


if __name__ == "__main__":
    main()
