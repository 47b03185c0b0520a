# SPDX-License-Identifier: Apache-2.0
"""Checks for every generated page. Each check returns a list of problems, which is empty for a
correct page."""
LEAST_LETTER_PX = 12
LEAST_CURVE_PX = 60
COLOR_TOLERANCE = 24  # the edges of a line are blurred
LEAST_CONTRAST = 4.5  # WCAG 2.1, level AA, for text

LETTERS = """
const small = [], seen = new Set();
for (const box of document.querySelectorAll("body *")) {
  const texts = [...box.childNodes].filter(n => n.nodeType === 3 && n.data.trim());
  if (!texts.length || box.closest(".hidden,[hidden],script,style,desc,title")) continue;
  if (box.closest("details:not([open])") && box.tagName !== "SUMMARY") continue;
  let size = parseFloat(getComputedStyle(box).fontSize);
  const svg = box.closest("svg");
  if (svg) size *= svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  const what = size.toFixed(1) + " px: " + texts[0].data.trim().slice(0, 40);
  if (size < LEAST - 0.05 && !seen.has(what)) { seen.add(what); small.push(what); }
}
return small;
"""

CONTRAST = """
const parts = text => text.match(/[\\d.]+/g).map(Number);
const light = rgb => {
  const [r, g, b] = rgb.map(v => v / 255).map(v =>
    v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const bad = new Set();
for (const box of document.querySelectorAll("body *")) {
  if (![...box.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
  if (box.closest("svg,.hidden,[hidden],script,style,details:not([open])")) continue;
  let at = box, ground = [255, 255, 255];
  for (; at; at = at.parentElement) {
    const rgb = parts(getComputedStyle(at).backgroundColor);
    if (rgb.length === 3 || rgb[3] > 0) { ground = rgb.slice(0, 3); break; }
  }
  const a = light(parts(getComputedStyle(box).color).slice(0, 3)), b = light(ground);
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < LEAST) bad.add(ratio.toFixed(2) + ": " + box.tagName + " " + box.className);
}
return [...bad];
"""

STRUCTURE = """
const bad = [];
if (!document.documentElement.lang) bad.push("no language");
if (document.querySelectorAll("h1").length !== 1) bad.push("not one h1");
let level = 1;
for (const head of document.querySelectorAll("h1,h2,h3,h4")) {
  const own = Number(head.tagName[1]);
  if (own > level + 1) bad.push("heading skips a level: " + head.textContent);
  level = own;
}
for (const svg of document.querySelectorAll("svg")) {
  const title = [...svg.children].find(c => c.tagName === "title");
  const named = svg.getAttribute("role") === "img" && title && title.textContent;
  if (!named) bad.push("svg without a name");
}
for (const link of document.querySelectorAll('a[href^="#"]')) {
  const aim = document.getElementById(decodeURIComponent(link.hash.slice(1)));
  if (!aim) bad.push("link to nothing: " + link.hash);
}
const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) bad.push("id twice: " + id);
for (const field of document.querySelectorAll("input")) {
  if (!field.labels.length) bad.push("field without a label: " + field.id);
}
return bad;
"""

# Finds the line of a series: a path whose title is the name of the series. First removes marks and
# bands, which have the same colour as the line.
CURVE = """
for (const mark of document.querySelectorAll('#curves path:not([fill="none"])')) mark.remove();
const lines = [...document.querySelectorAll('#curves path[stroke][fill="none"]')].filter(path =>
  path.querySelector("title")?.textContent.trim().split(/[ ,]/).includes(NAME));
return lines.map(line => {
  const box = line.getBoundingClientRect();
  return {color: line.getAttribute("stroke"), x: box.x + scrollX - 2, y: box.y + scrollY - 2,
          width: box.width + 4, height: box.height + 4};
});
"""


def small_letters(page):
    return page.evaluate(LETTERS.replace("LEAST", str(LEAST_LETTER_PX)))


def weak_contrast(page):
    return page.evaluate(CONTRAST.replace("LEAST", str(LEAST_CONTRAST)))


def structure(page):
    return page.evaluate(STRUCTURE)


def overflow(page, width):
    """The page itself must not scroll sideways; boxes in it may."""
    wide = page.evaluate("document.documentElement.scrollWidth")
    return [f"the page is {wide} px wide on a screen of {width}"] if wide > width else []


def late(page, selector, screen):
    """Checks that the element begins at most `screen` pixels below the top of the page."""
    top = page.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().top + scrollY")
    return [f"{selector} begins {top:.0f} px below the top, expected {screen}"] if top > screen else []


def unseen_curves(page, name, count):
    """Checks that the lines called `name` in the figure of the loss and accuracy curves are visible
    in their colour."""
    lines = page.evaluate(CURVE.replace("NAME", repr(name)))
    if len(lines) != count:
        return [f"{len(lines)} lines of {name}, expected {count}"]
    found = []
    for line in lines:
        color = line.pop("color")
        near = " && ".join(
            f"Math.abs({channel} - {int(color[at:at + 2], 16)}) <= {COLOR_TOLERANCE}"
            for channel, at in (("r", 1), ("g", 3), ("b", 5)))
        seen = page.browser.count_pixels(page.screenshot(clip=line), near)
        if seen < LEAST_CURVE_PX:
            found.append(f"{seen} pixels of {color} where the line of {name} should be")
    return found
