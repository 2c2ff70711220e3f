// The timelines: one canvas each, all with the same time axis. Read first: timelines_section().

const KINDS = ["forward", "backward", "input gradient", "weight gradient", "optimizer",
  "communication", "short operations, merged"
];
const WAITS = ["", "fill", "features", "activation", "gradient", "other", "drain", "data"];
const WAIT_WORDS = ["", "the pipeline fills: no operation is ready yet",
  "waits for features of an encoder",
  "waits for the activation of the previous stage", "waits for a gradient",
  "waits for a reason that was not recorded",
  "drain: nothing is left but what ends the step",
  "waits for data: its samples are not read and decoded yet"
];
const DRAIN = 6;
const MAX_ARROWS = 80; // with more in view only those of the operation pointed at are drawn
const AXIS = 24; // height of the time axis
const GROUP = 17; // height of a replica's label

function style_of(modules, kind, module) {
  if (kind >= 4 || module < 0) return ["--optimizer", "--communication", "--merged"][Math.max(0,
    kind - 4)] || "--merged";
  return `${module_colour(modules, module)}-${kind === 0 ? "f" : kind === 3 ? "w" : "b"}`;
}

// Start and end of each operation, colours, places of lanes, arrows: computed once.
function prepare_timeline(timeline, title) {
  const { units, modules } = timeline;
  const count = timeline.lanes.length;
  const height = count <= 4 ? 30 : count <= 16 ? 22 : count <= 32 ? 17 : 13;
  const on_path = timeline.lanes.map(() => new Set());
  for (const [lane, event] of timeline.path) on_path[lane]?.add(event);
  let y = AXIS;
  let replica = null;
  const used = new Set();
  const waits = new Set();
  const groups = [];
  const lanes = timeline.lanes.map((lane, index) => {
    if (lane.replica !== replica) {
      replica = lane.replica;
      groups.push({ y: y + 3, text: `replica ${replica}` });
      y += GROUP;
    }
    const { kind, unit, gap_ns, dur_ns, wait } = lane.events;
    const begin = new Float64Array(kind.length);
    const end = new Float64Array(kind.length);
    let clock = 0;
    const style = kind.map((k, i) => {
      begin[i] = clock + gap_ns[i];
      clock = end[i] = begin[i] + dur_ns[i];
      if (wait[i] > 0 && gap_ns[i] > 0) waits.add(wait[i]);
      const module = unit[i] >= 0 ? units.module[unit[i]] : -1;
      used.add(k >= 4 || module < 0 ? `-1 ${Math.max(4, k)}` : `${module} ${k}`);
      return style_of(modules, k, module);
    });
    if (clock < timeline.makespan_ns) waits.add(DRAIN);
    const placed = {
      index,
      replica,
      lane: lane.lane,
      name: `replica ${replica} lane ${lane.lane}: ${lane.name}`,
      short: `${lane.lane}: ${lane.name}`,
      y,
      height,
      kind,
      unit,
      wait,
      begin,
      end,
      style,
      on_path: on_path[index]
    };
    y += height + (height > 13 ? 3 : 2);
    return placed;
  });
  const chart = { timeline, title, lanes, groups, height: y + 4, used, waits };
  chart.arrows = deferred_arrows(chart);
  return chart;
}

// From the encoder's last-stage forward of a slot to the LLM's stage-0 forward of a later slot in the same replica.
function deferred_arrows({ timeline, lanes }) {
  const { units, modules } = timeline;
  const llm = llm_index(modules);
  const last = modules.map((_, module) => units.stage.reduce((most, stage, u) => (units.module[
    u] === module ? Math.max(most, stage) : most), 0));
  const sources = [];
  const targets = new Map();
  for (const lane of lanes) {
    for (let i = 0; i < lane.kind.length; ++i) {
      const u = lane.unit[i];
      if (lane.kind[i] !== 0 || u < 0) continue;
      const place = { lane, event: i, unit: u };
      const id = `${lane.replica} ${units.slot[u]}`;
      if (units.module[u] === llm) {
        if (units.stage[u] === 0 && !(targets.has(id) && targets.get(id).lane.begin[targets.get(id)
            .event] <= lane.begin[i])) targets.set(id, place);
      } else if (units.stage[u] === last[units.module[u]]) {
        for (const slot of units.part[u])
          if (slot > units.slot[u]) sources.push({ place, id: `${lane.replica} ${slot}` });
      }
    }
  }
  return sources.filter(({ id }) => targets.has(id)).map(({ place, id }) => {
    const to = targets.get(id);
    return { from: place, to, begin: place.lane.end[place.event], end: to.lane.begin[to
      .event] };
  });
}

