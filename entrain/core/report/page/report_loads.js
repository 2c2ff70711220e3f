// Loads: balance of modules, memory of lanes, sizes of samples. Each drawing is readable(). Read first: balance_section(),
// memory_section(), distributions_section().

// Where the bars of a module's work are: a row a replica, with a bar of all its work at the left if there are several,
// and one a slot. Its cells are in reading order.
function balance_cells(totals, work, width) {
  const [row, left] = [34, 58];
  const whole = totals.length > 1 ? Math.min(120, width * 0.2) : 0;
  const start = left + (whole ? whole + 14 : 0);
  const cells = [];
  totals.forEach((total, r) => {
    if (whole) cells.push({ r, slot: -1, value: total, x: left, width: whole });
    const wide = (width - start) / Math.max(1, work[r]?.length || 0);
    (work[r] || []).forEach((value, slot) => cells.push({ r, slot, value, x: start + slot * wide,
      width: wide }));
  });
  return { row, left, whole, start, cells, height: totals.length * row };
}

function draw_balance(svg, { totals, work, top, mean, fill }, { row, left, whole, start }, width) {
  const parts = [];
  totals.forEach((total, r) => {
    const base = (r + 1) * row - 5;
    parts.push(make("svg:text", { x: 0, y: base - 9 }, `replica ${r}`));
    if (whole) parts.push(make("svg:rect", { x: left, y: base - 19, width: (whole * total) / largest(
      totals), height: 13, style: { fill } }));
    const wide = (width - start) / Math.max(1, work[r]?.length || 0);
    const bars = new Map(); // one bar a pixel, the greatest of its slots
    (work[r] || []).forEach((value, k) => { const x = wide >= 1 ? k * wide : Math.floor(k * wide);
      bars.set(x, Math.max(bars.get(x) || 0, value)); });
    const path = [...bars].map(([x, value]) => { const h = top > 0 ? (value / top) * (row - 9) : 0;
      return `M${(start + x).toFixed(2)} ${base}v${(-h).toFixed(2)}h${(wide > 3 ? wide - 1 : Math.max(1, wide)).toFixed(2)}v${h.toFixed(2)}z`; })
      .join("");
    parts.push(make("svg:path", { d: path, style: { fill } }));
    const y = base - (top > 0 ? (mean / top) * (row - 9) : 0);
    parts.push(make("svg:line", { x1: start, x2: width, y1: y, y2: y, "stroke-dasharray": "3 2",
      style: { stroke: "var(--text)", "stroke-width": 0.8 } }));
    parts.push(make("svg:line", { class: "axis", x1: start, x2: width, y1: base, y2: base }));
  });
  svg.replaceChildren(...parts);
}

// Reading of a balance drawing; up and down go to the same slot of another replica.
function read_balance(svg, read, state, { totals, mean }) {
  const other = (by) => (place) => {
    const { r, slot } = state.cells[place];
    const found = state.cells.findIndex((cell) => cell.r === r + by && cell.slot === slot);
    return found < 0 ? place : found;
  };
  const mean_total = sum(totals) / totals.length;
  return readable(svg, read, {
    count: () => state.cells.length,
    rest: () => [],
    keys: { ArrowUp: other(-1), ArrowDown: other(1) },
    place_at: (x, y) => state.cells.findIndex((cell) => cell.r === Math.floor(y / state.row) && x >=
      cell.x && x < cell.x + cell.width),
    show: (place) => {
      const { r, slot, value, x, width } = state.cells[place];
      const base = (r + 1) * state.row - 5;
      const of = slot < 0 ? mean_total : mean;
      return {
        marks: [make("svg:rect", { class: "mark", x, y: base - 26, width: Math.max(1, width - 1),
          height: 27 })],
        words: [`replica ${r}, ${slot < 0 ? "all slots" : `slot ${slot}`}: `, make("b", {}, figure(
          "balance-at", value, time_text(value))), of > 0 ?
          `, ${(value / of).toFixed(2)} × the mean ${slot < 0 ? "replica" : "slot"}` : ""]
      };
    }
  });
}

