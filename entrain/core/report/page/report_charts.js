// Line charts over steps, in SVG, and how drawings are read. Read first: line_chart(), readable().

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

// Lets a drawing be read by pointing, touch and keys: `words` of a place are shown in `read`, its marks in the drawing.
// count() places, place_at(x, y) of a point in CSS pixels or -1, show(place) = {marks, words}, rest() the words at no
// place, keys: what further keys make of a place. Returns what to call after a redraw.
function readable(svg, read, { count, place_at, show, rest, keys = {} }) {
  const cursor = make("svg:g", {});
  let at = -1;
  const put = (place) => {
    at = Math.max(0, Math.min(count() - 1, place));
    const { marks, words } = show(at);
    cursor.replaceChildren(...marks);
    read.replaceChildren(...words);
  };
  const leave = () => { at = -1;
    cursor.replaceChildren();
    read.replaceChildren(...rest()); };
  const point = (event) => {
    const box = svg.getBoundingClientRect();
    const place = place_at(event.clientX - box.left, event.clientY - box.top);
    if (place < 0) leave();
    else put(place);
  };
  const moves = { ArrowLeft: (k) => k - 1, ArrowRight: (k) => k + 1, PageUp: (k) => k - 20,
    PageDown: (k) => k + 20, Home: () => 0, End: () => count() - 1, ...keys };
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") leave(); });
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
    if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    put(at >= 0 ? moves[event.key](at) : ["ArrowLeft", "End"].includes(event.key) ? count() -
      1 : 0);
  });
  leave();
  return () => { svg.append(cursor);
    if (at >= 0) put(at); };
}

const cursor_line = (x, y1, y2) => make("svg:line", { class: "cursor", x1: x, x2: x, y1, y2 });

// The axis of values from `low` to `high`: its ends, its ticks, and where a value is, 0 to 1 from its low end.
function value_axis(low, high, log) {
  if (log) {
    const whole = Math.log(high / low) || 1;
    return { low, high, ticks: log_ticks(low, high), part: (y) => Math.log(y / low) / whole };
  }
  const step = tick_step(high - low, 5);
  low = Math.floor(low / step + 1e-9) * step;
  high = Math.ceil(high / step - 1e-9) * step;
  const near_zero = (tick) => (Math.abs(tick) < step / 1e6 ? 0 : tick);
  return { low, high, ticks: ticks(low, high, 5).map(near_zero), part: (y) => (y - low) / (high -
      low) };
}

// Powers of ten, twice and five times them; ticks at equal distances where there are few of those.
function log_ticks(low, high) {
  const result = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; ++power)
    for (const unit of [1, 2, 5]) result.push(Number(`${unit}e${power}`));
  const inside = result.filter((tick) => tick >= low && tick <= high);
  if (inside.length < 3) return ticks(low, high, 5);
  return inside.length <= 8 ? inside : inside.filter((tick) => Number.isInteger(Math.log10(tick)));
}

// "1.5 s" and "2 s", where texts have "1.500 s" and "2.000 s".
const tick_time = (s) => seconds_text(s).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");

// Lines of an axis on the left, with its ticks as text.
function value_ticks(axis, y_at, left, right, text = (tick) => digits(tick, 4)) {
  return axis.ticks.flatMap((tick) => [make("svg:line", { class: "grid", x1: left, x2: right,
    y1: y_at(tick), y2: y_at(tick) }), make("svg:text", { x: left - 6, y: y_at(tick) + 4,
    "text-anchor": "end" }, text(tick))]);
}

// The least and the greatest value that a chart has to show, with room around a single one.
function value_range(lists, from_zero) {
  let low = from_zero ? 0 : smallest(lists.map(smallest));
  let high = largest(lists.map(largest));
  if (high > low) return [low, high];
  const pad = Math.abs(high) * 0.1 || 1;
  return [from_zero ? 0 : low - pad, high + pad];
}

