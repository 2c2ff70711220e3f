// Line charts over steps and over time, in SVG. Read first: line_chart().

const CHART_HEIGHT = 168;

// Points to draw: at most two a pixel column, the least and the greatest, so that no peak is lost. Unknown values break the line.
function thin(x, y, x_at, y_at) {
  let path = "";
  let column = null;
  let open = false;
  let low, high, first, last, column_x;
  const put = (px, py) => { path += `${open ? "L" : "M"}${px.toFixed(1)} ${y_at(py).toFixed(1)}`;
    open = true; };
  const flush = () => {
    if (column === null) return;
    put(column_x, first);
    if (low !== high) { put(column_x, low);
      put(column_x, high);
      put(column_x, last); }
    column = null;
  };
  for (let k = 0; k < x.length; ++k) {
    if (!Number.isFinite(y[k])) { flush();
      open = false; continue; }
    const px = x_at(x[k]);
    const here = Math.floor(px);
    if (here !== column) { flush();
      column = here;
      column_x = px;
      low = high = first = last = y[k]; } else { low = Math.min(low, y[k]);
      high = Math.max(high, y[k]);
      last = y[k]; }
  }
  flush();
  return path;
}

// A chart. lines: [{name, x, y, colour, dashed, dots, said}], `said` being words for the legend; bands: [{low, high, colour}]; text(value) gives a value with its unit.
function line_chart({ id, title, unit, lines, bands = [], text, from_zero = false, said = null }) {
  const shown = lines.filter((line) => known(line.y).length);
  if (!shown.length) return null;
  const values = shown.map((line) => known(line.y));
  const spread = values.map((list) => [quantile(list, 0.005), quantile(list, 0.995), smallest(list),
    largest(list)
  ]);
  const x_low = smallest(shown.map((line) => smallest(line.x)));
  const x_high = Math.max(x_low + 1, largest(shown.map((line) => largest(line.x))));
  let y_low = from_zero ? 0 : smallest(spread.map((s) => s[2]));
  let y_high = largest(spread.map((s) => s[3]));
  if (!(y_high > y_low)) { const pad = Math.abs(y_high) * 0.1 || 1;
    y_high += pad; if (!from_zero) y_low -= pad; }
  const step = tick_step(y_high - y_low, 5);
  y_low = Math.floor(y_low / step + 1e-9) * step;
  y_high = Math.ceil(y_high / step - 1e-9) * step;
  const svg = make("svg:svg", { role: "img",
  tabindex: "0", "aria-label": `${title} over steps ${x_low} to ${x_high}. ${shown.map((line, k) => `${line.name}: ${text(spread[k][2])} to ${text(spread[k][3])}, last ${text(values[k][values[k].length - 1])}`).join("; ")}. Arrow keys read single steps.` });
  const read = make("p", { class: "read", "aria-live": "polite" });
  const state = { at: null };
  const rest = () => read.replaceChildren(...(said || []));
  const draw = (printing) => {
    const width = printing ? 420 : Math.max(240, svg.clientWidth || 400);
    const [left, right, top, bottom] = [52, width - 8, 8, CHART_HEIGHT - 20];
    state.x_at = (x) => left + ((x - x_low) / (x_high - x_low)) * (right - left);
    state.y_at = (y) => bottom - ((y - y_low) / (y_high - y_low)) * (bottom - top);
    state.back = (px) => x_low + ((px - left) / (right - left)) * (x_high - x_low);
    Object.assign(state, { top, bottom });
    svg.setAttribute("viewBox", `0 0 ${width} ${CHART_HEIGHT}`);
    const parts = [];
    for (const tick of ticks(y_low, y_high, 5)) {
      const y = state.y_at(tick);
      parts.push(make("svg:line", { class: "grid", x1: left, x2: right, y1: y, y2: y }), make(
        "svg:text", { x: left - 6, y: y + 4, "text-anchor": "end" }, digits(Math.abs(tick) <
          step / 1e6 ? 0 : tick, 4)));
    }
    for (const tick of ticks(x_low, x_high, width / 90).filter((value) => Number.isInteger(
      value))) {
      parts.push(make("svg:text", { x: state.x_at(tick), y: bottom + 15, "text-anchor": state
          .x_at(tick) > right - 12 ? "end" : state.x_at(tick) < left + 4 ? "start" :
          "middle" }, count_text(tick)));
    }
    parts.push(make("svg:text", { x: left - 6, y: bottom + 15, "text-anchor": "end" }, "step"));
    parts.push(make("svg:line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
    for (const band of bands) {
      parts.push(make("svg:rect", { x: left, width: right - left, y: state.y_at(band.high),
        height: Math.max(1, state.y_at(band.low) - state.y_at(band.high)),
        style: { fill: band.colour, opacity: 0.13 } }));
    }
    for (const line of shown) {
      parts.push(make("svg:path", { d: thin(line.x, line.y, state.x_at, state.y_at),
      fill: "none", "stroke-linejoin": "round", "stroke-dasharray": line.dashed ? "5 3" :
          null, style: { stroke: line.colour, "stroke-width": line.dots ? 1 : 1.4 } }));
      if (line.dots && line.x.length <= 200) {
        line.x.forEach((x, k) => { if (Number.isFinite(line.y[k])) parts.push(make(
          "svg:circle", { cx: state.x_at(x), cy: state.y_at(line.y[k]), r: 3,
            style: { fill: line.colour } })); });
      }
    }
    state.cursor = make("svg:g", {});
    svg.replaceChildren(...parts, state.cursor);
    if (state.at !== null) point_at(state.at);
  };
  const point_at = (x) => {
    const main = shown[0];
    const place = Math.max(0, nearest(main.x, x));
    state.at = main.x[place];
    const px = state.x_at(state.at);
    const marks = [make("svg:line", { class: "cursor", x1: px, x2: px, y1: state.top, y2: state
        .bottom })];
    const words = [make("span", {}, "step ", make("b", {}, count_text(state.at)))];
    for (const line of shown) {
      const k = nearest(line.x, state.at);
      const value = line.y[k];
      const exact = line.x[k] === state.at;
      if (!Number.isFinite(value)) { words.push(`, ${line.name} not known`); continue; }
      marks.push(make("svg:circle", { cx: state.x_at(line.x[k]), cy: state.y_at(value), r: 3,
        style: { fill: line.colour } }));
      words.push(`, ${line.name} `, make("b", {}, figure(`${id}-at-step`, value, text(value))),
        exact ? "" : ` (step ${line.x[k]})`);
    }
    state.cursor.replaceChildren(...marks);
    read.replaceChildren(...words);
  };
  const leave = () => { state.at = null;
    state.cursor?.replaceChildren();
    rest(); };
  svg.addEventListener("pointermove", (event) => { const box = svg.getBoundingClientRect();
    point_at(state.back(event.clientX - box.left)); });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 } [event.key];
    if (!by) return;
    event.preventDefault();
    const x = shown[0].x;
    const old = state.at === null ? (by > 0 ? -1 : x.length) : nearest(x, state.at);
    point_at(x[Math.max(0, Math.min(x.length - 1, old + by))]);
  });
  rest();
  redraws.push(draw);
  const shape = (line) => (line.dots ? "dot" : line.dashed ? "line dashed" : "line");
  const keys = shown.length > 1 ? make("div", { class: "keys" }, shown.map((line) => key(line
    .colour, line.said ? make("span", {}, `${line.name}: `, ...line.said) : line.name, shape(
      line)))) : null;
  return make("div", { class: "chart" }, make("h3", {}, title, make("span", { class: "hint" },
    unit ? `  ${unit}` : "")), svg, keys, read);
}

