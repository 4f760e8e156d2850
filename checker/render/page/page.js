// What the HTML report does: search, theme, and the program as a list of which only the visible
// rows exist. The page is complete without it but for the list.
"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const root = document.documentElement;
const ROW = 21;

// --- theme ---------------------------------------------------------------------------------------
const wanted = (() => {
  try { return localStorage.getItem("spmdlint-theme"); } catch { return null; }
})();
const dark = matchMedia("(prefers-color-scheme: dark)");
const apply = (name) => { root.dataset.theme = name; };
apply(wanted || (dark.matches ? "dark" : "light"));
dark.addEventListener("change", () => { if (!wanted) apply(dark.matches ? "dark" : "light"); });
$("theme").addEventListener("click", () => {
  const name = root.dataset.theme === "dark" ? "light" : "dark";
  apply(name);
  try { localStorage.setItem("spmdlint-theme", name); } catch { /* of a page from a file */ }
});

// --- types ---------------------------------------------------------------------------------------
const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escaped = (text) => text.replace(/[&<>"]/g, (c) => escapes[c]);
const shardAxis = /(@(?:\([^)]*\)|\w+))(?=[,\]])/g;
// What is before it, the kind, its arguments, what it may be besides, its axis.
const kindOnAxis = new RegExp(
  /(^| |\|)(Reduced|R|I|V|P|S|\?)(?=[@(| ]|$)/.source +
  /(\([^)]*\))?((?:\|[RI])?)(@(?:\([^)]*\)|[^ ]+))?/.source, "g");
const coloured = (type) => escaped(type).replace(shardAxis, '<span class="S">$1</span>')
  .replace(kindOnAxis, (all, before, kind, more, other, axis) =>
    `${before}<span class="${kind === "?" ? "U" : kind[0]}">${kind}${more || ""}${other || ""}` +
    `${axis || ""}</span>`);
for (const each of document.querySelectorAll(".type")) each.innerHTML = coloured(each.textContent);

// --- the program ---------------------------------------------------------------------------------
const data = JSON.parse($("data").textContent);
const listing = $("listing"), about = $("about"), chooser = $("input"), gradients = $("gradients");
let program = null, rows = [], shown = [], chosen = -1;

function decode(raw, index) {
  const { types, strings, meshes, layouts, layout } = raw;
  const out = { index, names: [], types, gradients: raw.gradients, strings, meshes, layouts, layout,
                rows: [], byOp: new Map(), madeBy: new Map() };
  let name = 0, run = 0;
  for (let value = 0; value < raw.types.length; ++value) {
    if (run < raw.names.length && raw.names[run][0] === value) name = raw.names[run++][1];
    out.names.push("%" + name);
    if (typeof name === "number") ++name;
  }
  for (const [value, text, label, place, scope] of raw.declared) {
    out.madeBy.set(value, out.rows.length);
    out.rows.push({ template: "\u0001 = " + raw.strings[text], values: [value], results: 1,
                    place: raw.strings[place], scope: raw.strings[scope],
                    label: raw.strings[label], op: -1 });
  }
  const functions = new Map(raw.functions.map(([first, text]) => [first, raw.strings[text]]));
  let at = 0, next = 0, op = 0, scope = null;
  while (at < raw.ops.length) {
    if (functions.has(op)) { scope = null; out.rows.push({ heading: functions.get(op), op: -1 }); }
    const template = raw.strings[raw.templates[raw.ops[at]]];
    const where = raw.locations[raw.ops[at + 1]];
    const first = next + raw.ops[at + 2], results = raw.ops[at + 3], count = raw.ops[at + 4];
    const values = [];
    for (let i = 0; i < count; ++i) values.push(first + raw.ops[at + 5 + i]);
    at += 5 + count;
    next = first + results;
    const place = raw.strings[where[0]], here = raw.strings[where[1]];
    if (here !== scope) { scope = here; if (here) out.rows.push({ heading: here, op: -1 }); }
    for (let i = 0; i < results; ++i) out.madeBy.set(first + i, out.rows.length);
    out.byOp.set(op, out.rows.length);
    out.rows.push({ template, values, results, place, scope: here, op });
    ++op;
  }
  for (const [at, severity, id] of raw.findings) {
    const row = out.rows[out.byOp.get(at)];
    if (row && !row.severity) { row.severity = severity; row.finding = id; }
  }
  return out;
}

