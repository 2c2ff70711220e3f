// How the timelines are moved and read: zoom, pan, pointing, keys, and the panel of one operation or wait.

// All timelines of the page with one time axis. charts: [{view, chart}] in order.
function timelines_section(views) {
  const several = views.length > 1;
  const charts = views.flatMap((view, index) => view.timelines.filter((timeline) => timeline.lanes
    .length).map((timeline) =>
    ({ ...prepare_timeline(timeline, several ? `${view.name}, ${timeline.label}` : timeline
        .label), view, view_index: index })));
  if (!charts.length) return null;
  const full = Math.max(1, largest(charts.map((chart) => chart.timeline.makespan_ns)));
  const shared = { t0: 0, t1: full, full, show_path: false, show_arrows: charts.some((chart) =>
      chart.arrows.length), selected: null, pinned: false };
  const dense = charts.some((chart) => chart.lanes.some((lane) => lane.end.length > 400));
  const panel = make("div", { class: "panel", "aria-live": "polite", id: "panel" });
  const control = { shared, charts, panel, queued: false };
  control.draw = (printing = false) => charts.forEach((chart) => draw_chart(chart, shared, shared
    .selected, printing));
  control.schedule = () => {
    if (control.queued) return;
    control.queued = true;
    requestAnimationFrame(() => { control.queued = false;
      control.draw(); });
  };
  show_selected(control);
  const figures = charts.map((chart) => chart_block(control, chart, several));
  redraws.push((printing) => control.draw(printing));
  window.addEventListener("scroll", control.schedule, { passive: true });
  return section("timeline", "Timeline of the step",
    `Each row is a lane. Full-height blocks are operations, labelled with their slot; low strips are waits, coloured by what the lane waits for.${dense ? " Where operations are too narrow to draw, a column is divided in proportion to their time." : ""}`,
    make("div", { class: "sticky timeline" }, toolbar(control), panel), legend(charts), figures);
}

function chart_block(control, chart, several) {
  const { timeline } = chart;
  chart.font = getComputedStyle(document.body).fontFamily;
  chart.canvas = make("canvas", {
    tabindex: "0",
    role: "application",
    "aria-describedby": "panel",
    style: { height: `${chart.height}px` },
    "aria-label": `Timeline ${chart.title}: ${plural(chart.lanes.length, "lane")}, ${time_text(timeline.makespan_ns)}. Arrow left and right pan, plus and minus zoom, 0 shows the whole step, up and down choose a lane, comma and full stop choose an operation, Enter zooms to it.`,
  });
  listen(control, chart);
  return make("figure", { class: "tl" },
    make("h3", several ? { class: "viewname", style: { "--color": view_colour(chart
          .view_index) } } : {},
      make("b", {}, chart.title), " ", make("span", {}, "the step takes ", figure(
        `makespan-${timeline.label}`, timeline.makespan_ns, time_text(timeline.makespan_ns)))),
    timeline.thinned ? make("p", { class: "note" }, timeline.thinned) : null, chart.canvas);
}

function toolbar(control) {
  const { shared, charts } = control;
  const button = (text, label, action) => {
    const node = make("button", { type: "button", "aria-label": label, title: label }, text);
    node.addEventListener("click", () => { action();
      control.schedule(); });
    return node;
  };
  const toggle = (text, name) => {
    const box = make("input", { type: "checkbox", checked: shared[name] });
    box.addEventListener("change", () => { shared[name] = box.checked;
      say_arrows(control);
      control.schedule(); });
    return make("label", { class: "toggle" }, box, text);
  };
  const arrows = sum(charts.map((chart) => chart.arrows.length));
  const has_path = charts.some((chart) => chart.timeline.path.length);
  const middle = () => (shared.t0 + shared.t1) / 2;
  control.arrow_note = make("span", { class: "hint" });
  return make("div", { class: "timeline" }, make("div", { class: "bar",
    role: "toolbar", "aria-label": "Timeline" },
    button("+", "Zoom in (key +)", () => zoom(control, 0.5, middle())),
    button("−", "Zoom out (key -)", () => zoom(control, 2, middle())),
    button("◂", "Earlier (arrow left)", () => pan(control, -0.25)),
    button("▸", "Later (arrow right)", () => pan(control, 0.25)),
    button("Whole step", "Show the whole step (key 0)", () => set_range(control, 0, shared
      .full)),
    arrows ? toggle(make("span", {}, "Deferred parts (", figure("deferred-parts", arrows,
      count_text(arrows)), ")"), "show_arrows") : null,
    has_path ? toggle("Critical path", "show_path") : null, control.arrow_note,
    make("span", { class: "hint long" },
      "Drag to pan. Ctrl + wheel zooms; after a click on the timeline the wheel alone does, until Esc."
      )));
}

