"""Draws the concept pages' pictures, docs/drawings/*.svg, from what the program answers.

400 samples of a fixed formula (COSTS below) are planned, assigned and simulated; nothing is drawn by
hand. The answers are integers and equal on every machine, so tests/end_to_end/site_test.py draws them
again and compares every byte.

Example:
    python tools/docs/drawings.py
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from draw_step import FILLS, LANE, LEFT, RIGHT, WIDTH, box, panel, text

NUM_SAMPLES = 400
BATCH = 16
ENCODER, LLM = FILLS["vision", "forward"], FILLS["llm", "forward"]
DARK, GREY, LINE = "#1f2328", "#57606a", "#d0d7de"
SPLITS = ("#2f5f9e", "#c2781c", "#6fa8dc", "#e3c9a0", "#9a9a9a")
CAUSES = {
    "fill": "#6fa8dc",
    "drain": "#b5c7df",
    "oversized": "#c2781c",
    "uneven": "#f2b134",
    "order": "#e3c9a0",
}


def write_costs(path):
    """Sizes of images and texts vary independently; one sample in seven has no image."""
    rng = random.Random(7)
    rows = ["sample_id,vision_tokens,vision_forward_s,vision_backward_s"]
    rows[0] += ",llm_tokens,llm_forward_s,llm_backward_s"
    for number in range(NUM_SAMPLES):
        vision = 0 if rng.random() < 0.15 else int(min(rng.lognormvariate(6, 0.8), 6000))
        llm = int(rng.lognormvariate(5.3, 0.7)) + vision // 4
        seconds = [9 * vision, 18 * vision, 12 * llm, 24 * llm]  # microseconds
        encoder = f"{vision},{seconds[0] / 1e6:.6f},{seconds[1] / 1e6:.6f}"
        rows.append(f"s{number:03d},{encoder},{llm},{seconds[2] / 1e6:.6f},{seconds[3] / 1e6:.6f}")
    path.write_text("\n".join(rows) + "\n")


class Answers:
    """What the program says of these samples."""

    def __init__(self, entrain, folder):
        self.entrain = entrain
        self.folder = folder
        self.costs = folder / "costs.csv"
        self.plan = folder / "plan.json"
        write_costs(self.costs)
        rows = [line.split(",") for line in self.costs.read_text().splitlines()[1:]]
        # [sample] milliseconds of forward in encoder and LLM
        self.work = {row[0]: (1e3 * float(row[2]), 1e3 * float(row[5])) for row in rows}
        self.run(
            "plan", "--lanes", "4", "--layout", "apart", "--num-slots", "6", "--output", self.plan
        )
        planned = ("--plan", self.plan)
        self.assignment = self.slots("entrain", planned)
        self.even = self.slots("lpt-2d", planned)
        self.cases = json.loads(
            self.run(
                *("simulate", *planned, "--steps", "1", "--schedule", "1f1b"),
                *("--policy", "sequential,lpt-2d,disttrain,dflop,entrain-paper,entrain"),
            )
        )["rows"]
        self.stable = json.loads(self.run("b-min", "--devices", "4", allowed=(0, 4)))
        self.timelines = {
            schedule: self.timeline(planned, schedule) for schedule in ("1f1b", "zb-h1")
        }

    def run(self, command, *arguments, allowed=(0,)):
        """The first line of its JSON."""
        words = [command, "--costs", self.costs, "--global-batch", str(BATCH), *arguments]
        done = subprocess.run(
            [self.entrain, *map(str, words), "--json"], capture_output=True, text=True, check=False
        )
        if done.returncode not in allowed:
            raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr}")
        return done.stdout.partition("\n")[0]

    def slots(self, policy, planned):
        """{module: samples of every slot}, and the deferred parts."""
        path = self.folder / f"{policy}.json"
        self.run("assign", *planned, "--policy", policy, "--output", path)
        replica = json.loads(path.read_text())["replicas"][0]
        return replica["modules"], replica["deferred"]

    def timeline(self, planned, schedule):
        trace = self.folder / f"{schedule}.json"
        answer = self.run(
            *("simulate", *planned, "--steps", "1", "--policy", "lpt-2d", "--num-slots", "6"),
            *("--schedule", schedule, "--trace", trace),
        )
        return json.loads(answer)["rows"][0], json.loads(trace.read_text())["traceEvents"]


def page(height, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">'
    ground = f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#f6f8fa"/>'
    return "\n".join(
        [head, '<g font-family="Helvetica, Arial, sans-serif">', ground, *parts, "</g></svg>\n"]
    )


def line(x0, y0, x1, y1, colour=LINE, more=""):
    return (
        f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{colour}" {more}/>'
    )


def legend(y, entries):
    parts, x = [], 16
    for name, fill in entries:
        parts += [box(x, y - 10, 12, 12, fill), text(x + 17, y, name, size=12)]
        x += 44 + 6.2 * len(name)
    return parts


def static_plan(answers):
    """Which split of the lanes' devices a batch needs, by its size."""
    sizes = answers.stable["sizes"]
    splits = sorted({tuple(s["devices"]) for size in sizes for s in size["splits"]})
    names = [":".join(map(str, split)) for split in splits]
    step, bottom, tall = (WIDTH - LEFT - 40) / len(sizes), 230, 170
    parts = [text(16, 26, "Split of 4 devices that 60 drawn batches need", 14, weight="bold")]
    for place, size in enumerate(sizes):
        x, y = LEFT + place * step, bottom
        whole = sum(split["count"] for split in size["splits"])
        for split in sorted(size["splits"], key=lambda s: s["devices"]):
            high = tall * split["count"] / whole
            y -= high
            colour = SPLITS[splits.index(tuple(split["devices"])) % len(SPLITS)]
            parts.append(
                box(x, y, step - 8, round(high, 1), colour, f"{split['count']} of {whole}")
            )
        parts.append(text(x + step / 2 - 4, bottom + 18, str(size["batch"]), 12, "middle"))
    parts.append(text(16, bottom + 18, "samples a batch", 12, fill=GREY))
    colours = [SPLITS[i % len(SPLITS)] for i in range(len(splits))]
    parts += legend(
        bottom + 46, [(f"encoder:LLM {n}", c) for n, c in zip(names, colours, strict=True)]
    )
    said = f"b_min {answers.stable['b_min']}; proven from {answers.stable['proven']} samples on"
    parts.append(text(WIDTH - 16, 26, said, 13, "end"))
    return page(bottom + 60, parts)


