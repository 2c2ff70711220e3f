"""How long the policy `entrain` takes to assign a batch, on every size manifest and at scale.

`entrain simulate` on 8 lanes: milliseconds of a first assignment (no evaluations), of the default
budget, and what the search made of the step. With `--before` an older build is timed in turn with
this one, and each time is shown over its own.

Example:
    python benchmarks/assign_time.py --manifests MANIFESTS --output page.md
    python benchmarks/assign_time.py --manifests MANIFESTS --only mathvision_qa --replicas 4,128
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

import launch
import machine
from machine import table
from manifests import chosen, inputs

FIRST, DEFAULT = 0, None


def parse():
    parser = launch.parser(__doc__)
    parser.add_argument(
        "--before", default="", help="an older build of the program to compare with"
    )
    parser.add_argument("--manifests", required=True, help="folder of size manifests")
    parser.add_argument("--only", default="", help="comma-separated manifests (default: all)")
    parser.add_argument("--replicas", default="4", help="such as 4 or 4,128")
    parser.add_argument("--samples", type=int, default=128, help="of a replica")
    parser.add_argument("--schedules", default="1f1b,entrain")
    parser.add_argument("--assign-threads", type=int, default=1, help="of this build alone")
    parser.add_argument("--runs", type=int, default=3, help="of each, of which the median counts")
    return parser.parse_args()


class Case:
    """A manifest's batch under a plan of 8 lanes."""

    def __init__(self, options, folder, manifest, replicas):
        self.inputs = inputs(options.manifests, manifest, "3b")
        self.inputs += ["--global-batch", options.samples * replicas]
        self.plan = folder / f"{manifest}-{replicas}.json"
        lanes = ["--lanes", 8, "--replicas", replicas, "--batches", 1]
        launch.run(options.entrain, "plan", *self.inputs, *lanes, "--json", "-o", self.plan)

    def assign(self, program, schedule, budget, threads=1):
        """(milliseconds, seconds of the step)"""
        command = [program, "simulate", *self.inputs, "--plan", self.plan, "--policy", "entrain"]
        command += ["--schedule", schedule, "--steps", 1, "--json"]
        command += [] if budget is DEFAULT else ["--evaluations", budget]
        command += [] if threads == 1 else ["--assign-threads", threads]
        row = json.loads(launch.run(*command).stdout)["rows"][0]
        return row["assign_ms"], row["step_s"]


def timed(options, case, schedule, budget):
    """Medians of this build and of the older one, in turn; seconds of this one's step."""
    now, before, step = [], [], 0
    for _ in range(options.runs):
        milliseconds, step = case.assign(options.entrain, schedule, budget, options.assign_threads)
        now.append(milliseconds)
        if options.before:
            before.append(case.assign(options.before, schedule, budget)[0])
    return statistics.median(now), statistics.median(before) if before else None, step


def main():
    options = parse()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for replicas in map(int, options.replicas.split(",")):
            for manifest in chosen(options):
                case = Case(options, Path(folder), manifest, replicas)
                for schedule in options.schedules.split(","):
                    cells = [manifest, f"{options.samples * replicas} × {replicas}", schedule]
                    steps = []
                    for budget in (FIRST, DEFAULT):
                        now, before, step = timed(options, case, schedule, budget)
                        cells += [f"{now:.1f}"] + ([f"{now / before:.2f}"] if before else [])
                        steps.append(step)
                    rows.append([*cells, f"{steps[0] / steps[1]:.3f}"])
                    print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    over = ["over before"] if options.before else []
    header = [
        "manifest",
        "samples × replicas",
        "schedule",
        "first, ms",
        *over,
        "default, ms",
        *over,
    ]
    page = [
        "# How long an assignment takes",
        "",
        f"{machine.describe()}; one thread, simulated A40 profile, 3B, 8 lanes a replica; medians of",
        f"{options.runs} runs. First: without a search. Last column: what the default search wins.",
        "",
        *table([*header, "first step over default's"], rows),
    ]
    machine.give("\n".join(page) + "\n", options.output)


if __name__ == "__main__":
    main()