function legend(charts) {
  const keys = [];
  const seen = new Set();
  const once = (id, make_key) => { if (!seen.has(id)) { seen.add(id);
      keys.push(make_key()); } };
  const operations = charts.flatMap(({ timeline, used }) => [...used].map((id) => {
    const [module, kind] = id.split(" ").map(Number);
    return { module, kind, timeline, text: module < 0 ? KINDS[kind] :
        `${timeline.modules[module]} ${KINDS[kind]}` };
  }));
  operations.sort((a, b) => (a.module < 0) - (b.module < 0) || a.module - b.module || a.kind - b
    .kind);
  for (const { module, kind, timeline, text } of operations) once(text, () => key(
    `var(${style_of(timeline.modules, kind, module)})`, text));
  const waits = new Set(charts.flatMap((chart) => [...chart.waits]));
  for (const cause of [...waits].sort()) once(`wait ${cause}`, () => key(`var(--w-${WAITS[cause]})`,
    WAIT_WORDS[cause], "strip"));
  if (charts.some((chart) => chart.arrows.length)) keys.push(key("var(--arrow)",
    "features used in a later slot (deferred)", "line"));
  if (charts.some((chart) => chart.timeline.path.length)) keys.push(key("var(--path)",
    "critical path, where switched on", "line"));
  return make("div", { class: "keys", "aria-label": "Legend" }, keys);
}

function say_arrows(control) {
  const { shared, charts } = control;
  if (!control.arrow_note) return;
  const crowded = shared.show_arrows && charts.some((chart) => chart.arrows.filter((arrow) => arrow
    .end >= shared.t0 && arrow.begin <= shared.t1).length > MAX_ARROWS);
  control.arrow_note.textContent = crowded ?
    "Many arrows: zoom in, or point at an operation to see its own." : "";
}

function set_range(control, t0, t1) {
  const { shared } = control;
  const range = Math.max(Math.min(200, shared.full), Math.min(shared.full, t1 - t0));
  shared.t0 = Math.max(0, Math.min(shared.full - range, t0));
  shared.t1 = shared.t0 + range;
  say_arrows(control);
  control.schedule();
}

function zoom(control, factor, time) {
  const { t0, t1 } = control.shared;
  set_range(control, time - (time - t0) * factor, time + (t1 - time) * factor);
}

function pan(control, fraction) {
  const { t0, t1 } = control.shared;
  set_range(control, t0 + (t1 - t0) * fraction, t1 + (t1 - t0) * fraction);
}

function time_at(chart, x) {
  const { t0, left, scale } = chart.frame;
  return t0 + (Math.max(left, x) - left) / scale;
}

// The operation or wait under a point of the canvas; an operation within three pixels is preferred to a wait.
function hit(chart, x, y) {
  const lane = chart.lanes.find((row) => y >= row.y - 2 && y < row.y + row.height + 1);
  if (!lane || x < chart.frame.left) return null;
  const time = time_at(chart, x);
  if (time > chart.timeline.makespan_ns) return null;
  const reach = 3 / chart.frame.scale;
  const event = first_after(lane, time);
  const inside = event < lane.end.length && lane.begin[event] <= time;
  if (inside) return { chart, lane, event, waiting: false };
  const start = event ? lane.end[event - 1] : 0;
  const stop = event < lane.end.length ? lane.begin[event] : chart.timeline.makespan_ns;
  if (stop - start > 4 * reach) return { chart, lane, event, waiting: true };
  if (event > 0 && time - start <= reach) return { chart, lane, event: event - 1, waiting: false };
  return event < lane.end.length ? { chart, lane, event, waiting: false } : { chart, lane, event,
    waiting: true };
}

