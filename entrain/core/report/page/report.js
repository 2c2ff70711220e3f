// What all parts of the page share: elements, numbers in words, colours, the data, errors.

const SVG = "http://www.w3.org/2000/svg";
const root = document.documentElement;
const redraws = []; // called after a change of width or theme, and before printing

// An element. `options` are attributes; `children` are nodes or texts. Data only ever becomes text.
function make(tag, options = {}, ...children) {
  const node = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document
    .createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "style") Object.entries(value).forEach(([k, v]) => node.style.setProperty(k, v));
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// A name or path that may be broken behind slashes.
const breakable = (text) => String(text).split(/(?<=\/)/).flatMap((part, k) => (k ? [make("wbr"),
  part] : [part]));

// A figure of the data as text; the exact number is in data-value.
function figure(name, value, text, options = {}) {
  return make("span", { "data-figure": name, "data-value": value, ...options }, text);
}

// `count` significant digits; `fixed` keeps zeros at the end, as units of measure want.
function digits(value, count = 3, fixed = false) {
  if (!Number.isFinite(value)) return "not known";
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  if (size >= 15 || size < -4) return value.toExponential(count - 1);
  const places = Math.min(12, Math.max(0, count - 1 - size));
  return value.toLocaleString("en-US", { minimumFractionDigits: fixed ? places : 0,
    maximumFractionDigits: places });
}

const percent = (fraction) => `${digits(100 * fraction, Math.abs(fraction) < 0.1 ? 2 : 3, true)} %`;

// A time in the unit that its size calls for. `step` (a tick distance) sets how many digits are needed.
function time_text(ns, step = 0) {
  const size = Math.abs(ns);
  const [unit, name] = size >= 1e9 ? [1e9, "s"] : size >= 1e6 ? [1e6, "ms"] : size >= 1e3 ? [1e3,
    "µs"
  ] : [1, "ns"];
  if (step > 0) {
    const places = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
    return ns === 0 ? "0" : `${(ns / unit).toFixed(Math.min(9, places))} ${name}`;
  }
  return ns === 0 ? "0 s" : `${digits(ns / unit, size >= 1e9 ? 4 : 3, unit > 1)} ${name}`;
}

function bytes_text(bytes) {
  const size = Math.abs(bytes);
  const [unit, name] = size >= 2 ** 40 ? [2 ** 40, "TiB"] : size >= 2 ** 30 ? [2 ** 30, "GiB"] :
    size >= 2 ** 20 ? [2 ** 20, "MiB"] : size >= 1024 ? [1024, "KiB"] : [1, "B"];
  return `${digits(bytes / unit, 3, unit > 1)} ${name}`;
}

const seconds_text = (s) => time_text(s * 1e9);
const count_text = (n) => n.toLocaleString("en-US");
const plural = (n, one, many = `${one}s`) => `${count_text(n)} ${n === 1 ? one : many}`;
const known = (list) => (list || []).filter((value) => Number.isFinite(value));
const sum = (list) => list.reduce((total, value) => total + value, 0);
const largest = (list) => list.reduce((most, value) => (value > most ? value : most), -Infinity);
const smallest = (list) => list.reduce((least, value) => (value < least ? value : least), Infinity);
const clip = (text, length = 60) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

// Of a path the end says most.
const clip_front = (text, length) => (text.length > length ? `…${text.slice(1 - length)}` : text);

// The value below which `fraction` of the list lies; between two values it is interpolated.
function quantile(list, fraction) {
  const sorted = Float64Array.from(list).sort();
  if (!sorted.length) return NaN;
  const place = (sorted.length - 1) * fraction;
  const low = Math.floor(place);
  const high = Math.min(sorted.length - 1, low + 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - low);
}

