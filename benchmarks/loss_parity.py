"""Loss curves of one training: ranks as threads and as Gloo processes, fp32 and bf16, two policies.

Beside them the curve of the same model in plain eager PyTorch (benchmarks/eager_model.py), which
shares no code with the engine but its first weights and its choice of samples.

Every run trains the same global batches from the same weights; what differs is where ranks live,
what they compute with and how samples are placed. There are two references: the run on threads with
the policy `sequential`, in the run's own precision, and the eager one. Beside each stand further
runs with their microbatches cut elsewhere: they differ from the first in the order of summation
alone. The distance of the first such run, the gap, is the yardstick. Rule of fp32, beside either
reference: the first ten steps within 1e-5, later ones within twice the gap (the largest so far, at
least 1e-5).

How far rounding drives one pair of runs apart is chance: held to the distance of one pair, runs that
are right by construction can break the rule. So the table also tells what the same rule says with
the largest distance between any two orders as the gap; that changes no verdict. Two checks of both
rules stand beside it: every order is held to the one pair and to the gap of the others, which a right
run should keep, and so are runs with a setting changed by little (--wrong), which should be found.

Under bf16 another order of summation alone moves the first step further than 1e-5, so its distances
are told in gaps of one pair; how far bf16 lies from fp32 is a table of its own.

Runs are kept in --folder: finished ones are not repeated, and one that was stopped goes on from its
last checkpoint. Exit code 1 where a curve breaks the rule, or two kinds of ranks differ in a bit.

Example:
    python benchmarks/loss_parity.py configs/vlm-small.toml --seed 1 --output page.md
"""

import argparse
import itertools
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

import eager
import launch
import machine
import torch
from machine import table

PRECISIONS = ("fp32", "bf16")
POLICIES = ("sequential", "entrain")
KINDS = ("threads", "gloo")
TOLERANCE = 1e-5
FIRST_STEPS = 10  # that must agree within the tolerance alone
DASHES = {"gloo": ' stroke-dasharray="5 5"', "eager": ' stroke-dasharray="1 4"'}
COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49")


class Run:
    """One way to train: kind of ranks, precision, policy, number of slots; its loss at every step.

    With `wrong`, a setting of the optimizer and its value, it trains otherwise than the others.
    """

    def __init__(self, options, kind, precision, policy, num_slots, wrong=None):
        self.kind = kind
        self.precision = precision
        self.policy = policy
        self.num_slots = num_slots
        self.reordered = num_slots != options.num_slots
        self.wrong = wrong
        name = f"{kind}-{precision}-{policy}-{num_slots}"
        if wrong:
            name += f"-{wrong[0]}={wrong[1]}"
        self.folder = options.folder / name
        self.settings = {
            "output": self.folder,
            "seed": options.seed,
            "steps": options.steps,
            "data.global_batch": options.global_batch,
            "data.validation": "",
            "plan.num_slots": num_slots,
            "plan.policy": policy,
            "execution.precision": precision,
            "execution.trace_step": -1,
            "execution.deadline_seconds": 3600,  # a shared machine may let a run stand still
            "checkpoint.every_steps": 25,
        }
        if wrong:
            self.settings[f"optimizer.{wrong[0]}"] = wrong[1]

    def name(self):
        text = f"{self.kind}, {self.precision}, {self.policy}"
        text += f", {self.num_slots} slots" if self.reordered else ""
        return text + (f", `{self.wrong[0]}` {self.wrong[1]}" if self.wrong else "")

    def rows(self):
        begun = (self.folder / "metrics.jsonl").exists()
        return [row for row in launch.rows(self.folder) if "loss" in row] if begun else []

    def is_finished(self, options):
        return len(self.rows()) == options.steps and (self.folder / "weights.safetensors").exists()

    def train(self, options):
        program = launch.command(options.entrain, processes=2 if self.kind == "gloo" else 0)
        command = [*program, "train", options.config, *launch.settings(self.settings)]
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("a") as log:
            result = subprocess.run(
                command,
                env=launch.environment(options.package),
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if result.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\nfailed: see {self.folder / 'log'}")

    def read(self):
        rows = self.rows()
        self.losses = [row["loss"] for row in rows]
        self.norms = [row["grad_norm"] for row in rows]
        self.deferred = sum(row["deferred"] for row in rows)
        self.weights = (self.folder / "weights.safetensors").read_bytes()


class EagerRun:
    """The same training in eager Python, one thread and no pipeline, in fp32."""

    kind, precision, policy, deferred, wrong = "eager", "fp32", "sequential", 0, None

    def __init__(self, options, num_slots):
        self.num_slots = num_slots
        self.reordered = num_slots != options.num_slots
        self.path = options.folder / f"eager-{num_slots}.json"

    def name(self):
        return "eager PyTorch, fp32" + (f", {self.num_slots} slots" if self.reordered else "")

    def is_finished(self, options):
        return self.path.exists() and len(json.loads(self.path.read_text())) == options.steps

    def train(self, options):
        torch.set_num_threads(1)
        settings = argparse.Namespace(**vars(options) | {"num_slots": self.num_slots})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".partial")
        eager.read_config(settings)
        settings.document["seed"] = options.seed
        unfinished.write_text(json.dumps(eager.losses(settings, options.steps)))
        unfinished.rename(self.path)

    def read(self):
        self.losses = json.loads(self.path.read_text())


