// SPDX-License-Identifier: Apache-2.0
// index_script.cpp: the script that searches and sorts the table of the index page. A column's head
// has its key in the attribute data-k, a number has its value in data-v, and a row has its settings
// in data-c.
#include "experiments/report/index/index_script.h"

namespace convscope {

const char* const kIndexScript = R"JS(
"use strict";
(() => {
const table = document.getElementById("runs");
if (!table) return;
const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
const box = document.getElementById("search"), count = document.getElementById("count");
const keys = heads.map(head => head.dataset.k);
const also = {tag: "tags", run: "name", accuracy: "acc", git: "project"};
// More rows than these are drawn on demand: to lay out a thousand takes a second.
const most = 200;
let all = false, terms = [];
const more = document.getElementById("more");
let entries = [...body.rows].map((row, place) => {
  const values = new Map(), numbers = new Map();
  [...row.cells].forEach((cell, i) => {
    values.set(keys[i], cell.textContent.toLowerCase());
    if (cell.dataset.v) numbers.set(keys[i], Number(cell.dataset.v));
  });
  for (const line of (row.dataset.c || "").split("\n")) {
    const at = line.indexOf("=");
    if (at < 0) continue;
    const key = line.slice(0, at).toLowerCase(), value = line.slice(at + 1).toLowerCase();
    for (const name of [key, key.slice(key.lastIndexOf(".") + 1)]) {
      if (!values.has(name)) values.set(name, value);
      if (!numbers.has(name) && value !== "" && !isNaN(value)) numbers.set(name, Number(value));
    }
  }
  const text = (row.textContent + "\n" + (row.dataset.c || "")).toLowerCase();
  return {row, place, values, numbers, text};
});
// lenet -sgd model:resnet18 acc>98 note:"two words"
function termsOf(query) {
  const found = [];
  for (const [, not, key, sign, quoted, word] of query.toLowerCase().matchAll(
      /(-?)(?:([\w.]+)([:<>]))?(?:"([^"]*)"?|(\S+))/g)) {
    const wanted = quoted ?? word;
    const name = also[key] || key;
    found.push(entry => {
      let fits;
      if (!key) fits = entry.text.includes(wanted);
      else if (sign === ":") {
        const value = entry.values.get(name);
        fits = value === undefined ? !entries.some(e => e.values.has(name)) &&
          entry.text.includes(key + ":" + wanted) : value.includes(wanted);
      } else {
        const value = entry.numbers.get(name);
        fits = value !== undefined &&
          (sign === ">" ? value > Number(wanted) : value < Number(wanted));
      }
      return fits !== (not === "-");
    });
  }
  return found;
}
function draw() {
  let found = 0;
  for (const entry of entries) {
    const fits = terms.every(term => term(entry));
    if (fits) ++found;
    const hidden = !fits || (!all && found > most);
    if (entry.row.hidden !== hidden) entry.row.hidden = hidden;
  }
  count.textContent = (found === entries.length ? "" : found + " of ") + entries.length +
    (entries.length === 1 ? " run" : " runs");
  more.hidden = all || found <= most;
  more.textContent = "The first " + most + " are shown: show all " + found;
}
function search() {
  terms = termsOf(box.value);
  all = false;
  draw();
  try {
    history.replaceState(null, "", box.value ? "#q=" + encodeURIComponent(box.value) : "#");
  } catch (ignored) {}
}
function sort(column, descending) {
  const key = keys[column];
  const compare = heads[column].classList.contains("n")
    ? (a, b) => a - b : new Intl.Collator("en", {numeric: true}).compare;
  const valueOf = entry => heads[column].classList.contains("n")
    ? entry.numbers.get(key) : entry.values.get(key) || undefined;
  const ordered = entries.map(entry => ({entry, value: valueOf(entry)}));
  ordered.sort((a, b) => {
    if (a.value === undefined || b.value === undefined) {
      return (a.value === undefined) - (b.value === undefined) || a.entry.place - b.entry.place;
    }
    return (descending ? compare(b.value, a.value) : compare(a.value, b.value)) ||
      a.entry.place - b.entry.place;
  });
  entries = ordered.map(each => each.entry);
  body.append(...entries.map(entry => entry.row));
  draw();
  heads.forEach((head, i) => {
    if (i === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
}
heads.forEach((head, column) => {
  if (head.dataset.k === "curve") return;
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const now = head.getAttribute("aria-sort");
    sort(column, now ? now === "ascending" : head.classList.contains("n"));
  });
});
document.getElementById("finder").hidden = false;
if (location.hash.startsWith("#q=")) box.value = decodeURIComponent(location.hash.slice(3));
box.addEventListener("input", search);
more.addEventListener("click", () => { all = true; draw(); });
search();
})();
)JS";

}  // namespace convscope