// One module's work: a bar a replica, and small bars of its slots.
function balance_block(view, module) {
  const { modules, replicas, slots } = view.balance;
  const totals = replicas.map((row) => row[module] || 0);
  const work = slots.map((list) => list.map((row) => row[module] || 0));
  const all = work.flat();
  const average = (list) => sum(list) / list.length;
  if (!(sum(all) > 0) && !(sum(totals) > 0)) return null;
  const top = largest(all);
  const mean = average(all);
  const at = work.findIndex((list) => list.includes(top));
  const words = [];
  if (totals.length > 1) words.push("The busiest replica has ", figure("balance-replica-ratio",
      largest(totals) / average(totals), `${(largest(totals) / average(totals)).toFixed(3)} ×`),
    " the mean work. ");
  if (all.length > 1 && top > 0) words.push("The heaviest slot has ", figure("balance-slot-ratio",
      top / mean, `${(top / mean).toFixed(2)} ×`),
    ` the mean: ${totals.length > 1 ? `replica ${at}, ` : ""}slot ${work[at].indexOf(top)}. `,
    "The mean slot takes ", figure("balance-slot-mean", mean, time_text(mean)), ".");
  const svg = make("svg:svg", { role: "img", tabindex: "0",
    "aria-label": `Work of ${modules[module]} in each replica and slot. Arrow keys read single slots.` });
  const read = make("p", { class: "read", "aria-live": "polite" });
  const load = { totals, work, top, mean, fill: `var(${module_colour(modules, module)}-b)` };
  const state = balance_cells(totals, work, 400);
  const again = read_balance(svg, read, state, load);
  redraws.push((printing) => {
    const width = printing ? 480 : Math.max(240, svg.clientWidth || 400);
    Object.assign(state, balance_cells(totals, work, width));
    svg.setAttribute("viewBox", `0 0 ${width} ${state.height}`);
    draw_balance(svg, load, state, width);
    again();
  });
  return make("div", { class: "balance" }, make("h3", {}, modules[module]), make(
  "p", { class: "note" }, words), svg, read);
}

function balance_section(views) {
  const blocks = per_view(views, (view) => view.balance && view.balance.replicas.length > 0, (
    view) => view.balance.modules.map((_, module) => balance_block(view, module)));
  return blocks && section("balance", "Balance of each module",
    "In the predicted step. Bars on the left are whole replicas, bars on the right their slots in order; the dashed line is the mean slot. Point at a bar, or use the arrow keys, to read it.",
    blocks);
}

// Lanes with a memory curve, from all timelines of the view.
function memory_lanes(view) {
  const lanes = new Map();
  for (const timeline of view.timelines) {
    for (const lane of timeline.lanes) {
      if (!lane.memory || !lane.memory.bytes.length) continue;
      const id = `${lane.replica} ${lane.lane}`;
      if (!lanes.has(id)) lanes.set(id, { title: lane_title(lane), limit: lane.limit_bytes,
        curves: [] });
      lanes.get(id).curves.push({ label: timeline.label, makespan: timeline.makespan_ns,
        memory: lane.memory, peak: largest(lane.memory.bytes) });
    }
  }
  return [...lanes.values()];
}

const SMALL = [220, 62]; // size of a memory chart, stretched to its column

// The bytes that a curve holds at a time: those of the last step before it.
function bytes_at({ memory }, time) {
  const after = first_where(memory.time_ns.length, (k) => memory.time_ns[k] > time);
  return after ? memory.bytes[after - 1] : 0;
}

const curve_colour = (label) => (label === "measured" ? "var(--view-0)" : "var(--view-1)");

function memory_path({ label, memory, makespan }, several, x_at, y_at) {
  const times = [];
  const bytes = [];
  memory.time_ns.forEach((t, k) => { if (k) { times.push(t);
      bytes.push(memory.bytes[k - 1]); } times.push(t);
    bytes.push(memory.bytes[k]); });
  times.push(makespan);
  bytes.push(memory.bytes[memory.bytes.length - 1]);
  return make("svg:path", { d: thin(times, bytes, x_at, y_at), fill: "none",
    "stroke-dasharray": label === "predicted" && several ? "4 2" : null,
    style: { stroke: curve_colour(label), "stroke-width": 1.2 } });
}

