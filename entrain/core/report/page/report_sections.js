// The sections of the page, top to bottom, and its start. Read first: start(), at the end.

const CAUSES = {
  fill: "Before its first operation the lane waits for the first microbatch to pass the stages before it.",
  drain: "After its last operation the lane waits for other lanes to finish the step.",
  oversized: "The lane waits for a microbatch that alone is heavier than a mean slot, usually because of one large sample.",
  uneven: "Samples cannot be divided, so this replica has more work than the mean one, or the lane waits for a slot with more work than the mean.",
  order: "The lane waits for operations that come earlier in the order of other lanes.",
  launches: "Every operation costs a constant time, however small its samples are.",
  links: "The lane waits while a message from another lane is in flight.",
};
const LANE_PARTS = [
  ["forward_ns", "forward", "--l-forward"],
  ["backward_ns", "backward", "--l-backward"],
  ["reduction_ns", "gradient reduction", "--l-reduction"],
  ["optimizer_ns", "optimizer", "--l-optimizer"],
  ["fill_ns", "fill", "--w-fill"],
  ["features_ns", "waits for features", "--w-features"],
  ["activation_ns", "waits for activations", "--w-activation"],
  ["gradient_ns", "waits for gradients", "--w-gradient"],
  ["drain_ns", "drain", "--w-drain"]
];
// Of the bubble, as docs/simulate.md defines it: neither forward nor backward runs.
const IDLE_PARTS = ["reduction_ns", "optimizer_ns", "fill_ns", "features_ns", "activation_ns", "gradient_ns", "drain_ns"];
const lane_title = (lane) =>
  `replica ${lane.replica} lane ${lane.lane}: ${lane.stages ?? lane.name}`;

function page_head(report) {
  const theme = make("button", { type: "button", class: "theme" });
  const label = () => { theme.textContent = root.dataset.theme === "dark" ? "Light colours" :
      "Dark colours"; };
  theme.addEventListener("click", () => { set_theme(root.dataset.theme === "dark" ? "light" :
      "dark");
    label();
    redraw_all(); });
  label();
  return make("header", { class: "top" }, make("h1", {}, report.title), report.made_by ? make(
    "span", { class: "by" }, report.made_by) : null, theme);
}

// `named`: something else is on the page, too.
function summary_of(views, named) {
  const several = views.length > 1;
  const warnings = views.flatMap((view) => view.warnings.map((text) => make("li", {}, make("b", {},
    "Warning"), several ? `, ${view.name}: ` : ": ", text)));
  return make("div", { class: "summary" },
    named && !several ? make("h2", {}, views[0].name) : null, several ?
    make("div", { class: "views many" }, views.map((view, index) => make("div", {}, view_heading(
      view, index, true), headlines(view)))) :
    headlines(views[0]),
    warnings.length ? make("ul", { class: "warnings", "aria-label": "Warnings" }, warnings) :
    null,
    several ? null : facts_list(views[0].facts));
}

const headlines = (view) => view.headline.map((text) => make("p", { class: "headline" }, text));

function facts_list(facts) {
  if (!facts.length) return null;
  return make("dl", { class: "facts" }, facts.map(([name, value]) => make("div", {}, make("dt", {},
    name), make("dd", {}, figure(`fact-${name}`, value, breakable(value))))));
}

// Share of all lanes' time in a step without forward and backward, from the best source that the view has.
function idle_fraction(view) {
  if (view.lanes.length) {
    const busy = sum(view.lanes.map((lane) => sum(LANE_PARTS.map(([name]) => (IDLE_PARTS.includes(
      name) ? 0 : lane[name] || 0)))));
    const idle = sum(view.lanes.map((lane) => sum(IDLE_PARTS.map((name) => lane[name] || 0))));
    return busy + idle > 0 ? idle / (busy + idle) : NaN;
  }
  return quantile(known(view.steps?.bubble), 0.5);
}