function select(control, selected) {
  control.shared.selected = selected;
  show_selected(control);
  control.schedule();
}

function listen(control, chart) {
  const { shared } = control;
  const { canvas } = chart;
  const fingers = new Map();
  let moved = 0;
  let pinch = 0;
  const point = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box
      .left, event.clientY - box.top
    ]; };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    fingers.set(event.pointerId, point(event));
    canvas.setPointerCapture(event.pointerId);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = point(event);
    const before = fingers.get(event.pointerId);
    if (!before) {
      if (event.pointerType === "mouse" && !shared.pinned) { const found = hit(chart, x,
        y); if (found) select(control, found); }
      return;
    }
    moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
    fingers.set(event.pointerId, [x, y]);
    if (fingers.size === 2) {
      const [a, b] = [...fingers.values()];
      const wide = Math.hypot(a[0] - b[0], a[1] - b[1]);
      if (pinch > 0 && wide > 0) zoom(control, pinch / wide, time_at(chart, (a[0] + b[0]) / 2));
      pinch = wide;
    } else if (moved > 3) {
      const shift = (before[0] - x) / chart.frame.scale;
      set_range(control, shared.t0 + shift, shared.t1 + shift);
    }
  });
  const release = (event) => {
    if (!fingers.delete(event.pointerId)) return;
    pinch = 0;
    if (event.type !== "pointerup" || moved > 3 || fingers.size) return;
    const found = hit(chart, ...point(event));
    shared.pinned = Boolean(found) && event.pointerType === "mouse" && !(shared.pinned &&
      same_place(found, shared.selected));
    if (found) select(control, found);
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("dblclick", () => zoom_to_selected(control));
  canvas.addEventListener("wheel", (event) => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!sideways && !event.ctrlKey && !event.metaKey && document.activeElement !== canvas)
      return;
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 20 : 1;
    if (sideways) pan(control, (lines * event.deltaX) / canvas.clientWidth);
    else zoom(control, Math.exp(Math.max(-120, Math.min(120, lines * event.deltaY)) / 300),
      time_at(chart, point(event)[0]));
  }, { passive: false });
  canvas.addEventListener("focus", () => {
    if (!shared.selected && canvas.matches(":focus-visible")) select(control, { chart,
      lane: chart.lanes[0], event: 0, waiting: !chart.lanes[0].end.length });
  });
  canvas.addEventListener("keydown", (event) => { if (!event.ctrlKey && !event.metaKey && !event
      .altKey && on_key(control, chart, event.key)) event.preventDefault(); });
}

const same_place = (a, b) => Boolean(a && b) && a.lane === b.lane && a.event === b.event && a
  .waiting === b.waiting;

function on_key(control, chart, name) {
  const { shared } = control;
  const middle = (shared.t0 + shared.t1) / 2;
  const actions = {
    ArrowLeft: () => pan(control, -0.2),
    ArrowRight: () => pan(control, 0.2),
    "+": () => zoom(control, 0.6, middle),
    "=": () => zoom(control, 0.6, middle),
    "-": () => zoom(control, 1 / 0.6, middle),
    0: () => set_range(control, 0, shared.full),
    Home: () => set_range(control, 0, shared.t1 - shared.t0),
    End: () => set_range(control, shared.full - (shared.t1 - shared.t0), shared.full),
    ArrowUp: () => move_lane(control, chart, -1),
    ArrowDown: () => move_lane(control, chart, 1),
    ",": () => move_event(control, chart, -1),
    ".": () => move_event(control, chart, 1),
    Enter: () => zoom_to_selected(control),
    Escape: () => { shared.pinned = false;
      chart.canvas.blur(); },
  };
  if (!actions[name]) return false;
  actions[name]();
  return true;
}