def slot_bars(answers, slots, top, tall, scale, parts):
    """Encoder bars upwards and LLM bars downwards of every slot; returns each slot's middle."""
    step = (WIDTH - LEFT - 30) / len(slots["llm"])
    middles = []
    for number in range(len(slots["llm"])):
        x = LEFT + number * step
        y = top + tall
        for sample in slots["vision"][number]:
            high = answers.work[sample][0] * scale
            y -= high
            parts.append(box(x, y, step - 10, round(high, 1), ENCODER, sample))
        y = top + tall + 24
        for sample in slots["llm"][number]:
            high = answers.work[sample][1] * scale
            parts.append(box(x, y, step - 10, round(high, 1), LLM, sample))
            y += high
        middles.append(x + step / 2 - 5)
        parts.append(text(middles[-1], top + tall + 17, str(number), 12, "middle"))
    parts += [
        text(16, top + tall - 8, "encoder", 13),
        text(16, top + tall + 17, "slot", 12, fill=GREY),
    ]
    parts.append(text(16, top + tall + 42, "LLM", 13))
    return middles


def tallest(answers, slots):
    return [
        max(sum(answers.work[sample][kind] for sample in slot) for slot in slots[module])
        for kind, module in enumerate(("vision", "llm"))
    ]


def deferral(answers):
    """Slots of the step, and which samples' LLM work is in a later one."""
    slots, deferred = answers.assignment
    encoder, llm = tallest(answers, slots)
    scale = 130 / max(encoder, llm)
    parts = [text(16, 26, "One step: samples in encoder slots and in LLM slots", 14, weight="bold")]
    top, tall = 40, encoder * scale + 6
    middles = slot_bars(answers, slots, top, tall, scale, parts)
    for move in deferred:
        x0, x1 = middles[move["from_slot"]], middles[move["to_slot"]]
        y0, y1 = top + tall - 3, top + tall + 27
        bend = f"M{x0:.1f} {y0:.1f} C{x0:.1f} {y1:.1f} {x1:.1f} {y0:.1f} {x1:.1f} {y1:.1f}"
        parts.append(f'<path d="{bend}" fill="none" stroke="{DARK}" stroke-width="1.3"/>')
    height = top + tall + 24 + llm * scale + 34
    said = (
        f"{len(deferred)} of {BATCH} samples are deferred: an arrow from encoder slot to LLM slot"
    )
    parts.append(text(16, height - 12, said, 12, fill=GREY))
    return page(round(height), parts)