// The table at the head of a comparison of runs or of indices: only the columns that some view has.
function comparison(views) {
  if (views.length < 2) return null;
  const median = (list) => quantile(known(list), 0.5);
  const made = (label) => (view) => view.timelines.find((timeline) => timeline.label === label)
    ?.makespan_ns ?? NaN;
  // Runs are compared by what they measured, over all their steps.
  const measured = (view) => 1e9 * median(view.steps?.step_s);
  const runs = views.every((view) => Number.isFinite(measured(view)));
  const predicted = (view) => view.gap?.step_ns ?? made("predicted")(view);
  const step = runs ? measured : predicted;
  const columns = [
    [runs ? "median measured step" : "predicted step", "compared-step", step, time_text],
    ["ratio to the first", "compared-ratio", (view) => step(view) / step(views[0]), (v) =>
      `${v.toFixed(3)} ×`
    ],
    ...(runs ? [["drawn step, predicted", "compared-predicted", predicted, time_text]] : []),
    ["lower bound", "compared-bound", (view) => view.gap?.bound_ns ?? 1e9 * median(view.steps
      ?.lower_bound_s), time_text],
    ["step over bound", "compared-over-bound", (view) => (view.gap ? view.gap.step_ns / view.gap
      .bound_ns : NaN), (v) => `${v.toFixed(3)} ×`],
    ["bubble", "compared-idle", idle_fraction, percent],
    ["drawn step, measured", "compared-measured", made("measured"), time_text],
    ["median tokens/s", "compared-tokens-per-second", (view) => median(view.steps
      ?.llm_tokens_per_s), (v) => digits(v)],
    ["median data wait", "compared-data-wait", (view) => median(view.steps?.data_wait_s),
      seconds_text
    ],
    ["last loss", "compared-loss", (view) => last_known(view.steps?.loss), (v) => digits(v, 4)],
    ["last validation loss", "compared-validation-loss", (view) => last_known(view.steps
      ?.validation?.loss), (v) => digits(v, 4)],
    ["highest memory peak", "compared-memory-peak", (view) => largest(memory_lanes(view).map((
      lane) => largest(lane.curves.map((curve) => curve.peak)))), bytes_text],
  ].filter(([, , value]) => views.some((view) => Number.isFinite(value(view))));
  const cell = (view, [, name, value, text]) => (Number.isFinite(value(view)) ? figure(name, value(
    view), text(value(view))) : null);
  const heads = views.map((view, index) => make("span", { class: "viewname",
    style: { "--color": view_colour(index) } }, make("span", {}, breakable(view.name))));
  const all = views.map((_, k) => k + 1);
  const figures = !columns.length ? null : views.length <= 5 ?
    table(["", ...heads], columns.map((column) => [column[0], ...views.map((view) => cell(view,
      column))]), { numeric: all, label: "The views compared" }) :
    table(["view", ...columns.map(([title]) => title)], views.map((view, index) => [heads[index],
      ...columns.map((column) => cell(view, column))
    ]), { numeric: columns.map((_, k) => k + 1), label: "The views compared" });
  const names = [...new Set(views.flatMap((view) => view.facts.map(([name]) => name)))];
  const facts = names.map((name) => {
    const values = views.map((view) => view.facts.find(([fact]) => fact === name)?.[1] ?? null);
    return { class: new Set(values).size > 1 ? "differs" : null, cells: [name, ...values.map((
        value) => (value === null ? null : figure(`fact-${name}`, value, breakable(value))))] };
  });
  const [id, title] = is_index(views[0]) ? ["data-comparison", "Comparison of the data"] : [
    "comparison", "Comparison"
  ];
  return section(id, title, null, make("div", { class: "pair" },
    figures && make("div", {}, figures),
    names.length ? make("div", {}, table(["settings; rows that differ are bold", ...views.map((
      view) => make("span", {}, breakable(view.name)))], facts, { label: "Settings of the views" })) : null));
}

// How the causes and the bound make up the step: step = (bound - in_bound) + causes + rest.
// What the bound has beyond the lane's work is `rest`.
function gap_parts({ step_ns, bound_ns, causes }) {
  const total = sum(causes.map((cause) => cause.ns));
  const in_bound = Math.max(0, total - (step_ns - bound_ns));
  const rest = Math.max(0, step_ns - bound_ns - total);
  return { in_bound, rest, work: bound_ns - in_bound };
}