def runs_of(options):
    runs = [
        Run(options, kind, precision, policy, options.num_slots)
        for precision in PRECISIONS
        for policy in POLICIES
        for kind in KINDS
    ]
    others = {"fp32": options.other_slots, "bf16": options.other_slots[:1]}
    reordered = [
        Run(options, "threads", precision, "sequential", num_slots)
        for precision in PRECISIONS
        for num_slots in others[precision]
    ]
    wrong = [
        Run(options, "threads", "fp32", "sequential", options.num_slots, changed)
        for changed in options.wrong
    ]
    orders = (options.num_slots, *options.other_slots)
    return [*runs, *reordered, *wrong, *(EagerRun(options, num_slots) for num_slots in orders)]


def find_all(runs, kind, precision, policy, reordered):
    return [
        run
        for run in runs
        if (run.kind, run.precision, run.policy, run.reordered)
        == (kind, precision, policy, reordered)
        and not run.wrong
    ]


def find(runs, kind, precision, policy):
    (found,) = find_all(runs, kind, precision, policy, False)
    return found


def distances(run, reference):
    return [abs(a - b) for a, b in zip(run.losses, reference.losses, strict=True)]


def gaps_between(runs):
    """At every step, the largest distance between any two runs."""
    return [max(losses) - min(losses) for losses in zip(*(run.losses for run in runs), strict=True)]


def allowed(gaps):
    """What the rule allows at every step, from the gaps of runs that differ in order alone."""
    bounds, largest = [], 0.0
    for step, gap in enumerate(gaps):
        largest = max(largest, gap)
        bounds.append(TOLERANCE if step < FIRST_STEPS else max(TOLERANCE, 2 * largest))
    return bounds