// The place in an increasing list that is nearest to a value.
function nearest(list, value) {
  let low = 0;
  let high = list.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low > 0 && Math.abs(list[low - 1] - value) <= Math.abs(list[low] - value) ? low - 1 : low;
}

function last_known(list) {
  for (let k = (list || []).length - 1; k >= 0; --k)
    if (Number.isFinite(list[k])) return list[k];
  return NaN;
}

// The charts of runs. With several views each chart has a line a view.
function steps_section(views) {
  const runs = views.flatMap((view, index) => (view.steps && view.steps.step.length ? [{ view,
    index, steps: view.steps }] : []));
  if (!runs.length) return null;
  const several = views.length > 1;
  const name = (run, text) => (several ? clip(run.view.name, 40) : text);
  const line = (run, list, text, options = {}) => ({ name: name(run, text), x: run.steps.step,
    y: run.steps[list] || [], colour: several ? view_colour(run.index) : "var(--view-0)", ...
    options });
  const said = (id, list, text, value) => (Number.isFinite(value) ? [`${list} `, make("b", {},
    figure(id, value, text(value)))] : []);
  const median = (list) => quantile(list, 0.5);
  const simple = (id, list, title, unit, text, options = {}) => {
    const words = (run) => said(`${id}-median`, "median", text, median(known(run.steps[list])));
    return line_chart({ id, title, unit, text, lines: runs.map((run) => line(run, list, title,
          several ? { said: words(run) } : {})), said: several ? [] : words(runs[0]), ...
        options });
  };
  const number = (value) => digits(value, 4);
  const charts = [
    loss_chart(runs, several, line, said, number),
    step_time_chart(runs, several, line, said),
    simple("tokens-per-second", "llm_tokens_per_s", "LLM tokens per second", "tokens/s", (v) =>
      `${digits(v)} tokens/s`),
    simple("samples-per-second", "samples_per_s", "Samples per second", "samples/s", (v) =>
      `${digits(v)} samples/s`),
    simple("grad-norm", "grad_norm", "Gradient norm", "", number),
    simple("bubble", "bubble", "Bubble", "fraction of the step that lanes are idle",
    percent, { from_zero: true }),
    simple("data-wait", "data_wait_s", "Waiting for data", "seconds a step",
    seconds_text, { from_zero: true }),
    simple("deferred", "deferred", "Deferred parts", "per step", number, { from_zero: true }),
    simple("learning-rate", "learning_rate", "Learning rate", "", number),
    ...busy_charts(runs, several),
  ].filter(Boolean);
  return charts.length ? section("steps", "Steps of the run", null, make("div", { class: "charts" },
    charts)) : null;
}