function gap_section(views) {
  const shown = views.flatMap((view, index) => (view.gap ? [{ view, index, gap: view.gap, ...
    gap_parts(view.gap) }] : []));
  if (!shown.length) return null;
  const several = views.length > 1;
  const longest = largest(shown.map(({ gap }) => gap.step_ns));
  const known_causes = [...new Set([...Object.keys(CAUSES), ...shown.flatMap(({ gap }) => gap.causes
    .map((cause) => cause.cause))])];
  const causes = known_causes.filter((name) => shown.some(({ gap }) => gap.causes.some((cause) =>
    cause.cause === name && cause.ns > 0)));
  const of = (gap, name) => sum(gap.causes.filter((cause) => cause.cause === name).map((cause) =>
    cause.ns));
  const colour_of = (name) => (name in CAUSES ? `--c-${name}` : "--c-rest");
  const bars = shown.map(({ view, index, gap, in_bound, rest, work }) => {
    const words = make("p", {}, "The step takes ", make("b", {}, figure("gap-step", gap.step_ns,
        time_text(gap.step_ns))), ", the lower bound is ", make("b", {}, figure("gap-bound",
        gap.bound_ns, time_text(gap.bound_ns))),
      ": ", figure("gap-ratio", gap.step_ns / gap.bound_ns,
        `${(gap.step_ns / gap.bound_ns).toFixed(3)} ×`), " the bound. ",
      ...(in_bound > 0.0005 * gap.step_ns ? ["The bound includes ", figure("gap-in-bound",
          in_bound, time_text(in_bound)), " of the causes below, which no order avoids."] :
      []));
    const parts = [{ name: in_bound > 0 ? "work, without the causes" : "lower bound",
        value: work, colour: "--c-bound", text: time_text(work) },
      ...causes.map((name) => ({ name, value: of(gap, name), colour: colour_of(name),
        text: time_text(of(gap, name)) })),
      { name: "beside the bound", value: rest, colour: "--c-rest", text: time_text(rest) }
    ];
    return make("div", { class: "gaprow" }, view_heading(view, index, several), words,
      make("div", { style: { "margin-top": "6px" } }, stacked_bar(parts, longest,
        `Step of ${view.name}`)));
  });
  const rows = causes.map((name) => [key(`var(${colour_of(name)})`, name),
    ...shown.flatMap(({ gap }) => [figure(`gap-${name}`, of(gap, name), time_text(of(gap,
      name))), figure(`gap-${name}-fraction`, of(gap, name) / gap.step_ns, percent(of(gap,
      name) / gap.step_ns))]),
    make("span", { class: "said" }, CAUSES[name] || "")
  ]);
  if (shown.some(({ rest }) => rest > 0)) {
    rows.push([key("var(--c-rest)", "beside the bound"), ...shown.flatMap(({ gap, rest }) => [figure(
      "gap-rest", rest, time_text(rest)), figure("gap-rest-fraction", rest / gap.step_ns,
      percent(rest / gap.step_ns))]), make("span", { class: "said" },
      "The lane has this much more to do than the bound counts.")]);
  }
  const note = "In the predicted step, on the busiest lane of the slowest replica. The grey part of a bar is work; the coloured parts are the causes below.";
  const block = make("div", { style: { "margin-top": "12px" } }, bars);
  if (shown.length > 2) { // a row a view, since columns of all would not fit
    const cases = shown.map(({ view, index, gap }) => [view_heading(view, index, true), ...causes
      .map((name) => figure(`gap-${name}`, of(gap, name),
        `${time_text(of(gap, name))}, ${percent(of(gap, name) / gap.step_ns)}`))
    ]);
    return section("gap", "Where the gap to the bound goes", note, block, table(["time, of the step",
        ...causes], cases, { numeric: causes.map((_, k) => k + 1), label: "Causes of the gap" }),
      make("ul", { class: "list" }, causes.map((name) => make("li", {}, make("b", {}, name), ": ",
        CAUSES[name] || ""))));
  }
  const headings = ["cause", ...shown.flatMap(({ view }) => [several ? clip_front(view.name, 28) : "time",
    "of the step"
  ]), "in words"];
  return section("gap", "Where the gap to the bound goes", note, block,
    table(headings, rows, { numeric: shown.flatMap((_, k) => [2 * k + 1, 2 * k + 2]),
      class: several ? "causes" : "causes one", label: "Causes of the gap" }));
}

function lanes_section(views) {
  if (!views.some((view) => view.lanes.length)) return null;
  const length = (lane) => sum(LANE_PARTS.map(([name]) => lane[name] || 0));
  const whole = Math.max(1, largest(views.flatMap((view) => view.lanes.map(length))));
  const used = LANE_PARTS.filter(([name]) => views.some((view) => view.lanes.some((lane) => lane[
    name] > 0)));
  const block = (view) => {
    let replica = null;
    const idle = idle_fraction(view);
    const rows = view.lanes.flatMap((lane) => {
      const parts = LANE_PARTS.map(([name, text, style]) => ({ name: text, value: lane[
          name] || 0, colour: style, text: time_text(lane[name] || 0) }));
      const busy = sum(LANE_PARTS.map(([name]) => (IDLE_PARTS.includes(name) ? 0 : lane[
        name] || 0)));
      const share = length(lane) > 0 ? busy / length(lane) : 0;
      const head = lane.replica !== replica ? [make("div", { class: "group" },
        `replica ${lane.replica}`)] : [];
      replica = lane.replica;
      return [...head, make("span", { class: "name" }, `lane ${lane.lane}: ${lane.stages}`),
        stacked_bar(parts, whole, lane_title(lane)), make("span", { class: "end" }, figure(
          "lane-busy-fraction", share, `${digits(100 * share, 2)} % busy`))
      ];
    });
    return [make("p", { class: "note" }, "Bubble: for ", figure("idle-fraction", idle,
      percent(idle)), " of the lanes' time neither forward nor backward runs."), make(
    "div", { class: "lanes" }, rows)];
  };
  return section("lanes", "How each lane spends the predicted step", null,
    make("div", { class: "keys" }, used.map(([, text, style]) => key(`var(${style})`, text))),
    per_view(views, (view) => view.lanes.length > 0, block));
}