def spans(steps):
    """Step ranges of the tables: the first ten, and the rest in four."""
    edges = [0, FIRST_STEPS]
    edges += [FIRST_STEPS + (steps - FIRST_STEPS) * i // 4 for i in range(1, 5)]
    return list(itertools.pairwise(edges))


def broken_steps(away, bounds):
    return [i for i, (d, bound) in enumerate(zip(away, bounds, strict=True)) if d > bound]


def told(broken):
    """(how the rule is kept, whether it is)."""
    if not broken:
        return "kept", True
    steps = "1 step" if len(broken) == 1 else f"{len(broken)} steps"
    return f"**broken** at {steps}, first {broken[0]}", False


def row_of(name, values, *verdicts):
    return [name, *[f"{max(values[a:b]):.1e}" for a, b in spans(len(values))], *verdicts]


def judge(runs, kind):
    """(rows of the table, whether all is kept) of fp32 beside the reference of `kind`."""
    reference = find(runs, kind, "fp32", "sequential")
    others = find_all(runs, kind, "fp32", "sequential", True)
    bounds = allowed(distances(others[0], reference))
    wide = allowed(gaps_between([reference, *others]))
    rows, good = [row_of(reference.name(), [0.0] * len(bounds), "the reference", "")], True
    for run in runs:
        if run.precision == "fp32" and run.kind in KINDS and not run.reordered and run != reference:
            away = distances(run, reference)
            verdict, kept = told(broken_steps(away, bounds))
            good = good and (kept or run.wrong is not None)
            rows.append(row_of(run.name(), away, verdict, told(broken_steps(away, wide))[0]))
    for other in others:
        away = distances(other, reference)
        rest = allowed(gaps_between([reference, *(run for run in others if run is not other)]))
        verdict = "the gap" if other is others[0] else told(broken_steps(away, bounds))[0]
        by_rest = told(broken_steps(away, rest))[0]
        rows.append(row_of(other.name(), away, verdict, f"by the others: {by_rest}"))
    rows.append(row_of("allowed", bounds, "", ""))
    rows.append(row_of("allowed by all orders", wide, "", ""))
    return rows, good


def judge_bf16(runs):
    """Rows of bf16 beside its own reference, told in gaps of one pair."""
    reference = find(runs, "threads", "bf16", "sequential")
    (other,) = find_all(runs, "threads", "bf16", "sequential", True)
    gaps = distances(other, reference)
    rows = [row_of(reference.name(), [0.0] * len(gaps), "the reference")]
    for run in runs:
        if run.precision == "bf16" and run not in (reference, other):
            away = distances(run, reference)
            rows.append(row_of(run.name(), away, f"{max(away) / max(gaps):.2f} of the largest gap"))
    return [*rows, row_of(other.name(), gaps, "the gap")]


def equalities(runs):
    """(lines about bits, whether threads and processes agree in all of them)."""
    lines, good = [], True
    for precision in PRECISIONS:
        for policy in POLICIES:
            threads, gloo = (find(runs, kind, precision, policy) for kind in KINDS)
            same = (threads.losses, threads.norms) == (gloo.losses, gloo.norms)
            weights = threads.weights == gloo.weights
            good = good and same and weights
            lines.append(
                f"- {precision}, `{policy}`: losses and gradient norms of all "
                f"{len(threads.losses)} steps {'equal' if same else '**differ**'}, final weights "
                f"{'equal' if weights else '**differ**'}"
            )
    return lines, good


def between_precisions(runs):
    """Rows: how far bf16 lies from fp32."""
    rows = []
    for policy in POLICIES:
        fp32, bf16 = (find(runs, "threads", p, policy) for p in PRECISIONS)
        relative = [abs(a - b) / a for a, b in zip(fp32.losses, bf16.losses, strict=True)]
        signed = [(b - a) / a for a, b in zip(fp32.losses, bf16.losses, strict=True)]
        rows.append([
            f"`{policy}`",
            *[f"{100 * max(relative[a:b]):.2f} %" for a, b in spans(len(relative))],
            f"{100 * statistics.mean(signed):+.3f} %",
        ])  # fmt: skip
    return rows


def polyline(values, x_of, y_of, style):
    points = " ".join(f"{x_of(i):.1f},{y_of(value):.1f}" for i, value in enumerate(values))
    return f'<polyline points="{points}" fill="none" {style}/>'


def axes(left, top, width, height, ticks, label):
    """Frame, horizontal lines with their texts, and what the axis is of."""
    parts = [
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#888"/>',
        f'<text x="{left}" y="{top - 6}">{label}</text>',
    ]
    for y, text in ticks:
        parts.append(
            f'<line x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        )
    return parts


def legend(x, y, text, style):
    return (
        f'<line x1="{x}" y1="{y}" x2="{x + 28}" y2="{y}" {style}/>'
        f'<text x="{x + 36}" y="{y + 4}">{text}</text>'
    )


def svg(runs, options):
    """Above, all curves; below, distances to the fp32 reference, logarithmic."""
    left, width, curve_h, distance_h = 64, 560, 260, 220
    top, second = 24, 24 + 260 + 40
    last = options.steps - 1
    shown = [run for run in runs if not run.reordered and not run.wrong]  # the eager one last
    reference = find(runs, "threads", "fp32", "sequential")
    largest = max(max(run.losses) for run in shown)
    smallest = min(min(run.losses) for run in shown)
    x_of = lambda step: left + width * step / last
    loss_y = lambda loss: top + curve_h * (largest - loss) / (largest - smallest)
    floor, ceiling = -9, 0
    distance_y = lambda value: (
        second + distance_h * (ceiling - math.log10(max(value, 10.0**floor))) / (ceiling - floor)
    )
    parts = [
        ('<svg xmlns="http://www.w3.org/2000/svg" width="900" height="600" '
        'font-family="sans-serif" font-size="12">'),
        '<rect width="900" height="600" fill="white"/>',
        *axes(
            left, top, width, curve_h,
            [(loss_y(v), f"{v:.1f}") for v in (smallest, (smallest + largest) / 2, largest)],
            "loss per target token",
        ),
        *axes(
            left, second, width, distance_h,
            [(distance_y(10.0**e), f"1e{e}") for e in range(floor, ceiling + 1, 3)],
            "distance to threads, fp32, sequential",
        ),
    ]  # fmt: skip
    for index, run in enumerate(shown):
        colour = COLOURS[index // len(KINDS)] if run.kind == "threads" else "#222"
        dashed = DASHES.get(run.kind, "")
        stroke = 3 if run.kind == "threads" else 1.5
        style = f'stroke="{colour}" stroke-width="{stroke}"{dashed}'
        parts.append(polyline(run.losses, x_of, loss_y, style))
        if run is not reference:
            parts.append(polyline(distances(run, reference), x_of, distance_y, style))
        parts.append(legend(left + width + 20, top + 14 + 22 * index, run.name(), style))
    other = find_all(runs, "threads", "fp32", "sequential", True)[0]
    bounds = allowed(distances(other, reference))
    style = 'stroke="#999" stroke-width="1.5"'
    parts.append(polyline(bounds, x_of, distance_y, style))
    parts.append(legend(left + width + 20, second + 14, "allowed for fp32", style))
    for step in range(0, options.steps + 1, max(1, options.steps // 6)):
        parts.append(
            f'<text x="{x_of(min(step, last)):.1f}" y="{second + distance_h + 18}" '
            f'text-anchor="middle">{step}</text>'
        )
    parts.append(
        f'<text x="{left + width / 2}" y="{second + distance_h + 38}" text-anchor="middle">step</text>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def page(options, runs, plot):
    """(the page, whether all is as it must be)."""
    judged = [judge(runs, kind) for kind in ("threads", "eager")]
    curves = [*(rows for rows, _ in judged), judge_bf16(runs)]
    kept = all(good for _, good in judged)
    bit_lines, equal = equalities(runs)
    columns = [f"steps {a} to {b - 1}" for a, b in spans(options.steps)]
    reference = find(runs, "threads", "fp32", "sequential")
    deferred = {p: find(runs, "threads", p, "entrain").deferred for p in PRECISIONS}
    tail = statistics.mean(reference.losses[-10:])
    lines = [
        "# Loss parity: threads and processes, fp32 and bf16, two policies",
        "",
        (
            f"Command: `python benchmarks/loss_parity.py {options.config} --seed {options.seed} "
            f"--steps {options.steps} "
            f"--global-batch {options.global_batch} --num-slots {options.num_slots} "
            f"--other-slots {' '.join(map(str, options.other_slots))} "
            f"--wrong {' '.join('='.join(wrong) for wrong in options.wrong)}`"
        ),
        "",
        f"{machine.describe()}; two lanes, one thread each.",
        "",
        (
            f"{options.steps} steps of {options.global_batch} samples in {options.num_slots} slots; "
            f"the loss falls from {reference.losses[0]:.2f} to {tail:.2f} (mean of the last ten "
            f"steps). `entrain` deferred {deferred['fp32']} segments. Largest distance of the loss to "
            "the reference, in spans of steps. The gap is that of a run of the reference with "
            f"{options.other_slots[0]} slots, which differs only in the order of summation; allowed "
            f"under fp32 are {TOLERANCE:g} in the first {FIRST_STEPS} steps, then twice the largest "
            f"gap so far, at least {TOLERANCE:g}. *By all orders*: the same with the largest distance "
            f"between any two of {1 + len(options.other_slots)} orders as the gap; it changes no "
            "verdict. *By the others*: an order held to the gap of the rest. A row that names a "
            "setting is of a run that trains otherwise on purpose, and should break the rule."
        ),
        "",
        f"![loss curves]({plot})",
        "",
        "Beside the engine's own run on threads:",
        "",
        *table(["fp32", *columns, "rule", "by all orders"], curves[0]),
        "",
        "Beside plain eager PyTorch (`benchmarks/eager_model.py`), one process:",
        "",
        *table(["fp32", *columns, "rule", "by all orders"], curves[1]),
        "",
        "bf16, compared with the engine's own run on threads in bf16:",
        "",
        *table(["bf16", *columns, ""], curves[2]),
        "",
        "Threads and Gloo processes, bit by bit:",
        "",
        *bit_lines,
        "",
        "bf16 compared with fp32, largest relative distance of the loss, and mean signed distance:",
        "",
        *table(["policy", *columns, "mean"], between_precisions(runs)),
        "",
    ]
    return "\n".join(lines), kept and equal


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", help="run file with one encoder lane and one LLM lane")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--global-batch", type=int, default=16)
    parser.add_argument("--num-slots", type=int, default=4)
    parser.add_argument(
        "--other-slots", type=int, nargs="+", default=[3, 2, 5, 6], help="of the reordered runs"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--wrong",
        nargs="*",
        default=["learning_rate=1.0001e-3", "beta2=0.9501", "clip_norm=1.001"],
        metavar="SETTING=VALUE",
        help="of the optimizer, a run each that the rule should find",
    )
    parser.add_argument("--folder", type=Path, help="default: runs/loss_parity-SEED")
    parser.add_argument("--entrain", default="build/release/entrain/cli/entrain")
    parser.add_argument("--package", default="build/release/python", help="the Python package's")
    parser.add_argument("--output", help="Markdown page to write, its plot beside it")
    options = parser.parse_args()
    if options.num_slots in options.other_slots:
        parser.error("--other-slots must differ from --num-slots")
    options.folder = options.folder or Path(f"runs/loss_parity-{options.seed}")
    options.wrong = [tuple(setting.split("=", 1)) for setting in options.wrong]
    return options


def main():
    options = parse()
    runs = runs_of(options)
    for run in runs:
        if not run.is_finished(options):
            print(run.name(), file=sys.stderr, flush=True)
            run.train(options)
        run.read()
    plot = (
        Path(options.output).with_suffix(".svg") if options.output else options.folder / "plot.svg"
    )
    plot.write_text(svg(runs, options))
    text, good = page(options, runs, plot.name)
    machine.give(text, options.output)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