const typeOf = (value) => program.strings[program.types[value]] || "type not known";
const gradientOf = (value) => program.strings[program.gradients[value]] || "no gradient";
const shownOf = (value) => gradients.checked ? gradientOf(value) : typeOf(value);
function textOf(row) {
  if (row.heading !== undefined) return row.heading;
  let i = 0;
  return row.template.replace(/\u0001/g, () => program.names[row.values[i++]]);
}
function htmlOf(row) {
  if (row.heading !== undefined) return `<span class="scope">${escaped(row.heading)}</span>`;
  let i = 0;
  const text = escaped(row.template).replace(/\u0001/g, () => {
    const value = row.values[i++];
    return `<span class="v" data-value="${value}">${escaped(program.names[value])}</span>`;
  });
  const result = row.results
    ? `  <span class="result">${coloured(shownOf(row.values[0]))}</span>` : "";
  const label = row.label ? `  <span class="place">${escaped(row.label)}</span>` : "";
  return text + label + result;
}

// --- which rank has which block ------------------------------------------------------------------
const MOST_BLOCKS = 16, MOST_RANKS = 8; // that are shown of a dimension, and in a cell
const EACH = {
  R: "the same", I: "the same", Reduced: "the same", "R|I": "the same", P: "an addend each",
  V: "one of its own each", "?": "not known",
};
const sizeOf = (axis) => axis[1].reduce((all, [size]) => all * size, 1);
// In ranks, what a coordinate on an axis is away from the first one.
function offsetOf(axis, coordinate) {
  let offset = 0;
  for (const [size, stride] of [...axis[1]].reverse()) {
    offset += (coordinate % size) * stride;
    coordinate = Math.floor(coordinate / size);
  }
  return offset;
}
// All coordinates on the axes, the last one fastest; at most so many.
function coordinatesOf(axes, most) {
  const count = axes.reduce((all, axis) => all * sizeOf(axis), 1), found = [];
  for (let i = 0; i < Math.min(count, most); ++i) {
    let rest = i;
    const at = axes.map(() => 0);
    for (let k = axes.length - 1; k >= 0; --k) {
      at[k] = rest % sizeOf(axes[k]);
      rest = Math.floor(rest / sizeOf(axes[k]));
    }
    found.push(at);
  }
  return { count, found };
}

function gridOf(value) {
  const layout = program.layouts[program.layout[value]];
  if (!layout) return "";
  const [offset, all] = program.meshes[layout[0]];
  const byName = (name) => all.find((axis) => axis[0] === name);
  const cut = layout[1].map((names, dim) => ({ dim, axes: names.map(byName) }))
    .filter((each) => each.axes.length);
  const others = layout[2].map(([name, kind]) => [byName(name), kind]);
  const down = cut.slice(0, 1), across = cut.slice(1);
  const axesOf = (dims) => dims.flatMap((each) => each.axes);
  const rowAxes = axesOf(down), columnAxes = axesOf(across), free = others.map(([axis]) => axis);
  const rowsAt = coordinatesOf(rowAxes, MOST_BLOCKS);
  const columnsAt = coordinatesOf(columnAxes, MOST_BLOCKS);
  const replicas = coordinatesOf(free, MOST_RANKS);
  const sum = (axes, at) => axes.reduce((total, axis, i) => total + offsetOf(axis, at[i]), 0);
  const named = (axes, at) => axes.map((axis, i) => `${escaped(axis[0])} ${at[i]}`).join(", ");
  const more = (all, text) => all.count > all.found.length ? text : "";
  const cell = (row, column) => {
    const first = offset + sum(rowAxes, row) + sum(columnAxes, column);
    const ranks = replicas.found.map((at) => first + sum(free, at)).sort((a, b) => a - b);
    return `<td>${ranks.join(" ")}${more(replicas, ` … (${replicas.count})`)}</td>`;
  };
  const head = columnsAt.found.map((at) => `<th>${named(columnAxes, at)}</th>`).join("");
  const body = rowsAt.found.map((row) => {
    const cells = columnsAt.found.map((column) => cell(row, column)).join("");
    return `<tr><th>${named(rowAxes, row)}</th>${cells}${more(columnsAt, "<td>…</td>")}</tr>`;
  });
  const words = [
    ...down.map((each) => `rows: dimension ${each.dim}`),
    ...across.map((each) => `columns: dimension ${each.dim}`),
    ...others.map(([axis, kind]) => `along ${escaped(axis[0])}: ${EACH[kind]} (${escaped(kind)})`),
  ];
  const name = `<span class="mono">${escaped(program.names[value])}</span>`;
  return `<figure class="grid"><figcaption>ranks that have a block of ${name}</figcaption><table>` +
    (columnAxes.length ? `<tr><th></th>${head}${more(columnsAt, "<th>…</th>")}</tr>` : "") +
    `${body.join("")}${more(rowsAt, "<tr><th>…</th></tr>")}</table>` +
    `<div class="more">${words.join(" · ")}</div></figure>`;
}
// Of what moves blocks, before and after.
function gridsOf(row) {
  if (!row.results) return "";
  const before = row.values[row.results], after = row.values[0];
  const moves = row.results === 1 && row.values.length === 2 &&
    program.layout[before] !== program.layout[after];
  return (moves ? gridOf(before) + '<span class="then">→</span>' : "") + gridOf(after);
}