def slot_shape(answers):
    """Work of every slot under two policies, on one scale."""
    cases = (("lpt-2d: even slots", answers.even[0]), ("entrain", answers.assignment[0]))
    highest = [
        max(pair) for pair in zip(*(tallest(answers, slots) for _, slots in cases), strict=True)
    ]
    scale = 110 / max(highest)
    parts, top = [], 10
    for name, slots in cases:
        parts.append(text(16, top + 16, name, 14, weight="bold"))
        slot_bars(answers, slots, top + 24, highest[0] * scale, scale, parts)
        top += 24 + 24 + sum(highest) * scale + 22
    parts.append(
        text(16, top + 4, "height: milliseconds of forward, the same scale", 12, fill=GREY)
    )
    return page(round(top + 16), parts)


def split_backward(answers):
    """The same slots with whole backwards and with halves."""
    rows = answers.timelines
    longest = max(row["step_s"] for row, _ in rows.values()) * 1e3
    scale = (WIDTH - LEFT - RIGHT) / longest
    names = {"1f1b": "1f1b: whole backwards", "zb-h1": "zb-h1: input halves, weight halves later"}
    parts = []
    for number, (schedule, (row, events)) in enumerate(rows.items()):
        parts += panel(names[schedule], row, events, 10 + number * (4 * LANE + 50), scale)
    top = 2 * (4 * LANE + 50) + 16
    parts += legend(
        top + 8,
        [
            (f"{name} {kind}", FILLS[module, operation])
            for module, name in (("vision", "encoder"), ("llm", "LLM"))
            for operation, kind in (
                ("forward", "forward"),
                ("backward", "backward"),
                ("backward_weight", "weight half"),
            )
        ],
    )
    return page(top + 24, parts)


def group_name(event):
    return f"{event['args']['slot']}→{','.join(map(str, event['args']['part']))}"