// The least of 0 … count - 1 for which `holds` is true, as it is for all after it; count if there is none.
function first_where(count, holds) {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Distances of ticks: 1, 2 or 5 times a power of ten, about `count` of them.
function tick_step(range, count) {
  const raw = range / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const unit = raw / power;
  return (unit <= 1 ? 1 : unit <= 2 ? 2 : unit <= 5 ? 5 : 10) * power;
}

function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const step = tick_step(high - low, count);
  const result = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k) result.push(k *
    step + 0); // + 0: no negative zero
  return result;
}

let colours = {};
// The colour of a CSS variable, for the canvas.
function colour(name) {
  if (!(name in colours)) colours[name] = getComputedStyle(root).getPropertyValue(name).trim();
  return colours[name];
}
const view_colour = (index) => `var(--view-${index % 12})`;

// Which colours a module has: "llm" its own, the other modules in their order.
function module_colour(modules, index) {
  const llm = llm_index(modules);
  if (index === llm) return "--llm";
  return `--m${(index > llm ? index - 1 : index) % 4}`;
}
const llm_index = (modules) => (modules.includes("llm") ? modules.indexOf("llm") : modules.length -
  1);

function key(colour_value, text, shape = "") {
  return make("span", { class: "key" }, make("i", { class: shape,
    style: { "--color": colour_value } }), text);
}

// Data are drawn, and compared, apart from runs and simulations.
const is_index = (view) => Array.isArray(view.distributions);

function view_heading(view, index, several) {
  return several ? make("h3", { class: "viewname", style: { "--color": view_colour(index) } },
    make("span", {}, breakable(view.name))) : null;
}

// One block a view, side by side; views without data have none. Null if no view has data.
function per_view(views, has, draw) {
  const several = views.length > 1;
  const blocks = views.flatMap((view, index) =>
    has(view) ? [make("div", {}, view_heading(view, index, several), draw(view, index))] : []);
  return blocks.length ? make("div", { class: "views" }, blocks) : null;
}

function section(id, title, note, ...children) {
  return make("section", { id, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` },
      title),
    note ? make("p", { class: "note" }, note) : null, ...children);
}

// Parts of a whole as one bar. parts: [{name, value, colour, text}]; the bar is `share` of the full width.
function stacked_bar(parts, whole, label) {
  const shown = parts.filter((part) => part.value > 0);
  return make("div", { class: "stack",
    role: "img", "aria-label": `${label}: ${shown.map((part) => `${part.name} ${part.text}`).join(", ")}` },
    shown.map((part) => make("i", {
      title: `${part.name}: ${part.text}`,
      style: { width: `${Math.max(0, Math.min(100, (100 * part.value) / whole))}%`,
        background: `var(${part.colour})` },
    })));
}

function table(headings, rows, options = {}) {
  const numeric = options.numeric || [];
  const side = (index) => (numeric.includes(index) ? "n" : null);
  return make("div", { class: `scroll ${options.class || ""}`, tabindex: "0",
    role: "region", "aria-label": options.label || "Table" },
    make("table", {},
      headings ? make("thead", {}, make("tr", {}, headings.map((text, k) => make(
      "th", { class: side(k), scope: "col" }, text)))) : null,
      make("tbody", {}, rows.map((row) => make("tr", { class: row.class || null },
        (row.cells || row).map((cell, k) => make(k === 0 ? "th" : "td", { class: side(k),
          scope: k === 0 ? "row" : null }, cell === null ? "–" : cell)))))));
}

function show_error(message) {
  root.dataset.error = message;
  document.getElementById("errors").append(make("p", { class: "notice" },
    `This page could not be drawn in full: ${message}`));
}

async function read_data() {
  const text = document.getElementById("data").textContent.trim();
  if (typeof DecompressionStream === "undefined") throw new Error(
    "this browser has no DecompressionStream, which reads the page's data; use a browser of 2023 or later"
    );
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function set_theme(theme) {
  root.dataset.theme = theme;
  colours = {};
}

function redraw_all() {
  for (const redraw of redraws) redraw();
}

function theme_of_page() {
  if (/\bdark\b/.test(location.hash)) return "dark";
  if (/\blight\b/.test(location.hash)) return "light";
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}