function memory_chart(lane, top, span) {
  const [width, height] = SMALL;
  const several = lane.curves.length > 1;
  const x_at = (t) => (t / span) * width;
  const y_at = (bytes) => height - (bytes / top) * (height - 2);
  const limited = Number.isFinite(lane.limit);
  const limit = limited ? make("svg:line", { x1: 0, x2: width, y1: y_at(lane.limit), y2: y_at(lane
    .limit), style: { stroke: "var(--error)", "stroke-width": 1.2 } }) : null;
  const words = lane.curves.flatMap(({ label, peak }, k) => [k ? ", " : "", several ?
    `${label} peak ` : "peak ", figure("memory-peak", peak, bytes_text(peak))
  ]);
  if (limited) words.push(" of ", figure("memory-limit", lane.limit, bytes_text(lane.limit)));
  if (limited && lane.curves.some(({ peak }) => peak > lane.limit)) words.push(make("b", {},
    " above its limit"));
  const svg = make("svg:svg", { viewBox: `0 -1 ${width} ${height + 2}`, preserveAspectRatio: "none",
    role: "img", tabindex: "-1", "aria-label": `Memory of ${lane.title} over the step` }, make(
    "svg:line", { class: "axis", x1: 0, x2: width, y1: height, y2: height }), lane.curves.map((
    curve) => memory_path(curve, several, x_at, y_at)), limit);
  const read = make("div", { class: "read said", "aria-live": "polite" });
  let merged = null; // times of all curves, made when they are first read
  const times = () => (merged ??= [...new Set(lane.curves.flatMap(({ memory }) => memory.time_ns))]
    .sort((a, b) => a - b));
  readable(svg, read, {
    count: () => times().length,
    rest: () => words,
    place_at: (x) => nearest(times(), (x / svg.clientWidth) * span),
    show: (place) => {
      const time = times()[place];
      const at = lane.curves.map((curve) => bytes_at(curve, time));
      return { marks: [cursor_line(x_at(time), 0, height)], words: ["at ", figure("memory-at-time",
        time, time_text(time)), ": ", ...lane.curves.flatMap(({ label }, k) => [k ? ", " : "",
        several ? `${label} ` : "", make("b", {}, figure("memory-at", at[k], bytes_text(at[k]))),
        limited && lane.limit > 0 ? ` (${percent(at[k] / lane.limit)}${k ? "" : " of the limit"})` : ""])] };
    }
  })();
  return make("div", { class: "small" }, make("div", {}, lane.title), svg, read);
}

// All lanes' charts, of which one at a time is a stop of the tab key: up and down go to the one before or after.
function memory_charts(lanes, top, span) {
  const all = make("div", { class: "smalls" }, lanes.map((lane) => memory_chart(lane, top, span)));
  const charts = [...all.querySelectorAll("svg")];
  charts[0]?.setAttribute("tabindex", "0");
  all.addEventListener("keydown", (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1 } [event.key];
    const next = charts[charts.indexOf(document.activeElement) + by];
    if (!by) return;
    event.preventDefault();
    next?.focus();
  });
  all.addEventListener("focusin", (event) => charts.forEach((chart) => chart.setAttribute("tabindex",
    chart === event.target ? "0" : "-1")));
  return all;
}

function memory_section(views) {
  const all = views.map(memory_lanes);
  const lanes = all.flat();
  if (!lanes.length) return null;
  const peaks = lanes.flatMap((lane) => lane.curves.map((curve) => curve.peak));
  const top = Math.max(1, largest([...peaks, ...known(lanes.map((lane) => lane.limit))]));
  const span = Math.max(1, largest(lanes.flatMap((lane) => lane.curves.map((curve) => curve
    .makespan))));
  const keys = [...new Set(lanes.flatMap((lane) => lane.curves.map((curve) => curve.label)))].map((
    label) => key(curve_colour(label), label, "line"));
  if (lanes.some((lane) => Number.isFinite(lane.limit))) keys.push(key("var(--error)", "limit",
    "line"));
  return section("memory", "Memory over the step", make("span", {},
      "All charts have the same axes: 0 to ", figure("memory-axis", top, bytes_text(top)),
      ", 0 to ", figure("memory-span", span, time_text(span)), ". The highest peak is ", figure(
        "memory-highest-peak", largest(peaks), bytes_text(largest(peaks))),
      ". Point at a chart to read it; arrow left and right move in time, up and down go to another lane."),
    make("div", { class: "keys" }, keys), per_view(views, (view) => memory_lanes(view).length > 0,
      (view) => memory_charts(memory_lanes(view), top, span)));
}

const size_text = (value) => (value >= 100 || Number.isInteger(value) ? count_text(Math.round(value)) :
  digits(value, 3));

