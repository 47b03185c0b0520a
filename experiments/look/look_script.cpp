// SPDX-License-Identifier: Apache-2.0
// look_script.cpp: replays a lesson on its page. `data` (look_data.cpp) holds the events of a
// recorder.
//
// at        number of executed events; go(target) executes or reverts the events in between
// value_of  the elements of each array after `at` events, with the counts of reads and writes
// cache     line numbers of each set, the most recently used last
// draw()    shows the state; it updates only cells that look different
#include "experiments/look/look_markup.h"

namespace convscope {

const char* const kLookScript = R"JS(
"use strict";
(() => {
const STEP = 0, READ = 1, WRITE = 2, SUM = 3, LINE_BYTES = 64;
const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const kind = bytes(data.kind), which = bytes(data.which), place = bytes(data.place);
const index = new Uint16Array(bytes(data.index).buffer);
const value = new Float32Array(bytes(data.value).buffer);
const total = kind.length;
const sums = column => {
  let sum = 0;
  return Int32Array.from(bytes(column), more => (sum += more));
};
const products = sums(data.products), scalings = sums(data.scalings);
const byId = id => document.getElementById(id);
const product = sizes => sizes.reduce((a, b) => a * b, 1);

// ---- the numbers at each point ----
let address = 0;
const arrays = data.arrays.map(array => {
  const size = product(array.sizes), start = new Float64Array(size).fill(NaN);
  (array.values || []).forEach((number, i) => { start[i] = Math.fround(number); });
  const inMemory = array.lies === "memory", first = address;
  if (inMemory) address += Math.ceil(size * array.bytes / LINE_BYTES) * LINE_BYTES;
  return {...array, size, start, values: start.slice(), first, inMemory,
    cells: [], reads: new Int32Array(size), writes: new Int32Array(size)};
});
const lineOf = (array, i) => Math.floor((array.first + i * array.bytes) / LINE_BYTES);

// What an event changes, so that it can be undone.
const before = new Float64Array(total);
const stepAt = new Int32Array(total), sumAt = new Int32Array(total);
let at = 0, reads = 0, writes = 0;

function redo(i) {
  const array = arrays[which[i]], element = index[i];
  if (kind[i] === READ) {
    ++reads;
    ++array.reads[element];
    if (Number.isNaN(array.values[element])) array.values[element] = value[i];
  } else if (kind[i] === WRITE) {
    ++writes;
    ++array.writes[element];
    array.values[element] = value[i];
  }
}
function undo(i) {
  const array = arrays[which[i]], element = index[i];
  if (kind[i] === READ) {
    --reads;
    --array.reads[element];
    array.values[element] = before[i];
  } else if (kind[i] === WRITE) {
    --writes;
    --array.writes[element];
    array.values[element] = before[i];
  }
}

// Once through all events: what stands before each, and whether what was read is what stands there.
const wrong = [];
{
  let step = -1, sum = -1;
  for (let i = 0; i < total; ++i) {
    if (kind[i] === STEP) {
      step = i;
      sum = -1;
    } else if (kind[i] === SUM) {
      sum = i;
    } else {
      const array = arrays[which[i]];
      before[i] = array.values[index[i]];
      if (kind[i] === READ && !Number.isNaN(before[i]) && before[i] !== value[i]) {
        wrong.push("event " + i + " read " + value[i] + " from " + nameOf(array, index[i]) +
          ", which holds " + before[i]);
      }
      const grows = kind[i] === WRITE && i > 0 && kind[i - 1] === READ &&
        which[i - 1] === which[i] && index[i - 1] === index[i];
      if (grows) sum = i;
      redo(i);
    }
    stepAt[i] = step;
    sumAt[i] = sum;
  }
  arrays.forEach(array => {
    array.most = {all: 1, reads: 1, writes: 1};
    for (let i = 0; i < array.size; ++i) {
      const most = array.most;
      most.all = Math.max(most.all, array.reads[i] + array.writes[i]);
      most.reads = Math.max(most.reads, array.reads[i]);
      most.writes = Math.max(most.writes, array.writes[i]);
    }
    array.readsAtEnd = array.reads.reduce((a, b) => a + b, 0);
    array.writesAtEnd = array.writes.reduce((a, b) => a + b, 0);
    array.last = array.values.slice();
    array.values.set(array.start);
    array.reads.fill(0);
    array.writes.fill(0);
  });
  reads = writes = 0;
}

// ---- the cache ----
let cache;
function emptyCache() {
  const lines = Number(byId("cache").value) / LINE_BYTES;
  const ways = Number(byId("ways").value) || lines;
  const inSet = Math.min(ways, lines);
  cache = {at: 0, inSet, sets: Array.from({length: lines / inSet}, () => []), touched: new Set(),
    loads: 0, hits: 0};
}
function passCache(i) {
  if (kind[i] !== READ && kind[i] !== WRITE) return;
  const array = arrays[which[i]];
  if (!array.inMemory) return;
  const line = lineOf(array, index[i]), set = cache.sets[line % cache.sets.length];
  const found = set.indexOf(line);
  cache.touched.add(line);
  if (found >= 0) {
    ++cache.hits;
    set.splice(found, 1);
  } else {
    ++cache.loads;
    if (set.length === cache.inSet) set.shift();
  }
  set.push(line);
}
function cacheUpTo(target) {
  if (cache.at > target) emptyCache();
  for (; cache.at < target; ++cache.at) passCache(cache.at);
}

// ---- words ----
const short = number => {
  if (Number.isNaN(number)) return "\u00b7";
  if (Number.isInteger(number) && Math.abs(number) < 1e5) return String(number);
  const size = Math.abs(number);
  const text = size < 1e-3 ? "0" : size >= 1e4 ? number.toExponential(0)
    : number.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
  return text === "-0.00" || text === "0.00" ? (number < 0 ? "-0" : "0") : text;
};
const long = number => String(Number.isInteger(number) ? number : Number(number.toPrecision(6)));
const spaced = number => String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");
function coordinates(array, i) {
  const out = [];
  for (let axis = array.sizes.length - 1; axis >= 0; --axis) {
    out.unshift(i % array.sizes[axis]);
    i = Math.floor(i / array.sizes[axis]);
  }
  return out;
}
function nameOf(array, i) { return array.name + "[" + coordinates(array, i).join(",") + "]"; }
const times = count => count === 1 ? "once" : count === 0 ? "never" : spaced(count) + " times";
function sentence(i) {
  if (i < 0) return "Nothing has run yet.";
  if (kind[i] === STEP) {
    return "Step: " + data.steps[which[i]] + (index[i] ? " (turn " + (index[i] + 1) + ")" : "");
  }
  if (kind[i] === SUM) return "The sum is now " + long(value[i]) + ".";
  const array = arrays[which[i]];
  return (kind[i] === READ ? "Reads " + nameOf(array, index[i]) + " = " : "Writes " +
    nameOf(array, index[i]) + " = ") + long(value[i]) + ".";
}

// Which thread of a block does event i: the one whose register or place in a tile is next to it.
function threadOf(i) {
  const isOwn = j => j >= 0 && j < total && kind[j] !== STEP && kind[j] !== SUM &&
    (arrays[which[j]].lies === "registers" ||
     (arrays[which[j]].lies === "shared memory" && kind[j] === WRITE));
  if (i < 0 || kind[i] === STEP) return "";
  const ways = kind[i] === WRITE && arrays[which[i]].inMemory ? [0, -1, -2] : [0, 1, 2, 3];
  for (const more of ways) {
    if (!isOwn(i + more)) continue;
    const [row, column] = coordinates(arrays[which[i + more]], index[i + more]);
    return "(" + row + ", " + column + ")";
  }
  return "";
}

// ---- what is drawn ----
const make = (tag, text, className) => {
  const out = document.createElement(tag);
  if (text !== undefined) out.textContent = text;
  if (className) out.className = className;
  return out;
};
function planeName(array, plane, leading) {
  const parts = [];
  let rest = plane;
  for (let axis = leading - 1; axis >= 0; --axis) {
    const size = array.sizes[axis], i = rest % size;
    rest = Math.floor(rest / size);
    if (size > 1) parts.unshift(((array.axes[axis] || "") + " " + i).trim());
  }
  return parts.join(", ");
}
// The last two axes are a grid; the parts of complex numbers stand side by side.
function buildArray(array) {
  const sizes = array.sizes.slice();
  const merged = array.complex ? sizes.slice(0, -2).concat(sizes.at(-2) * 2) : sizes;
  const isBlocks = data.blocks.length && (array.name === "w" || array.name === "dw");
  if (isBlocks) merged.pop();
  const columns = merged.at(-1), rows = merged.length > 1 ? merged.at(-2) : 1;
  const leading = Math.max(0, merged.length - 2), planes = product(merged.slice(0, leading));
  const box = make("div", undefined, "array"), head = make("h3", array.name);
  head.append(make("small", " [" + array.sizes.join(",") + "] in " + array.lies + ": read " +
    times(array.readsAtEnd) + ", written " + times(array.writesAtEnd)));
  const all = make("div", undefined, "planes");
  all.tabIndex = 0;
  all.setAttribute("role", "group");
  all.setAttribute("aria-label", array.name);

  let widest = 1;
  for (const number of array.last) widest = Math.max(widest, short(number).length);
  for (const number of array.start) widest = Math.max(widest, short(number).length);
  for (let i = 0; i < total; ++i) {
    if (kind[i] === WRITE && arrays[which[i]] === array) {
      widest = Math.max(widest, short(value[i]).length);
    }
  }
  for (let plane = 0; plane < planes; ++plane) {
    const part = make("div", undefined, "plane");
    const name = isBlocks ? data.blocks[plane] : planeName(array, plane, leading);
    if (name) part.append(make("small", name));
    const grid = make("div", undefined, array.complex ? "grid pairs" : "grid");
    const width = Math.max(20, 7 * widest + 7);
    grid.style.gridTemplateColumns = "repeat(" + columns + "," + width + "px)";
    for (let i = 0; i < rows * columns; ++i) {
      const cell = make("span");
      cell.dataset.a = arrays.indexOf(array);
      cell.dataset.i = array.cells.length;
      array.cells.push({box: cell, text: null, look: null});
      grid.append(cell);
    }
    part.append(grid);
    all.append(part);
  }
  box.append(head, all);
  return box;
}
function drawCells() {
  const now = at - 1, looks = new Map();
  const key = (array, i) => array * 65536 + i;
  if (now >= 0) {
    for (let i = now, count = 0; i >= 0 && count < 1024; --i, ++count) {
      if (kind[i] === STEP || (kind[i] === WRITE && i < now)) break;
      if (kind[i] === READ) looks.set(key(which[i], index[i]), " o");
    }
    if (kind[now] === READ) looks.set(key(which[now], index[now]), " r");
    if (kind[now] === WRITE) looks.set(key(which[now], index[now]), " w");
  }
  const kept = new Set(cache.sets.flat()), heat = byId("heat").value;
  arrays.forEach((array, a) => {
    for (let i = 0; i < array.cells.length; ++i) {
      const cell = array.cells[i], text = short(array.values[i]);
      const touches = heat === "reads" ? array.reads[i] : heat === "writes" ? array.writes[i]
        : heat === "all" ? array.reads[i] + array.writes[i] : 0;
      const level = touches ? Math.ceil(4 * touches / (array.most[heat] || 1)) : 0;
      const look = (level ? "h" + level : "") + (looks.get(key(a, i)) || "") +
        (array.inMemory && kept.has(lineOf(array, i)) ? " k" : "");
      if (cell.text !== text) cell.box.textContent = cell.text = text;
      if (cell.look !== look) cell.box.className = cell.look = look;
    }
  });
}
let shownFile = -1, shownLine = null;
function drawLine() {
  const [file, line] = at ? data.places[place[at - 1]] : [data.places[0][0], 1];
  const code = byId("code");
  if (file !== shownFile) {
    shownFile = file;
    shownLine = null;
    byId("file").textContent = data.sources[file].file;
    code.replaceChildren(...data.sources[file].text.split("\n").map((text, i) => {
      const row = make("div");
      row.append(make("b", String(i + 1)), text);
      return row;
    }));
  }
  const row = code.children[line - 1];
  if (row === shownLine) return;
  if (shownLine) shownLine.className = "";
  shownLine = row;
  if (at) row.className = "on";
  const top = row.getBoundingClientRect().top - code.getBoundingClientRect().top;
  if (top < 20 || top > code.clientHeight - 40) code.scrollTop += top - code.clientHeight / 2;
}
function count(id, number, most, text, more, kindOfBar) {
  const out = byId(id);
  if (!out.firstChild) {
    const bar = make("span", undefined, "count");
    bar.append(make("i", undefined, kindOfBar));
    out.append(make("span"), bar, make("small"));
  }
  const [words, bar, small] = out.children;
  words.textContent = text;
  bar.firstChild.style.width = 100 * number / most + "%";
  small.textContent = more || "";
}
function draw() {
  cacheUpTo(at);
  const now = at - 1;
  byId("at").value = at;
  byId("where").textContent = spaced(at) + " of " + spaced(total);
  byId("now").textContent = sentence(now);
  const made = at ? products[now] : 0, scaled = at ? scalings[now] : 0;
  const most = Math.max(data.textbook, data.all_products, 1);
  count("products", made, most, spaced(made) + " of " + spaced(data.all_products),
    data.all_scalings && "by constants: " + spaced(scaled) + " of " + spaced(data.all_scalings));
  count("textbook", data.textbook, most, spaced(data.textbook), "this lesson makes " +
    (100 * data.all_products / data.textbook).toPrecision(3) + " % of them", "book");
  byId("sum").textContent = at && sumAt[now] >= 0 ? long(value[sumAt[now]]) : "none";
  byId("touches").textContent = spaced(reads) + ", " + spaced(writes);
  byId("lines").textContent = spaced(cache.touched.size) + " of " + spaced(address / LINE_BYTES);
  byId("loads").textContent = spaced(cache.loads) + ", " + spaced(cache.hits);
  byId("thread").textContent = threadOf(now) || "none";
  const step = at ? stepAt[now] : -1;
  [...byId("steps").querySelectorAll("[data-s]")].forEach(button => button.setAttribute(
    "aria-current", step >= 0 && which[step] === Number(button.dataset.s)));
  drawCells();
  drawLine();
}

// ---- how it is moved ----
function go(target) {
  target = Math.max(0, Math.min(total, target));
  while (at < target) redo(at++);
  while (at > target) undo(--at);
  draw();
}
let timer = 0, owed = 0, last = 0;
function pause() {
  cancelAnimationFrame(timer);
  timer = 0;
  byId("play").textContent = "Play";
}
function frame(time) {
  owed += Math.min(time - last, 250) * Number(byId("speed").value) / 1000;
  last = time;
  const steps = Math.floor(owed);
  owed -= steps;
  if (steps) go(at + steps);
  if (at === total) pause(); else timer = requestAnimationFrame(frame);
}
function play() {
  if (timer) return pause();
  if (at === total) go(0);
  byId("play").textContent = "Pause";
  owed = 1;
  last = performance.now();
  timer = requestAnimationFrame(frame);
}
const move = target => { pause(); go(target); };
function nextStep(wanted) {
  for (let i = 0; i < total; ++i) {
    const j = (at + i) % total;
    if (kind[j] === STEP && (wanted === undefined || which[j] === wanted)) return j + 1;
  }
  return at;
}
function previousStep() {
  for (let i = at - 2; i >= 0; --i) if (kind[i] === STEP) return i + 1;
  return 0;
}
const actions = {start: () => move(0), back: () => move(at - 1), play, step: () => move(at + 1),
  end: () => move(total)};
for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", action);
data.steps.forEach((name, s) => {
  const turns = kind.reduce((sum, each, i) => sum + (each === STEP && which[i] === s), 0);
  const button = make("button", name);
  button.type = "button";
  button.dataset.s = s;
  button.append(make("small", turns > 1 ? " x " + turns : ""));
  button.addEventListener("click", () => move(nextStep(s)));
  byId("steps").append(button);
});
byId("at").max = total;
byId("at").addEventListener("input", event => move(Number(event.target.value)));
for (const id of ["cache", "ways"]) {
  byId(id).addEventListener("change", () => { emptyCache(); draw(); });
}
byId("heat").addEventListener("change", draw);
byId("arrays").addEventListener("click", event => {
  const {a, i} = event.target.dataset;
  if (a === undefined) return;
  const array = arrays[a], number = array.values[i];
  byId("cell").textContent = nameOf(array, Number(i)) + (Number.isNaN(number) ? " is not set"
    : " = " + long(number)) + ", read " + times(array.reads[i]) + ", written " +
    times(array.writes[i]);
});
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("select,input,pre,.planes")) return;
  const keys = {ArrowLeft: actions.back, ArrowRight: actions.step, Home: actions.start,
    End: actions.end, n: () => move(nextStep()), p: () => move(previousStep())};
  const onButton = event.target.matches("button") && event.key === " ";
  const action = event.key === " " ? (onButton ? null : play) : keys[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

for (const array of arrays) if (array.size) byId("arrays").append(buildArray(array));
byId("threads").hidden = arrays.every(array => array.inMemory);
if (wrong.length) {
  byId("wrong").hidden = false;
  byId("wrong").textContent = "The replay does not fit what was recorded: " + wrong[0] + ".";
}
emptyCache();
draw();
// For tests, and for the console of who is curious.
window.look = {data, arrays, go, total, wrong, get at() { return at; },
  get cache() { return cache; }};
})();
)JS";

}  // namespace convscope