function plan_block(view) {
  const { lanes, certificate, runners_up } = view.plan;
  const bytes = (name, value) => (Number.isFinite(value) ? figure(name, value, bytes_text(value)) :
    null);
  const columns = [
      ["lane", (lane) => String(lane.lane)],
      ["stages", (lane) => lane.stages.map(({ module, stage, begin, end }) =>
        `${module} ${stage}: ${end - begin === 1 ? `layer ${begin}` : `layers ${begin} to ${end - 1}`}`).join("; ")],
      ["layers", (lane) => figure("plan-layers", sum(lane.stages.map((stage) => stage.end - stage
        .begin)), count_text(sum(lane.stages.map((stage) => stage.end - stage.begin))))],
      ["devices", (lane) => lane.devices],
      ["state", (lane) => bytes("plan-state", lane.state_bytes)],
      ["peak", (lane) => bytes("plan-peak", lane.peak_bytes)],
      ["limit", (lane) => bytes("plan-limit", lane.limit_bytes)]
    ]
    .filter(([name, cell]) => lanes.some((lane) => cell(lane) !== null) || name === "lane");
  return [lanes.length ? table(columns.map(([name]) => name), lanes.map((lane) => columns.map(([,
      cell
    ]) => cell(lane))), { numeric: columns.flatMap(([name], k) => (["layers", "state", "peak",
        "limit"
      ].includes(name) ? [k] : [])), label: "Lanes of the plan" }) : null,
    certificate.length ? make("ul", { class: "list plain" }, certificate.map((text) => make(
    "li", {}, text))) : null,
    ...(runners_up.length ? [make("p", { class: "sub" },
        "The next best plans, with their step time as a multiple of this one's:"),
      table(["plan", "step time", "simulated"], runners_up.map(({ what, ratio, how }) => [what,
        figure("runner-up-ratio", ratio, `${ratio.toFixed(3)} ×`), how]), { numeric: [1],
        label: "Runners-up" })
    ] : [])
  ];
}

function plan_section(views) {
  const blocks = per_view(views, (view) => view.plan !== null, plan_block);
  return blocks && section("plan", "The plan", null, blocks);
}

function drift_section(views) {
  const blocks = per_view(views, (view) => view.drift.length > 0, (view) => make(
  "ul", { class: "list" }, view.drift.map(({ step, what }) => make("li", {}, "step ", figure(
    "drift-step", step, count_text(step)), ": ", what))));
  return blocks && section("drift", "Drift", "Where the run differs from what was planned.",
  blocks);
}

// Draws the page; errors are said in words at its top.
async function start() {
  window.addEventListener("error", (event) => show_error(event.message));
  window.addEventListener("unhandledrejection", (event) => show_error(String(event.reason
    ?.message ?? event.reason)));
  set_theme(theme_of_page());
  try {
    const report = await read_data();
    const data = report.views.filter(is_index);
    const runs = report.views.filter((view) => !is_index(view));
    const groups = [runs, data].filter((views) => views.length);
    const page = document.getElementById("page");
    page.append(page_head(report), ...groups.map((views) => summary_of(views, groups.length > 1)));
    const parts = [...groups.map(comparison), ...[timelines_section, steps_section, gap_section,
      lanes_section, balance_section, memory_section, plan_section, drift_section
    ].map((draw) => draw(runs)), distributions_section(data)];
    page.append(...parts.filter((part) => part));
    redraw_all();
    follow_window();
    root.dataset.ready = "1";
  } catch (error) {
    console.error(error);
    show_error(error.message);
  }
}

// Redraws after a change of width, of the system's theme or of the address, and in light colours for print.
function follow_window() {
  let width = innerWidth;
  let queued = false;
  window.addEventListener("resize", () => {
    if (queued || innerWidth === width) return;
    queued = true;
    requestAnimationFrame(() => { queued = false;
      width = innerWidth;
      redraw_all(); });
  });
  let printing = false; // which is light, so that a dark scheme changes while the page is drawn for it
  const retheme = () => { if (printing) return;
    set_theme(theme_of_page());
    redraw_all(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", retheme);
  window.addEventListener("hashchange", retheme);
  let theme = root.dataset.theme;
  window.addEventListener("beforeprint", () => { printing = true;
    theme = root.dataset.theme;
    set_theme("light"); for (const redraw of redraws) redraw(true); });
  window.addEventListener("afterprint", () => { printing = false;
    set_theme(theme);
    redraw_all(); });
}