function loss_chart(runs, several, line, said, number) {
  const lines = runs.flatMap((run) => {
    const { loss, validation } = run.steps;
    const training = line(run, "loss", "training", { said: said("loss-last", "last", number,
        last_known(loss)) });
    if (!validation?.step.length) return [training];
    return [training, {
      ...training,
      name: several ? `${clip(run.view.name, 34)}, validation` : "validation",
      x: validation.step,
      y: validation.loss,
      dots: true,
      said: said("validation-loss-last", "last", number, last_known(validation.loss)),
      ...(several ? {} : { colour: "var(--view-1)" })
    }];
  });
  return line_chart({ id: "loss", title: "Loss", unit: "", text: number, lines, said: lines
      .length === 1 ? lines[0].said : [] });
}

function step_time_chart(runs, several, line, said) {
  const bands = [];
  const spread = (id, list) => {
    const values = known(list);
    if (!values.length) return [];
    const [low, high] = [0.05, 0.95].map((fraction) => quantile(values, fraction));
    if (id === "step" && !several) bands.push({ low, high, colour: "var(--view-0)" });
    return [...said(`${id}-median`, "median", seconds_text, quantile(values, 0.5)), ", p5–p95 ",
      figure(`${id}-p5`, low, seconds_text(low)), " to ", figure(`${id}-p95`, high,
        seconds_text(high))
    ];
  };
  const lines = runs.flatMap((run) => {
    const { step_s, predicted_step_s, lower_bound_s } = run.steps;
    const result = [line(run, "step_s", "measured", { said: spread("step", step_s) })];
    if (known(predicted_step_s).length) result.push(line(run, "predicted_step_s",
    "predicted", { dashed: true, said: spread("step-predicted", predicted_step_s), ...(
        several ? { name: `${clip(run.view.name, 34)}, predicted` } :
        { colour: "var(--view-1)" }) }));
    if (!several && known(lower_bound_s).length) result.push(line(run, "lower_bound_s",
      "lower bound", { dashed: true, colour: "var(--view-5)", said: said(
          "step-bound-median", "median", seconds_text, quantile(known(lower_bound_s), 0.5)
          ) }));
    return result;
  });
  return line_chart({ id: "step", title: "Time per step", unit: bands.length ?
      "seconds; the band is p5 to p95 of measured steps" : "seconds", lines, bands, said: lines
      .length === 1 ? lines[0].said : [], text: seconds_text });
}

// How long each lane is busy in each step; only for one view and few lanes.
function busy_charts(runs, several) {
  if (several) return [];
  const lanes = runs[0].steps.lanes_busy_s || [];
  if (!lanes.length || lanes.length > 6) return [];
  return [line_chart({
    id: "lane-busy",
    title: "Busy time of each lane",
    unit: "seconds a step",
    text: seconds_text,
    from_zero: true,
    lines: lanes.map((lane, k) => ({ name: `replica ${lane.replica} lane ${lane.lane}`,
      x: runs[0].steps.step, y: lane.busy_s, colour: view_colour(k) }))
  })];
}