"""`report` and `--report`: what the page holds, and what Chromium makes of it.

Without Chromium (the distribution's `chromium`) the tests of what is drawn are skipped, and say so.
"""

import base64
import gzip
import html.parser
import json
import math
import re
import shutil
import statistics
import subprocess
import unittest

import cli_fixture
from cli_fixture import CliTest

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
STUDY = ["--index", "train.csv", "--model", "model.toml", "--profile", "analytic:cpu-2core"]


def browser():
    """Chromium's path, if there is one and it runs here."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        return None
    try:
        command = [path, *FLAGS, "--dump-dom", "about:blank"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return None
    return path if "<html" in result.stdout else None


BROWSER = browser()

# What a user does, for scripts of draw().
ACTS = """
const point = (node, x, y) => {
  const box = node.getBoundingClientRect();
  node.dispatchEvent(new PointerEvent("pointermove",
    {clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true}));
};
const press = (node, key) =>
  node.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
"""


def data_of(page):
    """The document that the page holds."""
    packed = re.search(r'id="data">([A-Za-z0-9+/=]+)<', page.read_text()).group(1)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


class Drawn(html.parser.HTMLParser):
    """A page after its scripts have run: the figures that it prints, its text, what it says of itself."""

    def __init__(self, text):
        super().__init__()
        self.figures = {}
        self.root = {}
        self.texts = []
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append(tag)
        if tag == "html":
            self.root = values
        if "data-figure" in values:
            self.figures.setdefault(values["data-figure"], []).append(values["data-value"])

    def handle_data(self, data):
        self.texts.append(data)


class Report(CliTest):
    def setUp(self):
        super().setUp()
        self.make_data(count=24)
        self.write_run(steps=6, global_batch=8)

    def simulate(self, *more, steps=1):
        common = ["--global-batch", 12, "--steps", steps, "--evaluations", 20]
        return ["simulate", *STUDY, *common, *more]

    def train(self, name):
        settings = [f"output={name}", "execution.trace_step=3"]
        return self.expect_success(
            "train", "run.toml", *(w for s in settings for w in ("--set", s))
        )

    def draw(self, page, *options, width=1280, acts=""):
        """The page in Chromium, its scripts run: no error, nothing asked of a network. `acts`: a
        script that runs when the page is drawn."""
        if acts:
            act = f"const wait = setInterval(() => {{ if (!document.documentElement.dataset.ready) return; clearInterval(wait); {acts} }}, 50);"
            text = page.read_text().replace("</body>", f"<script>{ACTS}{act}</script></body>")
            page = page.with_stem(f"{page.stem}-acts")
            page.write_text(text)
        shot = self.folder / f"{page.stem}-{width}.png"
        command = [BROWSER, *FLAGS, "--hide-scrollbars"]
        command += ["--enable-logging=stderr", "--virtual-time-budget=20000", *options]
        command += [f"--window-size={width},2000", f"--user-data-dir={self.folder}/profile"]
        target = page.as_uri()
        run = {"capture_output": True, "text": True, "timeout": 120}
        result = subprocess.run([*command, "--dump-dom", target], check=False, **run)
        said = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
        self.assertEqual(said, [], page)
        drawn = Drawn(result.stdout)
        self.assertEqual(drawn.root.get("data-error"), None)
        self.assertEqual(drawn.root.get("data-ready"), "1", result.stdout[:2000])
        subprocess.run([*command, f"--screenshot={shot}", target], check=False, **run)
        self.assertGreater(shot.stat().st_size, 10_000)
        return drawn

    def expect_figure(self, drawn, name, value):
        shown = [float(text) for text in drawn.figures[name]]
        self.assertTrue(
            any(math.isclose(s, value, rel_tol=1e-9) for s in shown), (name, shown, value)
        )

    def test_simulate_and_plan_write_pages_of_what_they_print(self):
        result = self.expect_success(
            *self.simulate("--lanes", 2, "--policy", "lpt-2d,entrain"),
            *["--json", "--report", "page.html"],
        )
        self.assertIn("with plots", self.expect_success("simulate", "--help").stdout)
        rows = json.loads(result.stdout)["rows"]
        views = data_of(self.folder / "page.html")["views"]
        self.assertEqual([v["name"] for v in views], ["lpt-2d with 1f1b", "entrain with 1f1b"])
        for row, view in zip(rows, views, strict=True):
            step_ns = view["timelines"][0]["makespan_ns"]
            self.assertAlmostEqual(step_ns * 1e-9, row["step_s"])
            self.assertAlmostEqual(view["gap"]["bound_ns"] * 1e-9, row["lower_bound_s"])
        (self.folder / "cases.json").write_text(result.stdout)
        for _ in range(2):  # its own page is replaced
            self.expect_success("report", "cases.json", "-o", "cases.html")
        for drawn, view in zip(data_of(self.folder / "cases.html")["views"], views, strict=True):
            self.assertAlmostEqual(drawn["gap"]["step_ns"], view["gap"]["step_ns"], delta=10)
        planned = [*STUDY, "--global-batch", 12, "--lanes", 3, "--batches", 1, "--evaluations", 5]
        result = self.expect_success("plan", *planned, "--json", "--report", "plan.html")
        plan = json.loads(result.stdout)
        view = data_of(self.folder / "plan.html")["views"][0]
        self.assertEqual(len(view["plan"]["lanes"]), 3)
        fitting = [split for split in plan["splits"] if not split.get("reason")]
        self.assertEqual(len(view["plan"]["runners_up"]), len(fitting) - 1)

    def test_bad_input_is_refused_by_name_and_leaves_nothing(self):
        nowhere = self.expect_failure(2, ["nowhere"], "report", "nowhere", "-o", "page.html")
        self.assertTrue(nowhere.stderr.endswith("'nowhere' does not exist\n"), nowhere)
        command = ["report", "train.csv", "-o", "page.html", "--model", "nowhere.toml"]
        self.expect_failure(2, ["nowhere.toml", "(--model)"], *command)
        self.expect_failure(2, ["--output"], "report", "train.csv")
        (self.folder / "shot.png").write_bytes(cli_fixture.png(4, 4))
        words = ["shot.png", "a PNG image", "simulate --json", "index (CSV)"]
        self.expect_failure(2, words, "report", "shot.png", "-o", "page.html")
        self.expect_failure(2, ["model.toml"], "report", "model.toml", "-o", "page.html")
        (self.folder / "cut.json").write_text('{"rows": [{"policy":')
        self.expect_failure(2, ["cut.json"], "report", "cut.json", "-o", "page.html")
        self.expect_failure(2, ["/dev/stdout"], "report", "train.csv", "-o", "-")
        self.assertFalse((self.folder / "-").exists())
        result = self.expect_success("report", "train.csv", "-o", "/dev/stdout")
        self.assertTrue(result.stdout.startswith("<!doctype html>"))
        (self.folder / "empty").mkdir()
        self.expect_failure(2, ["metrics.jsonl"], "report", "empty", "-o", "page.html")
        self.expect_failure(2, ["folder"], "report", "empty/metrics.jsonl", "-o", "page.html")
        self.expect_failure(2, ["model.toml", "--force"], "report", "empty", "-o", "model.toml")
        one_sample = self.simulate("--lanes", 2, "--one-sample", 2, "--report", "page.html")
        self.expect_failure(2, ["--report"], *one_sample)
        self.assertFalse((self.folder / "page.html").exists())

    def test_options_of_indices_need_one_and_other_data_are_named(self):
        cases = self.expect_success(*self.simulate("--lanes", 2, "--json")).stdout
        (self.folder / "cases.json").write_text(cases)
        report = ["report", "cases.json", "-o", "page.html"]
        self.expect_failure(2, ["--model is for indices"], *report, "--model", "model.toml")
        ignored = ["--ignore-modality", "audio"]
        self.expect_failure(2, ["--ignore-modality is for indices"], *report, *ignored)
        self.expect_failure(2, ["needs --model"], *report, "train.csv", *ignored)
        self.assertFalse((self.folder / "page.html").exists())
        if not self.has_engine():
            self.skipTest("needs the engine")
        self.train("run")
        rows = (self.folder / "train.csv").read_text().splitlines()
        (self.folder / "half.csv").write_text("\n".join(rows[:13]) + "\n")
        words = ["--model is for indices", "its own model"]
        self.expect_failure(2, words, "report", "run", "-o", "p.html", "--model", "model.toml")
        drawn = self.expect_success("report", "run", "train.csv", "half.csv", "-o", "page.html")
        warning = "index 'half.csv' is not the data of run 'run' ('train.csv')"
        self.assertIn(f"entrain: warning: {warning}", drawn.stderr)
        self.assertEqual(drawn.stderr.count("is not the data"), 1)
        views = data_of(self.folder / "page.html")["views"]
        self.assertIn(f"{warning}.", views[2]["warnings"])

    def test_an_index_is_drawn_as_the_terminal_says_it(self):
        more = ["-o", "again.csv", "--model", "model.toml", "--stats"]
        stats = self.expect_success("index", "train.csv", *more).stdout
        self.expect_success("report", "train.csv", "-m", "model.toml", "-o", "page.html")
        view = data_of(self.folder / "page.html")["views"][0]
        rows = (self.folder / "train.csv").read_text().count("\n") - 1
        self.assertIn(f"{rows} samples", view["headline"][0])
        for of in view["distributions"]:
            self.assertIn(f"{of['name']} ({of['count']})", stats)
            self.assertEqual(sum(b["count"] for b in of["bins"]), of["count"])
            for b in of["bins"]:
                if b["count"]:
                    self.assertRegex(stats, rf"{b['range']}  █+ {b['count']} ")
        cases = self.expect_success(*self.simulate("--lanes", 2, "--json")).stdout
        (self.folder / "cases.json").write_text(cases)
        self.expect_success("report", "train.csv", "cases.json", "-o", "both.html")
        views = data_of(self.folder / "both.html")["views"]
        self.assertEqual(len(views), 1 + len(json.loads(cases)["rows"]))
        self.assertEqual(views[1]["name"], "cases.json: sequential with 1f1b")

    def test_what_a_run_writes_is_no_place_for_other_things(self):
        if not self.has_engine():
            self.skipTest("needs the engine")
        for name in ("run/weights.safetensors", "run/metrics.jsonl", "run/sub/page.html"):
            words = ["--report", name, ".html"]
            self.expect_failure(2, words, "train", "run.toml", "--report", name)
            words = ["metrics.prometheus", name, ".prom"]
            setting = f"metrics.prometheus={name}"
            self.expect_failure(2, words, "train", "run.toml", "--set", setting)
        self.assertFalse((self.folder / "run").exists())
        setting = "metrics.prometheus=run/entrain.prom"
        self.expect_success("train", "run.toml", "--report", "run/page.html", "--set", setting)
        self.assertIn("entrain_loss", (self.folder / "run/entrain.prom").read_text())
        self.assertEqual(len(data_of(self.folder / "run/page.html")["views"]), 1)

    def test_a_run_is_drawn_as_it_was_recorded(self):
        if not self.has_engine():
            self.skipTest("needs the engine")
        self.train("run")
        self.expect_success("report", "run", "-o", "page.html")
        view = data_of(self.folder / "page.html")["views"][0]
        rows = [
            json.loads(line)
            for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()
        ]
        steps = [row for row in rows if "loss" in row]
        self.assertEqual(view["steps"]["loss"], [row["loss"] for row in steps])
        self.assertEqual(view["steps"]["step_s"], [row["step_s"] for row in steps])
        self.assertEqual([t["label"] for t in view["timelines"]], ["predicted", "measured"])
        self.assertAlmostEqual(view["timelines"][1]["makespan_ns"] * 1e-9, steps[3]["step_s"], 3)
        # Cut off in the middle of a row, and before its end.
        metrics = self.folder / "run/metrics.jsonl"
        metrics.write_text(metrics.read_text()[:-200])
        self.expect_success("report", "run", "-o", "page.html", "--force")
        warnings = " ".join(data_of(self.folder / "page.html")["views"][0]["warnings"])
        self.assertIn("cut off", warnings)
        self.assertIn("not at its end", warnings)
        metrics.write_text('{"step": 0, "loss": "low"}\n')
        self.expect_failure(2, ["metrics.jsonl line 1"], "report", "run", "-o", "other.html")

    @unittest.skipIf(BROWSER is None, "needs chromium")
    def test_chromium_draws_runs_and_comparisons(self):
        if not self.has_engine():
            self.skipTest("needs the engine")
        self.train("a")
        self.train("b")
        self.expect_success("report", "a", "-o", "page.html")
        view = data_of(self.folder / "page.html")["views"][0]
        for width in (390, 1280, 1600):
            for scheme, setting in (("light", 1), ("dark", 0)):
                setting = f"--blink-settings=preferredColorScheme={setting}"
                drawn = self.draw(self.folder / "page.html", setting, width=width)
                self.assertEqual(drawn.root["data-theme"], scheme)
        self.expect_figure(drawn, "makespan-predicted", view["timelines"][0]["makespan_ns"])
        self.expect_figure(drawn, "makespan-measured", view["timelines"][1]["makespan_ns"])
        self.expect_figure(drawn, "gap-step", view["gap"]["step_ns"])
        for cause in view["gap"]["causes"]:
            if f"gap-{cause['cause']}" in drawn.figures:
                self.expect_figure(drawn, f"gap-{cause['cause']}", cause["ns"])
        losses = view["steps"]["loss"]
        self.expect_figure(drawn, "loss-last", losses[-1])
        self.expect_figure(drawn, "step-median", statistics.median(view["steps"]["step_s"]))
        planned = [*STUDY, "--global-batch", 12, "--lanes", 3, "--batches", 1, "--evaluations", 5]
        self.expect_success("plan", *planned, "--report", "plan.html")
        drawn = self.draw(self.folder / "plan.html")
        self.assertNotIn("[object", " ".join(drawn.texts))
        self.assertEqual(float(drawn.figures["runner-up-ratio"][0]) >= 1, True)
        self.expect_success("report", "a", "b", "-o", "both.html")
        drawn = self.draw(self.folder / "both.html")
        self.assertGreaterEqual(len(drawn.figures["makespan-measured"]), 2)

    @unittest.skipIf(BROWSER is None, "needs chromium")
    def test_balance_and_memory_are_read_by_pointing_and_by_keys(self):
        common = ["--lanes", 2, "--replicas", 2, "--policy", "lpt-2d", "--report", "page.html"]
        result = self.expect_success(*self.simulate(*common, "--json"))
        view = data_of(self.folder / "page.html")["views"][0]
        slots = view["balance"]["slots"]
        memory = [lane["memory"] for lane in view["timelines"][0]["lanes"]]
        # The last bar of the first row; the last bar by keys, and the same slot a replica above.
        acts = """
          const [first, second] = document.querySelectorAll(".balance svg");
          point(first, 0.999, 0.1);
          press(second, "ArrowLeft"); press(second, "ArrowUp");
          const lanes = document.querySelectorAll(".small svg");
          point(lanes[0], 0.5, 0.5);
          lanes[0].focus(); press(lanes[0], "ArrowDown"); press(document.activeElement, "End");"""
        drawn = self.draw(self.folder / "page.html", acts=acts)
        values = [float(value) for value in drawn.figures["balance-at"]]
        self.assertEqual(values, [slots[0][-1][0], slots[0][-1][1]])
        bubble = json.loads(result.stdout)["rows"][0]["bubble"]
        self.expect_figure(drawn, "idle-fraction", bubble)
        # The first lane's is read no more once the second's has the focus.
        at = [float(value) for value in drawn.figures["memory-at-time"]]
        self.assertEqual(at, [memory[1]["time_ns"][-1]])
        self.assertEqual([float(v) for v in drawn.figures["memory-at"]], [memory[1]["bytes"][-1]])
        peak = memory[0]["bytes"].index(max(memory[0]["bytes"]))
        time = memory[0]["time_ns"][peak]
        x = time / view["timelines"][0]["makespan_ns"]
        acts = f'point(document.querySelector(".small svg"), {x}, 0.5);'
        drawn = self.draw(self.folder / "page.html", acts=acts)
        self.expect_figure(drawn, "memory-at-time", time)
        self.expect_figure(drawn, "memory-at", memory[0]["bytes"][peak])

    @unittest.skipIf(BROWSER is None, "needs chromium")
    def test_policies_share_the_axes_of_their_curves(self):
        command = self.simulate("--lanes", 2, "--policy", "lpt-2d,entrain", steps=3)
        result = self.expect_success(*command, "--json", "--report", "page.html")
        rows = json.loads(result.stdout)["rows"]
        (self.folder / "cases.json").write_text(result.stdout)
        self.expect_success("report", "cases.json", "-o", "cases.html")
        acts = """
          const chart = [...document.querySelectorAll(".chart")].find(
            (node) => node.querySelector("h3").textContent.startsWith("Time per step"));
          chart.querySelector("input").click();
          press(chart.querySelector("svg"), "ArrowRight");
          press(chart.querySelector("svg"), "ArrowRight");
          document.documentElement.dataset.paths = [...chart.querySelectorAll("path")].map(
            (path) => path.getAttribute("d")).join(";");"""
        for page in ("page", "cases"):
            drawn = self.draw(self.folder / f"{page}.html", acts=acts)
            at = [float(value) for value in drawn.figures["step-at-step"]]
            self.assertEqual(at, [row["curves"]["predicted_step_s"][1] for row in rows])
            # On the log scale: the places of points are as far apart as their logarithms.
            points = [
                [float(part.split()[1]) for part in re.split("[ML]", path)[1:]]
                for path in drawn.root["data-paths"].split(";")
            ]
            times = [row["curves"]["predicted_step_s"] for row in rows]
            logs = [math.log(time) for row in times for time in row]
            places = [y for line in points for y in line]
            scale = (max(places) - min(places)) / (max(logs) - min(logs))
            for place, value in zip(places, logs, strict=True):
                self.assertAlmostEqual(min(places) + scale * (max(logs) - value), place, delta=0.2)

    @unittest.skipIf(BROWSER is None, "needs chromium")
    def test_sizes_of_indices_are_compared(self):
        half = (self.folder / "train.csv").read_text().splitlines()[:13]
        (self.folder / "half.csv").write_text("\n".join(half) + "\n")
        self.expect_success("report", "train.csv", "half.csv", "-o", "page.html")
        views = data_of(self.folder / "page.html")["views"]
        acts = 'press(document.querySelector("#distributions svg"), "ArrowRight");'
        for width in (390, 1600):
            drawn = self.draw(self.folder / "page.html", width=width, acts=acts)
        first = [view["distributions"][0] for view in views]
        least = min(of["bins"][0]["from"] for of in first)
        counts = [sum(b["count"] for b in of["bins"] if b["from"] == least) for of in first]
        self.assertEqual([int(v) for v in drawn.figures["distribution-at"]], counts)
        for of in first:
            self.expect_figure(drawn, "distribution-p50", of["p50"])
        self.assertEqual(drawn.figures["fact-samples"], ["24", "12"])

    @unittest.skipIf(BROWSER is None, "needs chromium")
    def test_data_and_what_was_computed_of_them_share_a_page(self):
        half = (self.folder / "train.csv").read_text().splitlines()[:13]
        (self.folder / "half.csv").write_text("\n".join(half) + "\n")
        command = self.simulate("--lanes", 2, "--policy", "lpt-2d,entrain", steps=3)
        (self.folder / "two.json").write_text(self.expect_success(*command, "--json").stdout)
        one = json.loads((self.folder / "two.json").read_text())
        one["rows"] = one["rows"][:1]
        (self.folder / "one.json").write_text(json.dumps(one))
        for cases, indices in (("one", ["train"]), ("two", ["train"]), ("two", ["train", "half"])):
            files = [f"{index}.csv" for index in indices]
            self.expect_success("report", *files, f"{cases}.json", "-o", "page.html", "--force")
            views = data_of(self.folder / "page.html")["views"]
            drawn = self.draw(self.folder / "page.html")
            said = " ".join(drawn.texts)
            for view in views:
                self.assertIn(view["name"], said)
                self.assertIn(view["headline"][0], said)
            self.expect_figure(drawn, "distribution-p50", views[0]["distributions"][0]["p50"])
            self.expect_figure(drawn, "gap-step", views[-1]["gap"]["step_ns"])
            self.assertEqual(drawn.figures["fact-samples"], ["24", "12"][: len(indices)])
            compared = drawn.figures.get("compared-ratio", [])
            self.assertEqual(len(compared), 2 if cases == "two" else 0, "the data are not compared")
            self.assertEqual("Comparison of the data" in drawn.texts, len(indices) > 1)

    @unittest.skipIf(BROWSER is None, "needs chromium")
    def test_a_page_is_printed_in_light_colours_with_all_lanes(self):
        self.expect_success(
            *self.simulate("--lanes", 2, "--policy", "lpt-2d", "--report", "p.html")
        )
        printed = {}
        for scheme, setting in (("light", 1), ("dark", 0)):
            pdf = self.folder / f"{scheme}.pdf"
            command = [BROWSER, *FLAGS, "--virtual-time-budget=20000", f"--print-to-pdf={pdf}"]
            command += [f"--blink-settings=preferredColorScheme={setting}"]
            command += [f"--user-data-dir={self.folder}/profile", "--no-pdf-header-footer"]
            target = (self.folder / "p.html").as_uri()
            subprocess.run([*command, target], capture_output=True, timeout=120, check=False)
            # Times of writing and the objects' order differ; what is drawn does not.
            printed[scheme] = len(pdf.read_bytes())
        self.assertGreater(printed["light"], 20_000)
        self.assertAlmostEqual(printed["dark"], printed["light"], delta=100)

    @unittest.skipIf(BROWSER is None, "needs chromium")
    def test_names_that_look_like_pages_are_text(self):
        evil = "<img src=x onerror=document.documentElement.dataset.error=1></script><b>&amp;"
        table = (self.folder / "train.csv").read_text()
        (self.folder / "train.csv").write_text(table.replace("s01", evil))
        self.expect_success(
            *self.simulate("--lanes", 2, "--policy", "lpt-2d", "--report", "page.html")
        )
        samples = data_of(self.folder / "page.html")["views"][0]["timelines"][0]["samples"]
        self.assertTrue(any(evil in name for name in samples), samples)
        drawn = self.draw(self.folder / "page.html")
        self.assertNotIn("img", drawn.tags)


if __name__ == "__main__":
    if BROWSER is None:
        print("skipped: what Chromium draws (no chromium that runs)")
    cli_fixture.main()