// --- the list ------------------------------------------------------------------------------------
function draw() {
  const from = Math.max(0, Math.floor(listing.scrollTop / ROW) - 10);
  const to = Math.min(shown.length, from + Math.ceil(listing.clientHeight / ROW) + 20);
  let html = `<div style="height:${shown.length * ROW}px"></div>`;
  for (let i = from; i < to; ++i) {
    const row = rows[shown[i]];
    const selected = shown[i] === chosen;
    html += `<div class="row ${row.severity || ""}${selected ? " chosen" : ""}" role="option"` +
            ` aria-selected="${selected}"` +
            ` data-row="${shown[i]}" style="top:${i * ROW}px">${htmlOf(row)}</div>`;
  }
  listing.innerHTML = html;
}

function tell() {
  const row = rows[chosen];
  if (!row || row.heading !== undefined) {
    about.innerHTML =
      '<span class="more">Choose a line to see its types and where it comes from.</span>';
    return;
  }
  const lines = [...new Set(row.values)].map((value) => {
    const made = program.madeBy.get(value);
    const plain = escaped(program.names[value]);
    const name = made === undefined || made === chosen
      ? plain : `<a href="#" data-go="${made}">${plain}</a>`;
    const cells = [coloured(typeOf(value))];
    if (gradients.checked) cells.push(coloured(gradientOf(value)));
    return `<tr>${[name, ...cells].map((cell) => `<td class="mono">${cell}</td>`).join("")}</tr>`;
  });
  const used = [], own = row.values.slice(0, row.results);
  const reads = (other) =>
    other.values && other.values.slice(other.results).some((value) => own.includes(value));
  for (let i = chosen + 1; i < rows.length && used.length < 8; ++i)
    if (row.results && reads(rows[i]))
      used.push(`<a href="#" data-go="${i}">${escaped(textOf(rows[i]).slice(0, 40))}</a>`);
  about.innerHTML =
    `<div class="more">${row.place ? escaped(row.place) + " " : ""}` +
    `${row.scope ? "in " + escaped(row.scope) : ""}` +
    `${row.op >= 0 ? ` · <a href="#op-${program.index}-${row.op}">link</a>` : ""}` +
    `${row.finding ? ` · <a href="#${row.finding}">its finding</a>` : ""}</div>` +
    `<table class="types">${lines.join("")}</table>` +
    (used.length
      ? `<div class="more">used by ${used.map((u) => `<code>${u}</code>`).join(", ")}</div>` : "") +
    `<div class="grids">${gridsOf(row)}</div>`;
}

function choose(row, scroll = true) {
  chosen = row;
  const at = shown.indexOf(row);
  if (at >= 0 && scroll) {
    const top = at * ROW;
    if (top < listing.scrollTop || top > listing.scrollTop + listing.clientHeight - 2 * ROW)
      listing.scrollTop = top - listing.clientHeight / 3;
  }
  draw();
  tell();
}

function show(index) {
  program = data[index] && data[index].ops ? decode(data[index], index) : null;
  rows = program ? program.rows : [];
  chooser.value = String(index);
  filter($("search").value);
}