// A chart. lines: [{name, x, y, colour, dashed, dots, said}], `said` being words for the legend; bands: [{low, high,
// colour}]; text(value) gives a value with its unit; `log` offers a scale of powers where all values are above zero.
function line_chart({ id, title, unit, lines, bands = [], text, from_zero = false, log = false,
  said = null }) {
  const shown = lines.filter((line) => known(line.y).length);
  if (!shown.length) return null;
  const values = shown.map((line) => known(line.y));
  const x_low = smallest(shown.map((line) => smallest(line.x)));
  const x_high = Math.max(x_low + 1, largest(shown.map((line) => largest(line.x))));
  const range = value_range(values, from_zero);
  const spread = values.map((list) =>
    `${text(smallest(list))} to ${text(largest(list))}, last ${text(list[list.length - 1])}`);
  const svg = make("svg:svg", { role: "img",
    tabindex: "0", "aria-label": `${title} over steps ${x_low} to ${x_high}. ${shown.map((line, k) => `${line.name}: ${spread[k]}`).join("; ")}. Arrow keys read single steps.` });
  const read = make("p", { class: "read", "aria-live": "polite" });
  const state = { log: false };
  const main = shown[0].x;
  const again = readable(svg, read, { count: () => main.length, rest: () => said || [],
    place_at: (px) => nearest(main, state.back(px)),
    show: (place) => point_of_lines(id, shown, main[place], text, state) });
  const draw = (printing) => {
    const width = printing ? 420 : Math.max(240, svg.clientWidth || 400);
    const [left, right, top, bottom] = [52, width - 8, 8, CHART_HEIGHT - 20];
    const axis = value_axis(...range, state.log);
    state.x_at = (x) => left + ((x - x_low) / (x_high - x_low)) * (right - left);
    state.y_at = (y) => bottom - axis.part(y) * (bottom - top);
    state.back = (px) => x_low + ((px - left) / (right - left)) * (x_high - x_low);
    Object.assign(state, { top, bottom });
    svg.setAttribute("viewBox", `0 0 ${width} ${CHART_HEIGHT}`);
    const parts = [value_ticks(axis, state.y_at, left, right, text === seconds_text ? tick_time :
      undefined), step_ticks(x_low, x_high, width,
      bottom, state.x_at), make("svg:text", { x: left - 6, y: bottom + 15, "text-anchor": "end" },
      "step"), make("svg:line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom })];
    for (const band of bands) {
      parts.push(make("svg:rect", { x: left, width: right - left, y: state.y_at(band.high),
        height: Math.max(1, state.y_at(band.low) - state.y_at(band.high)),
        style: { fill: band.colour, opacity: 0.13 } }));
    }
    parts.push(shown.map((line) => drawn_line(line, state)));
    svg.replaceChildren(...parts.flat(2));
    again();
  };
  redraws.push(draw);
  const shape = (line) => (line.dots ? "dot" : line.dashed ? "line dashed" : "line");
  const keys = shown.length > 1 ? make("div", { class: "keys" }, shown.map((line) => key(line
    .colour, line.said ? make("span", {}, `${line.name}: `, ...line.said) : line.name, shape(
      line)))) : null;
  return make("div", { class: "chart" }, make("h3", {}, title, make("span", { class: "hint" },
    unit ? `  ${unit}` : "")), log && smallest(values.map(smallest)) > 0 ? log_switch(title, state,
    draw) : null, svg, keys, read);
}

function log_switch(title, state, draw) {
  const box = make("input", { type: "checkbox", "aria-label": `${title} on a log scale` });
  box.addEventListener("change", () => { state.log = box.checked;
    draw(); });
  return make("label", { class: "toggle" }, box, "log scale");
}

function step_ticks(low, high, width, bottom, x_at) {
  const whole = ticks(low, high, width / 90).filter((value) => Number.isInteger(value));
  return whole.map((tick) => make("svg:text", { x: x_at(tick), y: bottom + 15,
    "text-anchor": x_at(tick) > width - 20 ? "end" : x_at(tick) < x_at(low) + 4 ? "start" :
      "middle" }, count_text(tick)));
}

function drawn_line(line, { x_at, y_at }) {
  const parts = [make("svg:path", { d: thin(line.x, line.y, x_at, y_at), fill: "none",
    "stroke-linejoin": "round", "stroke-dasharray": line.dashed ? "5 3" : null,
    style: { stroke: line.colour, "stroke-width": line.dots ? 1 : 1.4 } })];
  if (!line.dots || line.x.length > 200) return parts;
  return parts.concat(line.x.flatMap((x, k) => (Number.isFinite(line.y[k]) ? [make("svg:circle", {
    cx: x_at(x), cy: y_at(line.y[k]), r: 3, style: { fill: line.colour } })] : [])));
}

// Marks and words of what the lines are at a step.
function point_of_lines(id, lines, step, text, { x_at, y_at, top, bottom }) {
  const marks = [cursor_line(x_at(step), top, bottom)];
  const words = [make("span", {}, "step ", make("b", {}, count_text(step)))];
  for (const line of lines) {
    const k = nearest(line.x, step);
    const value = line.y[k];
    if (!Number.isFinite(value)) { words.push(`, ${line.name} not known`); continue; }
    marks.push(make("svg:circle", { cx: x_at(line.x[k]), cy: y_at(value), r: 3,
      style: { fill: line.colour } }));
    words.push(`, ${line.name} `, make("b", {}, figure(`${id}-at-step`, value, text(value))),
      line.x[k] === step ? "" : ` (step ${line.x[k]})`);
  }
  return { marks, words };
}

// The place in an increasing list that is nearest to a value.
function nearest(list, value) {
  const at = first_where(list.length - 1, (k) => list[k] >= value);
  return at > 0 && Math.abs(list[at - 1] - value) <= Math.abs(list[at] - value) ? at - 1 : at;
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
  const name = (run, text) => (several ? clip_front(run.view.name, 40) : text);
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
    simple("bubble", "bubble", "Bubble", "share of lanes' time without forward and backward",
    percent, { from_zero: true }),
    simple("data-wait", "data_wait_s", "Waiting for data", "per step",
    seconds_text, { from_zero: true }),
    simple("deferred", "deferred", "Deferred parts", "per step", number, { from_zero: true }),
    simple("learning-rate", "learning_rate", "Learning rate", "", number),
    ...busy_charts(runs, several),
  ].filter(Boolean);
  const note = is_predicted(runs) ? "As simulated, step by step." : null;
  return charts.length ? section("steps", note ? "Simulated steps" : "Steps of the run", note, make(
    "div", { class: "charts" }, charts)) : null;
}

const is_predicted = (runs) => !runs.some((run) => known(run.steps.step_s).length);

function loss_chart(runs, several, line, said, number) {
  const lines = runs.flatMap((run) => {
    const { loss, validation } = run.steps;
    const training = line(run, "loss", "training", { said: said("loss-last", "last", number,
        last_known(loss)) });
    if (!validation?.step.length) return [training];
    return [training, {
      ...training,
      name: several ? `${clip_front(run.view.name, 34)}, validation` : "validation",
      x: validation.step,
      y: validation.loss,
      dots: true,
      said: said("validation-loss-last", "last", number, last_known(validation.loss)),
      ...(several ? {} : { colour: "var(--view-1)" })
    }];
  });
  return line_chart({ id: "loss", title: "Loss", unit: "", text: number, lines, log: true, said: lines
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
    const alone = is_predicted(runs);
    if (known(predicted_step_s).length) result.push(line(run, "predicted_step_s",
    "predicted", { dashed: !alone, said: spread("step-predicted", predicted_step_s), ...(
        several ? (alone ? {} : { name: `${clip_front(run.view.name, 34)}, predicted` }) :
        { colour: "var(--view-1)" }) }));
    if (!several && known(lower_bound_s).length) result.push(line(run, "lower_bound_s",
      "lower bound", { dashed: true, colour: "var(--view-5)", said: said(
          "step-bound-median", "median", seconds_text, quantile(known(lower_bound_s), 0.5)
          ) }));
    return result;
  });
  return line_chart({ id: "step", title: "Time per step", unit: bands.length ?
      "band: p5 to p95" : "", lines, bands, log: true, said: lines
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
    unit: "per step",
    text: seconds_text,
    from_zero: true,
    lines: lanes.map((lane, k) => ({ name: `replica ${lane.replica} lane ${lane.lane}`,
      x: runs[0].steps.step, y: lane.busy_s, colour: view_colour(k) }))
  })];
}