def groups(answers, schedule="1f1b"):
    """The first encoder lane's and the LLM's operations on one encoder slot with several groups."""
    path = answers.folder / "groups.json"
    answer = answers.run(
        *("simulate", "--plan", answers.plan, "--steps", "1", "--policy", "entrain"),
        *("--schedule", schedule, "--trace", path),
    )
    row = json.loads(answer)["rows"][0]
    events = json.loads(path.read_text())["traceEvents"]
    ran = [e for e in events if e["ph"] == "X" and e["cat"] == "compute" and "slot" in e["args"]]
    parted = {}
    for event in ran:
        if event["args"]["module"] == "vision" and event["pid"] == 0:
            parted.setdefault(event["args"]["slot"], set()).add(group_name(event))
    slot = max(parted, key=lambda number: (len(parted[number]), -number))
    targets = {int(name.partition("→")[2].split(",")[-1]) for name in parted[slot]}
    scale = (WIDTH - LEFT - RIGHT) / (row["step_s"] * 1e3)
    title = f"Encoder slot {slot} has {len(parted[slot])} groups, one for each LLM slot it feeds"
    parts = [text(16, 26, title, 14, weight="bold")]
    names = {
        e["pid"]: e["args"]["name"].split(": ")[1] for e in events if e["name"] == "process_name"
    }
    for lane, name in sorted(names.items()):
        y = 40 + lane * 40
        label = name.replace("vision", "encoder stage").replace("llm", "LLM stage")
        parts += [
            text(16, y + 20, label),
            box(LEFT, y + 2, row["step_s"] * 1e3 * scale, 30, "#ffffff"),
        ]
    for event in sorted(ran, key=lambda e: (e["pid"], e["ts"])):
        module = event["args"]["module"]
        here = (
            event["args"]["slot"] == slot
            if module == "vision"
            else event["args"]["slot"] in targets
        )
        fill = FILLS[module, event["name"]] if here else "#eaeef2"
        x, width = LEFT + event["ts"] / 1e3 * scale, event["dur"] / 1e3 * scale
        y = 40 + event["pid"] * 40
        name = group_name(event) if module == "vision" else str(event["args"]["slot"])
        parts.append(box(x, y + 2, width, 30, fill, f"{event['name']} {name}"))
        if here and width > 4.5 * len(name) + 4:
            colour = DARK if event["name"] == "forward" else "#ffffff"
            parts.append(text(x + width / 2, y + 21, name, 10, "middle", fill=colour))
    height = 40 + 4 * 40 + 26
    parts += legend(
        height - 8,
        [
            ("encoder forward", ENCODER),
            ("encoder backward", FILLS["vision", "backward"]),
            ("LLM forward", LLM),
            ("LLM backward", FILLS["llm", "backward"]),
            ("other slots", "#eaeef2"),
        ],
    )
    return page(height + 6, parts)


def certificate(answers):
    """Step times of policies, the bound under all of them, and what the gaps consist of."""
    longest = max(row["step_s"] for row in answers.cases)
    scale = (WIDTH - LEFT - 150) / longest
    parts = [
        text(16, 26, "Step time, and the bound of any assignment in any order", 14, weight="bold")
    ]
    for number, row in enumerate(answers.cases):
        y = 44 + number * 30
        parts.append(text(16, y + 16, row["policy"]))
        bound = row["lower_bound_s"]
        parts.append(box(LEFT, y, bound * scale, 22, "#2f5f9e", "bound"))
        x = LEFT + bound * scale
        causes = row["gap_causes"]
        total = sum(causes[cause] for cause in CAUSES)
        for cause, fill in CAUSES.items():
            # Of the waits, the part that the bound includes is not gap.
            width = (row["step_s"] - bound) * scale * causes[cause] / total if total > 0 else 0
            if width > 0.05:
                parts.append(
                    box(x, y, width, 22, fill, f"{cause} {causes[cause]:.1%} of the bound")
                )
                x += width
        said = f"{row['step_s'] * 1e3:.0f} ms, gap {row['gap'] * 100:.1f} %"
        parts.append(text(LEFT + row["step_s"] * scale + 8, y + 16, said, 12))
    bound = LEFT + answers.cases[0]["lower_bound_s"] * scale
    bottom = 44 + len(answers.cases) * 30
    parts.append(line(bound, 38, bound, bottom, DARK, 'stroke-dasharray="4 3"'))
    parts += legend(bottom + 22, [("bound", "#2f5f9e"), *CAUSES.items()])
    return page(bottom + 36, parts)


DRAWINGS = {
    "static_plan": static_plan,
    "deferral": deferral,
    "slot_shape": slot_shape,
    "split_backward": split_backward,
    "groups": groups,
    "certificate": certificate,
}


def draw_all(entrain):
    """{name: SVG}"""
    with tempfile.TemporaryDirectory() as folder:
        answers = Answers(entrain, Path(folder))
        return {name: draw(answers) for name, draw in DRAWINGS.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    build = ROOT / "build" / "release" / "entrain" / "cli" / "entrain"
    parser.add_argument("--entrain", type=Path, default=build, help="the program")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "drawings", help="folder")
    options = parser.parse_args()
    options.output.mkdir(exist_ok=True)
    for name, drawing in draw_all(options.entrain).items():
        path = options.output / f"{name}.svg"
        path.write_text(drawing)
        print(f"{path}: {len(drawing)} bytes")


if __name__ == "__main__":
    main()
