"""Draws one simulated step under two policies, both on the same time axis: docs/one_step.svg.

Global batches of the demo's charts run on the demo's model, four lanes with analytic costs, under
`disttrain` with `1f1b` and under `entrain` with `entrain`. Of SEEDS batches the one with the median
ratio of step times is drawn. Needs the index that `make demo` writes, data/demo/train.csv.

Example:
    python tools/draw_step.py --output docs/one_step.svg
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
BEFORE = ("disttrain", "1f1b")
AFTER = ("entrain", "entrain")
SEEDS = 21

# Pixels.
WIDTH = 960
LEFT = 124  # of the lanes' names
RIGHT = 96  # of the step times
LANE = 26
PANEL = 4 * LANE + 50

FILLS = {  # of (module, operation)
    ("vision", "forward"): "#f2b134",
    ("vision", "backward"): "#c2781c",
    ("vision", "backward_input"): "#c2781c",
    ("vision", "backward_weight"): "#e3c9a0",
    ("llm", "forward"): "#6fa8dc",
    ("llm", "backward"): "#2f5f9e",
    ("llm", "backward_input"): "#2f5f9e",
    ("llm", "backward_weight"): "#b5c7df",
}
OPTIMIZER = "#9a9a9a"
LEGEND = (
    ("encoder forward", FILLS["vision", "forward"]),
    ("encoder backward", FILLS["vision", "backward"]),
    ("encoder weight gradient", FILLS["vision", "backward_weight"]),
    ("LLM forward", FILLS["llm", "forward"]),
    ("LLM backward", FILLS["llm", "backward"]),
    ("LLM weight gradient", FILLS["llm", "backward_weight"]),
    ("optimizer", OPTIMIZER),
    ("idle", "#ffffff"),
)


class Steps:
    """`entrain simulate` of one global batch."""

    def __init__(self, entrain, index, folder):
        self.entrain = entrain
        self.folder = folder
        self.common = ["--index", index, "--model", ROOT / "configs" / "demo-model.toml"]
        self.common += ["--profile", "analytic:cpu-2core", "--global-batch", "32"]
        self.plan = folder / "plan.json"
        self.run("plan", *self.common, "--lanes", "4", "--num-slots", "8", "--output", self.plan)

    def run(self, *arguments):
        command = [self.entrain, *arguments, "--json"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def simulate(self, case, seed):
        """The row of one case and its timeline."""
        policy, schedule = case
        trace = self.folder / "trace.json"
        output = self.run(
            *("simulate", *self.common, "--plan", self.plan, "--memory", "equal"),
            *("--policy", policy, "--schedule", schedule),
            *("--seed", str(seed), "--steps", "1", "--trace", trace, "--force"),
        )
        row = json.loads(output.splitlines()[0])["rows"][0]
        return row, json.loads(trace.read_text())["traceEvents"]


def text(x, y, string, size=13, anchor="start", weight="normal", fill="#1f2328"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'font-weight="{weight}" fill="{fill}">{escape(string)}</text>'
    )


def box(x, y, width, height, fill, title=""):
    inside = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{x:.2f}" y="{y:.1f}" width="{max(width, 0.6):.2f}" height="{height}" '
        f'fill="{fill}" stroke="#ffffff" stroke-width="0.5">{inside}</rect>'
    )


def panel(title, row, events, top, scale):
    """One timeline: its title, a row of operations per lane, the step time at its end."""
    milliseconds = row["step_s"] * 1e3
    parts = [text(16, top + 16, title, size=14, weight="bold")]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    first = top + 28
    for lane in sorted(names):
        y = first + lane * LANE
        module, stage = names[lane].split(": ")[1].split()
        label = "LLM" if module == "llm" else "encoder"
        parts.append(text(16, y + 17, f"{label} stage {stage}"))
        parts.append(box(LEFT, y + 2, milliseconds * scale, LANE - 4, "#ffffff"))
    for event in events:
        if event["ph"] != "X" or event.get("cat") != "compute":
            continue
        x = LEFT + event["ts"] / 1e3 * scale
        y = first + event["pid"] * LANE
        width = event["dur"] / 1e3 * scale
        if event["name"] == "optimizer_step":
            parts.append(box(x, y + 2, width, LANE - 4, OPTIMIZER, "optimizer step"))
            continue
        arguments = event["args"]
        fill = FILLS[arguments["module"], event["name"]]
        slot = arguments["slot"]
        title = f"{event['name']} {arguments['module']} microbatch {slot}"
        parts.append(box(x, y + 2, width, LANE - 4, fill, title))
        if width >= 12 and event["name"] != "backward_weight":
            light = event["name"] != "forward"
            colour = "#ffffff" if light else "#1f2328"
            parts.append(text(x + width / 2, y + 17, str(slot), 10, "middle", fill=colour))
    end = LEFT + milliseconds * scale
    middle = first + 2 * LANE
    parts.append(text(end + 8, middle - 2, f"{milliseconds:.1f} ms", size=15, weight="bold"))
    parts.append(text(end + 8, middle + 16, f"{row['bubble'] * 100:.0f} % idle", size=12))
    return parts


def axis(y, longest, scale):
    parts = []
    for tick in range(0, int(longest) + 1, 10):
        x = LEFT + tick * scale
        parts.append(
            f'<line x1="{x:.1f}" y1="44" x2="{x:.1f}" y2="{y - 12}" stroke="#d0d7de" '
            'stroke-dasharray="2 3"/>'
        )
        parts.append(text(x, y, f"{tick} ms", size=11, anchor="middle", fill="#57606a"))
    return parts


def draw(before, after):
    longest = max(before[0]["step_s"], after[0]["step_s"]) * 1e3
    scale = (WIDTH - LEFT - RIGHT) / longest
    height = 2 * PANEL + 64
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        '<g font-family="Helvetica, Arial, sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#f6f8fa"/>',
    ]
    parts += axis(2 * PANEL + 22, longest, scale)
    names = ["Before: policy {}, schedule {}", "After: policy {}, schedule {}"]
    for i, (case, result) in enumerate(zip((BEFORE, AFTER), (before, after), strict=True)):
        parts += panel(names[i].format(*case), *result, 10 + i * PANEL, scale)
    x = 16
    for name, fill in LEGEND:
        parts.append(
            f'<rect x="{x}" y="{height - 24}" width="12" height="12" fill="{fill}" '
            'stroke="#8c959f" stroke-width="0.5"/>'
        )
        parts.append(text(x + 17, height - 14, name, size=11))
        x += 36 + 5.7 * len(name)
    parts.append("</g></svg>\n")
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    build = ROOT / "build" / "release" / "entrain" / "cli" / "entrain"
    parser.add_argument("--entrain", type=Path, default=build, help="the program")
    parser.add_argument("--index", type=Path, default=ROOT / "data" / "demo" / "train.csv")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "one_step.svg")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        steps = Steps(options.entrain, options.index, Path(folder))
        ratios = {}
        for seed in range(SEEDS):
            before, after = (steps.simulate(case, seed)[0] for case in (BEFORE, AFTER))
            ratios[seed] = before["step_s"] / after["step_s"]
        drawn = min(ratios, key=lambda s: abs(ratios[s] - statistics.median(ratios.values())))
        before, after = (steps.simulate(case, drawn) for case in (BEFORE, AFTER))
    options.output.write_text(draw(before, after))
    print(
        f"{options.output}: seed {drawn}, {before[0]['step_s'] * 1e3:.1f} ms before, "
        f"{after[0]['step_s'] * 1e3:.1f} ms after, {ratios[drawn]:.2f} times as fast; "
        f"{min(ratios.values()):.2f} to {max(ratios.values()):.2f} over {SEEDS} batches; "
        f"peak activations {before[0]['peak_bytes'] / 2**20:.1f} MiB before, "
        f"{after[0]['peak_bytes'] / 2**20:.1f} MiB after"
    )


if __name__ == "__main__":
    main()