function move_lane(control, chart, by) {
  const old = control.shared.selected?.chart === chart ? control.shared.selected : { chart,
    lane: chart.lanes[0], event: 0, waiting: false };
  const lane = chart.lanes[Math.max(0, Math.min(chart.lanes.length - 1, old.lane.index + by))];
  const event = Math.min(lane.end.length - 1, first_after(lane, selected_range(old)[0]));
  select(control, { chart, lane, event: Math.max(0, event), waiting: event < 0 });
}

function move_event(control, chart, by) {
  const old = control.shared.selected?.chart === chart ? control.shared.selected : { chart,
    lane: chart.lanes[0], event: -by, waiting: false };
  const last = old.lane.end.length - 1;
  if (last < 0) return;
  const event = Math.max(0, Math.min(last, old.event + by));
  select(control, { ...old, event, waiting: false });
  const { shared } = control;
  const [begin, end] = [old.lane.begin[event], old.lane.end[event]];
  if (begin < shared.t0 || end > shared.t1) { const half = (shared.t1 - shared.t0) / 2;
    set_range(control, (begin + end) / 2 - half, (begin + end) / 2 + half); }
}

function zoom_to_selected(control) {
  if (!control.shared.selected) return;
  const [begin, end] = selected_range(control.shared.selected);
  set_range(control, begin - 4 * (end - begin), end + 4 * (end - begin));
}

function show_selected({ panel, shared }) {
  panel.replaceChildren(...(shared.selected ? [...describe(shared.selected), ...(shared.pinned ? [
    make("span", {}, "(kept until you click it again)")
  ] : [])] : [make("span", {},
    "Point at, tap or focus an operation or a wait to read what it is.")]));
}

function describe({ chart, lane, event, waiting }) {
  const { units, modules, samples } = chart.timeline;
  const line = (...parts) => make("span", {}, ...parts);
  const time = (name, ns) => make("b", {}, figure(name, ns, time_text(ns)));
  const [begin, end] = selected_range({ chart, lane, event, waiting });
  const where = line(chart.title, ", ", lane.name);
  const span = [line("starts at ", time("selected-start", begin)), line("takes ", time(
    "selected-duration", end - begin))];
  const named = (i) => {
    const u = lane.unit[i];
    const module = u >= 0 ? units.module[u] : -1;
    return module < 0 ? KINDS[lane.kind[i]] :
      `${modules[module]} stage ${units.stage[u]}, slot ${units.slot[u]}, ${KINDS[lane.kind[i]]}`;
  };
  if (waiting) {
    const last = event >= lane.end.length;
    return [line(make("b", {}, last ? "Drain" : "Wait")), where, ...span, line(WAIT_WORDS[last ?
        DRAIN : lane.wait[event]] || "no reason is known"),
      last ? null : line("then ", named(event))
    ].filter(Boolean);
  }
  const gap = lane.begin[event] - (event ? lane.end[event - 1] : 0);
  const result = [line(make("b", {}, named(event))), where, ...span,
    gap > 0 ? line("before it the lane is idle for ", time("selected-wait", gap), lane.wait[
      event] ? `: ${WAIT_WORDS[lane.wait[event]]}` : "") : line("starts without a wait")
  ];
  const u = lane.unit[event];
  if (u >= 0) {
    if (Number.isFinite(units.tokens[u])) result.push(line(make("b", {}, figure("selected-tokens",
      units.tokens[u], count_text(units.tokens[u]))), " tokens"));
    const part = units.part[u] || [];
    if (part.length && units.module[u] !== llm_index(modules)) {
      const late = part.some((slot) => slot > units.slot[u]);
      result.push(line(
        `its outputs go to LLM ${part.length > 1 ? "slots" : "slot"} ${part.join(", ")}${late ? " (deferred)" : ""}`
        ));
    }
    if (lane.on_path.has(event)) result.push(line("on the critical path"));
    const ids = units.samples[u] || [];
    if (ids.length) result.push(make("span", { class: "wide" }, `${plural(ids.length, "sample")}: `,
      make("b", {}, ids.slice(0, 200).map((id) => clip(samples[id] ?? `#${id}`, 120)).join(
        ", "))));
  }
  return result;
}