// The first operation that ends after `time`.
const first_after = (lane, time) => first_where(lane.end.length, (k) => lane.end[k] > time);

// Rectangles are collected by colour, so that a frame sets each colour once.
class Layers {
  constructor() { this.rects = new Map(); }
  add(style, x, y, width, height) {
    let list = this.rects.get(style);
    if (!list) this.rects.set(style, (list = []));
    const n = list.length;
    if (n && list[n - 3] === y && list[n - 1] === height && width <= 2 && Math.abs(list[n - 4] +
        list[n - 2] - x) < 0.01) list[n - 2] += width;
    else list.push(x, y, width, height);
  }
  fill(context) {
    for (const [style, list] of this.rects) {
      context.fillStyle = colour(style);
      for (let k = 0; k < list.length; k += 4) context.fillRect(list[k], list[k + 1], list[k + 2],
        list[k + 3]);
    }
  }
}

const by_name = (a, b) => (a[0] < b[0] ? -1 : 1);

// Collects what is narrower than a column of pixels: a column is divided in proportion to the time of each kind of
// operation, from the top; at the bottom a strip shows causes of waiting.
class Columns {
  constructor(layers, lane, frame, width, strip) {
    Object.assign(this, { layers, lane, frame, width, strip, place: -1, busy: new Map(),
      idle: new Map() });
  }
  spread(x0, x1, map, id) {
    const { left } = this.frame;
    while (x1 - x0 > 1e-6) {
      const here = Math.floor((x0 - left) / this.width + 1e-9);
      if (here !== this.place) { this.flush();
        this.place = here; }
      const stop = Math.min(x1, left + (here + 1) * this.width);
      this[map].set(id, (this[map].get(id) || 0) + stop - x0);
      x0 = Math.max(stop, x0 + 1e-6);
    }
  }
  flush() {
    const { layers, lane, frame, busy, idle } = this;
    if (this.place < 0) return;
    const x = frame.left + this.place * this.width;
    const width = Math.min(this.width, frame.right - x);
    const bottom = lane.y + lane.height;
    const busy_width = sum([...busy.values()]);
    const idle_width = sum([...idle.values()]);
    const scale = Math.max(1 / width, Math.min(1 / busy_width, 0.4 / width / Math.min(1,
      busy_width))); // one short operation stays visible
    let y = lane.y;
    const bar = (style, height) => {
      const end = Math.min(bottom, y + height);
      if (Math.round(end) > Math.round(y)) layers.add(style, x, Math.round(y), width, Math
        .round(end) - Math.round(y));
      y = end;
    };
    for (const [style, size] of [...busy].sort(by_name)) bar(style, size * (busy_width > 0 ?
      scale : 0) * lane.height);
    const height = Math.min(this.strip, (idle_width / width) * lane.height);
    y = Math.max(y, bottom - height);
    for (const [cause, size] of [...idle].sort(by_name)) bar(`--w-${WAITS[cause]}`, (height *
      size) / idle_width);
    busy.clear();
    idle.clear();
    this.place = -1;
  }
}

