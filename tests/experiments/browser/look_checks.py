# SPDX-License-Identifier: Apache-2.0
"""Checks for a page of `convscope look`. Each check returns a list of problems, which is empty for
a correct page. The checks compute results, cache state and counts again from the inputs on the
page."""
import math
import re

DATA = """
const {arrays, data, total, wrong} = window.look;
return {total, wrong, problem: data.problem, direction: data.direction, textbook: data.textbook,
        lesson: data.lesson, blocks: data.blocks, places: data.places, sources: data.sources,
        products: data.all_products,
        arrays: arrays.map(a => ({name: a.name, sizes: a.sizes, bytes: a.bytes, lies: a.lies,
                                  start: [...a.start]}))};
"""
EVENTS = """
const {data} = window.look, bytes = text => [...atob(text)].map(c => c.charCodeAt(0));
const kind = bytes(data.kind), which = bytes(data.which), index = bytes(data.index);
const values = new Float32Array(Uint8Array.from(bytes(data.value)).buffer);
return kind.map((k, i) => [k, which[i], index[2 * i] + 256 * index[2 * i + 1], values[i]]);
"""
STATE = """
const {arrays, at} = window.look;
return JSON.stringify([at, arrays.map(a => [[...a.values], [...a.reads], [...a.writes]]),
  document.getElementById("arrays").innerHTML, document.querySelector(".facts").innerText,
  document.getElementById("now").innerText, document.getElementById("where").innerText,
  document.querySelector("#code .on")?.innerText, document.getElementById("file").innerText,
  document.getElementById("steps").innerHTML]);
"""
STEP, READ, WRITE, SUM = range(4)


def data_of(page):
    return page.evaluate(DATA)


def state_of(page):
    return page.evaluate(STATE)


def go(page, at):
    """Moves the page to event `at` by the slider."""
    page.evaluate(f"""
        const slider = document.getElementById("at");
        slider.value = {at}; slider.dispatchEvent(new Event("input")); return 0;""")


def click(page, name, times=1):
    page.evaluate(f"for (let i = 0; i < {times}; ++i) document.getElementById('{name}').click()")


def sizes_of(problem):
    """Returns the numbers in a problem's text, and P and Q."""
    def two(text):
        parts = [int(part) for part in text.split("x")]
        return parts if len(parts) == 2 else parts * 2

    fields = dict(part.split("=") for part in problem.split(","))
    z = {key: int(fields[key]) for key in "nchwkrs"}
    z["groups"] = int(fields["groups"])
    z["stride"], z["dilation"] = two(fields["stride"]), two(fields["dilation"])
    pads = [int(part) for part in fields["pad"].split("x")]
    z["pad"] = {1: pads * 4, 2: [pads[0], pads[0], pads[-1], pads[-1]], 4: pads}[len(pads)]
    z["p"] = (z["h"] + z["pad"][0] + z["pad"][1] - z["dilation"][0] * (z["r"] - 1) - 1) // \
        z["stride"][0] + 1
    z["q"] = (z["w"] + z["pad"][2] + z["pad"][3] - z["dilation"][1] * (z["s"] - 1) - 1) // \
        z["stride"][1] + 1
    return z


def products_of(z):
    """Yields the indices (in x, in w, in y) of each product whose element of x is inside the
    image."""
    depth, kernels = z["c"] // z["groups"], z["k"] // z["groups"]
    for n in range(z["n"]):
        for k in range(z["k"]):
            for p in range(z["p"]):
                for q in range(z["q"]):
                    y = ((n * z["k"] + k) * z["p"] + p) * z["q"] + q
                    for c in range(depth):
                        for r in range(z["r"]):
                            for s in range(z["s"]):
                                h = p * z["stride"][0] - z["pad"][0] + r * z["dilation"][0]
                                v = q * z["stride"][1] - z["pad"][2] + s * z["dilation"][1]
                                if 0 <= h < z["h"] and 0 <= v < z["w"]:
                                    plane = n * z["c"] + k // kernels * depth + c
                                    yield ((plane * z["h"] + h) * z["w"] + v,
                                           ((k * depth + c) * z["r"] + r) * z["s"] + s, y)


def stored_places(data, z):
    """Returns, for each stored number of block-sparse weights, the index of its element in the
    dense w."""
    columns = z["c"] // z["groups"] * z["r"] * z["s"]
    _, rows, width, _ = next(a["sizes"] for a in data["arrays"] if a["name"] in ("w", "dw"))
    places = []
    for block in data["blocks"]:
        _, k, _, c, r, s = map(int, re.findall(r"\d+", block))
        first = (c * z["r"] + r) * z["s"] + s
        places += [(k + i) * columns + first + j for i in range(rows) for j in range(width)]
    return places


def expected_result(data):
    """Computes y, dx or dw from the inputs on the page, by the seven nested loops of the
    definition."""
    z = sizes_of(data["problem"])
    start = {a["name"]: a["start"] for a in data["arrays"]}
    elements = {"x": z["n"] * z["c"] * z["h"] * z["w"],
                "w": z["k"] * z["c"] // z["groups"] * z["r"] * z["s"],
                "y": z["n"] * z["k"] * z["p"] * z["q"]}
    names = {"forward": ("x", "w", "y"), "backward_data": ("dy", "w", "dx"),
             "backward_weight": ("x", "dy", "dw")}[data["direction"]]
    arrays = {name.removeprefix("d"): list(start[name]) for name in names[:2]}
    out = names[2].removeprefix("d")
    places = stored_places(data, z) if data["blocks"] else None
    if places and "w" in arrays:
        dense = [0.0] * elements["w"]
        for place, number in zip(places, arrays["w"]):
            dense[place] = number
        arrays["w"] = dense
    result = [0.0] * elements[out]
    for x, w, y in products_of(z):
        at = {"x": x, "w": w, "y": y}
        first, second = (arrays[name][at[name]] for name in arrays)
        result[at[out]] += first * second
    return names[2], [result[place] for place in places] if places and out == "w" else result