function filter(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  shown = [];
  rows.forEach((row, i) => {
    if (!words.length) { shown.push(i); return; }
    if (row.heading !== undefined) return;
    if (row.text === undefined)
      row.text = (textOf(row) + " " + (row.label || "") + " " + row.place + " " + row.scope + " " +
                  row.values.slice(0, row.results).map(typeOf).join(" ")).toLowerCase();
    if (words.every((word) => row.text.includes(word))) shown.push(i);
  });
  const ops = words.length ? shown.length : rows.filter((row) => row.op >= 0).length;
  const lines = rows.filter((row) => row.heading === undefined).length;
  $("count").textContent = words.length ? `${ops} of ${lines} lines` : `${ops} ops`;
  listing.scrollTop = 0;
  const has = (element, word) => element.textContent.toLowerCase().includes(word);
  for (const each of document.querySelectorAll(".finding"))
    each.hidden = words.length > 0 && !words.every((word) => has(each, word));
  for (const each of document.querySelectorAll(".file"))
    each.hidden = words.length > 0 &&
      ![...each.querySelectorAll(".finding")].some((finding) => !finding.hidden);
  draw();
  tell();
}

listing.addEventListener("scroll", draw, { passive: true });
addEventListener("resize", draw);
listing.addEventListener("click", (event) => {
  const value = event.target.dataset.value, row = event.target.closest("[data-row]");
  const made = value === undefined ? undefined : program.madeBy.get(Number(value));
  if (made !== undefined && made !== chosen && shown.includes(made)) choose(made);
  else if (row) choose(Number(row.dataset.row), false);
});
about.addEventListener("click", (event) => {
  const go = event.target.dataset.go;
  if (go === undefined) return;
  event.preventDefault();
  if (!shown.includes(Number(go))) { $("search").value = ""; filter(""); }
  choose(Number(go));
});
listing.addEventListener("keydown", (event) => {
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 };
  if (!(event.key in steps) || !shown.length) return;
  event.preventDefault();
  const at = Math.max(0, shown.indexOf(chosen));
  choose(shown[Math.min(shown.length - 1, Math.max(0, at + steps[event.key]))]);
});
gradients.addEventListener("change", () => { draw(); tell(); });
chooser.addEventListener("change", () => show(Number(chooser.value)));

// --- hover ---------------------------------------------------------------------------------------
const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);
listing.addEventListener("mouseover", (event) => {
  const value = event.target.dataset.value;
  tip.hidden = value === undefined;
  for (const each of listing.querySelectorAll(".v"))
    each.classList.toggle("same", each.dataset.value === value);
  if (tip.hidden) return;
  tip.textContent = program.names[value] + ": " + shownOf(Number(value));
  const box = event.target.getBoundingClientRect();
  tip.style.left = Math.min(box.left, innerWidth - tip.offsetWidth - 12) + "px";
  tip.style.top = box.top - tip.offsetHeight - 6 + "px";
});
listing.addEventListener("mouseleave", () => { tip.hidden = true; });

// --- search, links -------------------------------------------------------------------------------
let waiting = 0;
$("search").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => filter($("search").value), 80);
});
addEventListener("keydown", (event) => {
  if (event.key === "/" && !/INPUT|SELECT/.test(document.activeElement.tagName)) {
    event.preventDefault();
    $("search").focus();
  }
  if (event.key === "Escape" && document.activeElement === $("search")) {
    $("search").value = "";
    filter("");
    listing.focus();
  }
});
$("fold").addEventListener("click", () => {
  const all = [...document.querySelectorAll(".finding")], open = all.some((each) => !each.open);
  for (const each of all) each.open = open;
});
function follow() {
  const op = /^#op-(\d+)-(\d+)$/.exec(location.hash);
  if (op) {
    if (!program || program.index !== Number(op[1])) show(Number(op[1]));
    if (!program) return;
    if ($("search").value) { $("search").value = ""; filter(""); }
    const row = program.byOp.get(Number(op[2]));
    if (row !== undefined) { $("program").scrollIntoView(); choose(row); }
    return;
  }
  const find = /^#find=(.*)$/.exec(location.hash);
  if (find) {
    $("search").value = decodeURIComponent(find[1]);
    filter($("search").value);
    return;
  }
  const target = location.hash.length > 1 && $(location.hash.slice(1));
  for (let each = target; each; each = each.parentElement)
    if (each.tagName === "DETAILS") each.open = true;
  if (target) target.scrollIntoView();
}
addEventListener("hashchange", follow);
show(0);
follow();
})();