// Sizes of one kind, of all views that have them: the same bins, a bar a view in each.
function distribution_chart(shown, name, several) {
  const bins = new Map();
  for (const { of } of shown) for (const bin of of.bins) bins.set(bin.from, bin);
  const list = [...bins.values()].sort((a, b) => a.from - b.from);
  const counts = shown.map(({ of }) => list.map(({ from }) => of.bins.find((bin) => bin.from === from)
    ?.count ?? 0));
  const shares = counts.map((row, v) => row.map((count) => count / shown[v].of.count));
  const svg = make("svg:svg", { role: "img", tabindex: "0",
    "aria-label": `How ${name} are distributed. Arrow keys read single bars.` });
  const read = make("p", { class: "read", "aria-live": "polite" });
  const axis = value_axis(0, largest(shares.flat()), false);
  const state = {};
  const again = readable(svg, read, {
    count: () => list.length,
    rest: () => [],
    place_at: (x) => (x < state.left ? -1 : Math.min(list.length - 1, Math.floor((x - state.left) /
      state.wide))),
    show: (place) => ({
      marks: [make("svg:rect", { class: "mark", x: state.left + place * state.wide, y: state.top,
        width: state.wide, height: state.bottom - state.top })],
      words: [make("b", {}, list[place].range), ": ", ...shown.flatMap(({ view }, v) => [v ? ", " :
        "", several ? `${clip_front(view.name, 40)} ` : "", figure("distribution-at", counts[v][place],
        count_text(counts[v][place])), ` (${percent(shares[v][place])})`])]
    })
  });
  redraws.push((printing) => {
    const width = printing ? 420 : Math.max(240, svg.clientWidth || 400);
    const [left, right, top, bottom] = [52, width - 8, 8, CHART_HEIGHT - 20];
    const wide = (right - left) / list.length;
    Object.assign(state, { left, top, bottom, wide });
    svg.setAttribute("viewBox", `0 0 ${width} ${CHART_HEIGHT}`);
    const y_at = (share) => bottom - axis.part(share) * (bottom - top);
    const top_of = (share) => (share > 0 ? Math.min(bottom - 1, y_at(share)) : bottom);
    const bar = Math.max(0.5, (wide - (wide > 6 ? 2 : 0)) / shown.length);
    const bars = shown.map(({ index }, v) => make("svg:path", { d: shares[v].map((share, k) =>
      `M${(left + k * wide + v * bar).toFixed(2)} ${bottom}V${top_of(share).toFixed(2)}h${bar.toFixed(2)}V${bottom}z`)
      .join(""), style: { fill: view_colour(index) } }));
    const every = Math.ceil(60 / wide);
    const fits = (k) => k % every === 0 && left + k * wide + 6.5 * size_text(list[k].from).length <
      width;
    const labels = list.flatMap(({ from }, k) => (fits(k) ? [make("svg:text", { x: left + k * wide,
      y: bottom + 15 }, size_text(from))] : []));
    svg.replaceChildren(...value_ticks(axis, y_at, left, right, (tick) => `${digits(100 * tick)} %`),
      ...labels, ...bars, make("svg:line", { class: "axis", x1: left, x2: right, y1: bottom,
        y2: bottom }));
    again();
  });
  return make("div", { class: "chart" }, make("h3", {}, name), svg, shown.map((entry) =>
    distribution_words(entry, several)), read);
}

// Its quantiles, and what is far out by the samples' ids.
function distribution_words({ view, index, of }, several) {
  const at = (id, text) => [`${text} `, make("b", {}, figure(`distribution-${id}`, of[id], size_text(
    of[id])))];
  const { count, largest: ids } = of.far_out;
  const words = [...at("count", several ? `${clip_front(view.name, 40)}:` : "values"), ...at("p50",
    ", median"), ...at("p90", ", p90"), ...at("p99", ", p99"), ...at("max", ", largest"), ...at("total",
    ", in all"), "."];
  if (count) words.push(" Far out, over three times p99: ", figure("distribution-far-out", count,
    count_text(count)), ", ", ids.map(({ id, value }) => `${clip(id, 60)} ${size_text(value)}`).join(
    "; "), count > ids.length ? "; …" : ".");
  const text = make("span", {}, words);
  return make("div", { class: "keys" }, several ? key(view_colour(index), text) : text);
}

function distributions_section(views) {
  const several = views.length > 1;
  const names = [...new Set(views.flatMap((view) => view.distributions.map((of) => of.name)))];
  if (!names.length) return null;
  const charts = names.map((name) => distribution_chart(views.flatMap((view, index) => {
    const of = view.distributions.find((entry) => entry.name === name);
    return of ? [{ view, index, of }] : [];
  }), name, several));
  return section("distributions", "Sizes of the samples",
    "Bars double in width from one to the next; their height is the share of all values. Point at a bar, or use the arrow keys, to read it.",
    make("div", { class: "charts" }, charts));
}