// The operations and waits of a lane between t0 and t1. A lane with many operations a pixel is drawn in columns only.
function collect_lane(chart, lane, frame, layers, texts) {
  const { t0, t1, scale, left, right } = frame;
  const { units, makespan_ns } = chart.timeline;
  const strip = Math.max(3, Math.round(lane.height * 0.26));
  const strip_y = lane.y + lane.height - strip;
  const start = first_after(lane, t0);
  const dense = (right - left) / (first_after(lane, t1) - start + 1) < 2.5;
  const narrow = dense ? 12 : 1;
  const columns = new Columns(layers, lane, frame, dense ? 6 : 1, strip);
  const at = (time) => Math.max(left, Math.min(right, left + (time - t0) * scale));
  const wait_rect = (from, to, cause) => {
    const [x0, x1] = [at(from), at(to)];
    if (x1 <= x0 || !cause) return;
    if (x1 - x0 < narrow) { columns.spread(x0, x1, "idle", cause); return; }
    columns.flush();
    layers.add(`--w-${WAITS[cause]}`, x0, strip_y, x1 - x0, strip);
    if (lane.height >= 17 && x1 - x0 > 62) texts.push(["--muted", WAITS[cause], (x0 + x1) / 2,
      lane.y + (lane.height - strip) / 2
    ]);
  };
  let i = start;
  for (; i < lane.end.length; ++i) {
    wait_rect(i ? lane.end[i - 1] : 0, lane.begin[i], lane.wait[i]);
    if (lane.begin[i] > t1) break;
    const [x0, x1] = [at(lane.begin[i]), at(lane.end[i])];
    if (x1 <= x0) continue;
    if (x1 - x0 < narrow) { columns.spread(x0, x1, "busy", lane.style[i]); continue; }
    columns.flush();
    layers.add(lane.style[i], x0, lane.y, x1 - x0 - (x1 - x0 > 3 ? 0.7 : 0), lane.height);
    if (x1 - x0 > 16 && lane.unit[i] >= 0 && lane.kind[i] < 4) {
      const text = `${units.slot[lane.unit[i]]}`;
      if (x1 - x0 > 6.5 * text.length + 5) texts.push([lane.kind[i] === 0 ? "--ink-f" : "--ink-b",
        text, (x0 + x1) / 2, lane.y + lane.height / 2
      ]);
    }
  }
  columns.flush();
  if (i === lane.end.length) { wait_rect(i ? lane.end[i - 1] : 0, makespan_ns, DRAIN);
    columns.flush(); }
}

function fit_text(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const cut = (length) => `${text.slice(0, length)}…`;
  return cut(first_where(Math.min(text.length, 200), (k) => context.measureText(cut(k + 1)).width >
    width));
}