def end_problems(page):
    """Checks that the result after the last event of the page equals that of the seven nested
    loops."""
    data = data_of(page)
    click(page, "end")
    name, expected = expected_result(data)
    seen = page.evaluate(f"return [...look.arrays.find(a => a.name === '{name}').values];")
    tolerance = 1e-4 if data["lesson"].startswith("fft") else 0
    bad = [f"{name}[{i}] is {a}, expected {b}" for i, (a, b) in enumerate(zip(seen, expected))
           if a is None or abs(a - b) > tolerance]
    if len(seen) != len(expected):
        bad.append(f"{len(seen)} elements of {name}, expected {len(expected)}")
    shown = page.evaluate(f"""
        const array = look.arrays.find(a => a.name === '{name}');
        return array.cells.map(cell => cell.box.textContent);""")
    bad += [f"{name}[{i}] is shown as {text!r}, expected {number}"
            for i, (text, number) in enumerate(zip(shown, expected))
            if not re.fullmatch(r"-?\d+(\.\d+)?", text) or abs(float(text) - number) > 0.006]
    return bad[:5]


def replay_problems(page):
    """Checks that a step forward followed by a step back changes nothing, and that the slider reaches
    the same states."""
    total, bad = data_of(page)["total"], []
    if page.evaluate("look.wrong.length"):
        bad.append("the record does not fit: " + page.evaluate("look.wrong[0]"))
    for at in sorted({0, 1, total // 7, total // 3, total // 2, 5 * total // 6, total - 6}):
        go(page, 0)
        go(page, at)
        before = state_of(page)
        click(page, "step", 5)
        if page.evaluate("look.at") != at + 5:
            bad.append(f"5 steps from {at} lead to {page.evaluate('look.at')}")
        after = state_of(page)
        click(page, "back", 5)
        if state_of(page) != before:
            bad.append(f"5 steps forward and back at {at} change the page")
        click(page, "end")
        go(page, at + 5)
        if state_of(page) != after:
            bad.append(f"back from the end to {at + 5} differs from 5 steps at {at}")
    return bad


def counted(page, events, arrays, at, size, ways):
    """Returns misses and hits after the first `at` events, for a cache with lines of 64 bytes that
    evicts the least recently used line."""
    lines = size // 64
    ways = min(ways or lines, lines)
    first, address = [], 0
    for array in arrays:
        first.append(address)
        if array["lies"] == "memory":
            address += math.ceil(math.prod(array["sizes"]) * array["bytes"] / 64) * 64
    sets, misses, hits, touched = [[] for _ in range(lines // ways)], 0, 0, set()
    for kind, which, index, _ in events[:at]:
        if kind not in (READ, WRITE) or arrays[which]["lies"] != "memory":
            continue
        line = (first[which] + index * arrays[which]["bytes"]) // 64
        touched.add(line)
        own = sets[line % len(sets)]
        if line in own:
            hits += 1
            own.remove(line)
        else:
            misses += 1
            del own[:max(0, len(own) - ways + 1)]
        own.append(line)
    return misses, hits, len(touched)


def cache_problems(page):
    data, events, bad = data_of(page), page.evaluate(EVENTS), []
    for size, ways in ((128, 0), (512, 0), (512, 2), (1024, 8), (256, 1), (32768, 0)):
        page.evaluate(f"""
            for (const [id, value] of [["cache", {size}], ["ways", {ways}]]) {{
              const field = document.getElementById(id);
              field.value = value; field.dispatchEvent(new Event("change"));
            }} return 0;""")
        for at in (len(events) // 3, len(events)):
            go(page, at)
            seen = page.evaluate(
                "return [look.cache.loads, look.cache.hits, look.cache.touched.size];")
            expected = counted(page, events, data["arrays"], at, size, ways)
            if tuple(seen) != expected:
                bad.append(f"cache of {size} bytes, {ways} ways, after {at} events: misses, hits "
                           f"and lines {seen}, expected {expected}")
    return bad


def line_problems(page):
    """Checks that the marked line is the source line of the last event, and that it contains
    code."""
    data, bad = data_of(page), []
    for at in range(1, data["total"] + 1, max(1, data["total"] // 60)):
        go(page, at)
        seen = page.evaluate("""
            const row = document.querySelector("#code .on"), code = document.getElementById("code");
            const box = row.getBoundingClientRect(), frame = code.getBoundingClientRect();
            return [document.getElementById("file").textContent, row.textContent,
                    box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1];""")
        number = re.match(r"\d+", seen[1]).group()
        text = seen[1][len(number):]
        file, line = page.evaluate(f"return look.data.places[atob(look.data.place).charCodeAt({at - 1})];")
        source = data["sources"][file]
        if (source["file"], line) != (seen[0], int(number)):
            bad.append(f"event {at} marks {seen[0]}:{number}, expected {source['file']}:{line}")
        if not text.strip() or text.strip().startswith("//"):
            bad.append(f"event {at} marks a line without code: {text!r}")
        if not seen[2]:
            bad.append(f"event {at}: the marked line is out of sight")
    return bad