// Draws a chart: only the lanes that are on screen, or all of them for print.
function draw_chart(chart, shared, selected, printing) {
  const { canvas, lanes } = chart;
  const width = printing ? 1000 : canvas.clientWidth || 300;
  const density = printing ? 2 : Math.min(2, window.devicePixelRatio || 1);
  if (canvas.width !== Math.round(width * density) || canvas.height !== Math.round(chart.height *
      density)) {
    canvas.width = Math.round(width * density);
    canvas.height = Math.round(chart.height * density);
    canvas.style.height = `${chart.height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(density, 0, 0, density, 0, 0);
  context.fillStyle = colour("--back");
  context.fillRect(0, 0, width, chart.height);
  const wide = width >= 760;
  const left = wide ? 178 : 78;
  const right = width - 2;
  const { t0, t1 } = shared;
  const scale = (right - left) / (t1 - t0);
  const frame = { t0, t1, left, right, scale };
  chart.frame = frame;
  const place = canvas.getBoundingClientRect();
  const seen = (lane) => printing || (lane.y + lane.height > -place.top - 100 && lane.y <
    innerHeight - place.top + 100);
  draw_axis(context, chart, frame);
  context.font = `11px ${chart.font}`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (const group of chart.groups) {
    context.fillStyle = colour("--text");
    context.fillText(group.text, 0, group.y + 7);
    context.fillStyle = colour("--faint");
    context.fillRect(left, group.y + 7, right - left, 1);
  }
  const layers = new Layers();
  const texts = [];
  for (const lane of lanes) {
    if (!seen(lane)) continue;
    context.fillStyle = colour(selected && selected.lane === lane ? "--text" : "--muted");
    context.fillText(fit_text(context, wide ? lane.name : lane.short, left - 8), 0, lane.y + lane
      .height / 2);
    collect_lane(chart, lane, frame, layers, texts);
  }
  layers.fill(context);
  context.font = `10px ${chart.font}`;
  context.textAlign = "center";
  for (const [ink, text, x, y] of texts) { context.fillStyle = colour(ink);
    context.fillText(text, x, y + 0.5); }
  context.save();
  context.beginPath();
  context.rect(left, 0, right - left, chart.height);
  context.clip();
  if (shared.show_path) draw_path(context, chart, frame);
  if (shared.show_arrows) draw_arrows(context, chart, frame, selected);
  if (selected && selected.chart === chart && !printing) {
    const [from, to] = selected_range(selected);
    context.strokeStyle = colour("--text");
    context.lineWidth = 2;
    context.strokeRect(left + (from - t0) * scale, selected.lane.y - 1, Math.max(1.5, (to - from) *
      scale), selected.lane.height + 2);
  }
  context.restore();
}

function draw_axis(context, chart, { t0, t1, left, right, scale }) {
  const step = tick_step(t1 - t0, (right - left) / 100);
  context.font = `11px ${chart.font}`;
  context.textBaseline = "alphabetic";
  for (let k = Math.ceil(t0 / step); k * step <= t1; ++k) {
    const x = Math.round(left + (k * step - t0) * scale) + 0.5;
    context.fillStyle = colour("--faint");
    context.fillRect(x, AXIS - 6, 1, chart.height - AXIS);
    context.fillStyle = colour("--muted");
    const text = time_text(k * step, step);
    context.textAlign = x + context.measureText(text).width + 4 > right ? "right" : "left";
    context.fillText(text, context.textAlign === "left" ? x + 3 : x - 3, 12);
  }
  const end = left + (chart.timeline.makespan_ns - t0) * scale;
  if (end >= left && end <= right + 1) {
    context.fillStyle = colour("--text");
    context.fillRect(Math.min(end, right - 1), AXIS - 8, 1.5, chart.height - AXIS + 8);
  }
}

function draw_path(context, chart, { t0, t1, left, scale }) {
  context.globalAlpha = 0.66;
  context.fillStyle = colour("--back");
  for (const lane of chart.lanes) context.fillRect(left, lane.y, 1e5, lane.height);
  context.globalAlpha = 1;
  let before = null;
  for (const [index, event] of chart.timeline.path) {
    const lane = chart.lanes[index];
    if (!lane || !(event < lane.end.length)) continue;
    const x = left + (lane.begin[event] - t0) * scale;
    const end = left + (lane.end[event] - t0) * scale;
    const y = lane.y + lane.height / 2;
    if (lane.end[event] >= t0 && lane.begin[event] <= t1) {
      context.fillStyle = colour(lane.style[event]);
      context.fillRect(x, lane.y, Math.max(0.75, end - x), lane.height);
      context.fillStyle = colour("--path");
      context.fillRect(x, lane.y + lane.height - 3, Math.max(0.75, end - x), 3);
    }
    if (before && before.end <= t1 && lane.begin[event] >= t0 && before.lane !== lane) {
      context.strokeStyle = colour("--path");
      context.lineWidth = 1.25;
      context.beginPath();
      context.moveTo(before.x, before.lane.y + before.lane.height / 2);
      context.lineTo(x, y);
      context.stroke();
    }
    before = { lane, x: end, end: lane.end[event] };
  }
}

function arrows_in_view(chart, t0, t1, selected) {
  const inside = chart.arrows.filter((arrow) => arrow.end >= t0 && arrow.begin <= t1);
  if (inside.length <= MAX_ARROWS) return inside;
  if (!selected || selected.chart !== chart || selected.waiting) return [];
  return inside.filter((arrow) => [arrow.from, arrow.to].some((end) => same_work(chart, end,
    selected)));
}

// Whether the operation belongs to the same slot, module and replica as an arrow's end.
function same_work(chart, end, selected) {
  const { units } = chart.timeline;
  const u = selected.lane.unit[selected.event];
  return u >= 0 && end.lane.replica === selected.lane.replica && units.slot[u] === units.slot[end
    .unit] && units.module[u] === units.module[end.unit];
}

function draw_arrows(context, chart, { t0, t1, left, scale }, selected) {
  for (const arrow of arrows_in_view(chart, t0, t1, selected)) {
    const x0 = left + (arrow.begin - t0) * scale;
    const x1 = left + (arrow.end - t0) * scale;
    const [above, below] = [arrow.from.lane, arrow.to.lane];
    const y0 = above.y + above.height / 2;
    const y1 = below.y + (y0 <= below.y ? 2 : below.height - 2);
    const bend = Math.max(12, Math.min(70, Math.abs(x1 - x0) / 2));
    const curve = () => { context.beginPath();
      context.moveTo(x0, y0);
      context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
      context.stroke(); };
    context.globalAlpha = 0.8;
    context.strokeStyle = colour("--back");
    context.lineWidth = 3;
    curve();
    context.globalAlpha = 1;
    context.strokeStyle = context.fillStyle = colour("--arrow");
    context.lineWidth = 1.1;
    curve();
    context.beginPath();
    context.moveTo(x1 + 1, y1);
    context.lineTo(x1 - 6, y1 - 3.5);
    context.lineTo(x1 - 6, y1 + 3.5);
    context.fill();
  }
}

// The time range of an operation, or of the wait before it (or after the last one).
function selected_range({ chart, lane, event, waiting }) {
  if (!waiting) return [lane.begin[event], lane.end[event]];
  return [event ? lane.end[event - 1] : 0, event < lane.end.length ? lane.begin[event] : chart
    .timeline.makespan_ns
  ];
}