"""Speed of one build tree beside another's: assigner, planner, simulator, schedules and training.

Every case is a micro benchmark, or a short training run on one lane. It runs in both trees alternately,
so that both see the same hour of the machine. A pair's ratio is the processor time of the tree after over
that of the tree before; below 1 is faster. A case that one of the trees lacks is left out, and the page says so.

Example:
    python benchmarks/side_by_side.py ../before/build/release build/release --output page.md
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import launch
import machine

ALLOWED = 1.03
TRAIN = "train"
STEPS, WARM_UP = 8, 2  # of a training run


@dataclass
class Case:
    what: str
    program: str  # of benchmarks/micro, or TRAIN
    name: str  # of the benchmark, as its report has it, or the run file
    slow: bool = False
    before: list = field(default_factory=list)  # nanoseconds of processor time, by pair
    after: list = field(default_factory=list)

    def ratios(self):
        return [after / before for before, after in zip(self.before, self.after, strict=True)]


CASES = (
    Case("assign 512 samples × 4 replicas, shaped", "assigner", "run_policy/entrain_first"),
    Case("assign 512 × 4, by default", "assigner", "run_policy/entrain"),
    Case("assign 512 × 4, charts, by default", "assigner", "run_manifest/opencqa"),
    Case("assign 16,384 × 128, shaped", "assigner", "run_scale/replicas:128/evaluations:0"),
    Case("assign 16,384 × 128, by default", "assigner", "run_scale/replicas:128/evaluations:1000"),
    Case("plan for 64 devices", "planner", "run_search/one_encoder/64/iterations:1"),
    Case("plan for 4,096 devices", "planner", "run_search/one_encoder/4096/iterations:1", True),
    Case("simulate a step of 2,144 operations", "simulator", "simulate_step/events:0"),
    Case("simulate it with events", "simulator", "simulate_step/events:1"),
    Case("build a program by `1f1b`", "schedule", "build/1f1b/replicas:4"),
    Case("build a program by `entrain` (order search)", "schedule", "build/entrain/replicas:4"),
    Case("validate a program", "schedule", "validate/replicas:4"),
    Case("a training step of vlm-small on one lane", TRAIN, "configs/vlm-small.toml"),
)


def run_training(tree, case):
    """Processor time of a step's forwards and backwards in nanoseconds; None without the data."""
    config = tomllib.loads(Path(case.name).read_text())
    if not Path(config["data"]["train"]).exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "output": f"{folder}/run",
            "steps": STEPS,
            "data.validation": "",
            "data.global_batch": 32,
            "plan.num_slots": 8,
            "plan.single_lane": "true",
            "plan.policy": "sequential",
            "plan.profile": "",
        }
        launch.run(tree / "entrain/cli/entrain", TRAIN, case.name, *launch.settings(settings))
        rows = launch.rows(settings["output"])
        steps = [row["lanes"] for row in rows if "lanes" in row and row["step"] >= WARM_UP]
    return 1e9 * statistics.median(sum(lane["processor_s"] for lane in lanes) for lanes in steps)


def run(tree, case, min_time):
    """Processor time in nanoseconds; None where the tree lacks the case, or its data."""
    if case.program == TRAIN:
        return run_training(tree, case)
    program = tree / "benchmarks" / f"{case.program}_benchmark"
    command = [program, f"--benchmark_filter=^{case.name}$", "--benchmark_format=json"]
    if "iterations:" not in case.name:
        command.append(f"--benchmark_min_time={min_time}")
    output = launch.run(*command).stdout
    if not output.strip():
        return None
    (report,) = json.loads(output)["benchmarks"]
    if report.get("error_occurred"):
        print(f"{case.name}: {report['error_message']}", file=sys.stderr)
        return None
    return report["cpu_time"] * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[report["time_unit"]]


def measure(options, case):
    """Runs the case's pairs, the first place in turn; whether both trees have it."""
    for pair in range(options.slow_pairs if case.slow else options.pairs):
        order = [(options.before, case.before), (options.after, case.after)]
        for tree, times in order if pair % 2 == 0 else reversed(order):
            time = run(tree, case, options.min_time)
            if time is None:
                return False
            times.append(time)
    return True


def duration(nanoseconds):
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f} {unit}"
    return f"{nanoseconds / 1e3:.2f} us"


def row(case):
    ratios = case.ratios()
    cells = [
        *(case.what, f"`{case.name}`", duration(statistics.median(case.before))),
        *(duration(statistics.median(case.after)), f"**{statistics.median(ratios):.3f}**"),
        *(f"{min(ratios):.3f} … {max(ratios):.3f}", str(len(ratios))),
    ]
    return f"| {' | '.join(cells)} |"


def page(options, measured, lacking, load):
    slower = [case.what for case in measured if statistics.median(case.ratios()) > ALLOWED]
    yield "# Speed before and after, side by side"
    yield ""
    yield f"Before: {options.before_name}; after: {options.after_name}."
    yield ""
    settings = (
        f"--pairs {options.pairs} --slow-pairs {options.slow_pairs} --min-time {options.min_time:g}"
    )
    yield f"Command: `python benchmarks/side_by_side.py BEFORE/build/release AFTER/build/release {settings}`"
    yield ""
    yield f"{machine.describe()}; {load}."
    yield "Processor time of micro benchmarks and of training steps, both trees alternating, the first"
    yield "place in turn: medians, and the ratio after / before of every pair (below 1 is faster)."
    yield ""
    yield "| case | benchmark | before | after | median ratio | least … largest | pairs |"
    yield "|---|---|---|---|---|---|---|"
    yield from map(row, measured)
    yield ""
    allowed = f"{100 * (ALLOWED - 1):.0f} %"
    yield f"Asked: none more than {allowed} slower in the median. " + (
        f"Slower: {'; '.join(slower)}." if slower else "Kept."
    )
    if lacking:
        yield ""
        yield f"Not in both trees, or without shared data: {'; '.join(c.what for c in lacking)}."


def commit_of(tree):
    """The commit of the checkout that holds a build tree."""
    command = ["git", "-C", tree, "describe", "--always", "--dirty", "--exclude=*"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"commit {result.stdout.strip()}" if result.returncode == 0 else tree.name


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="build tree, such as build/release")
    parser.add_argument("after", type=Path)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--slow-pairs", type=int, default=3, help="of cases that take long")
    parser.add_argument("--min-time", type=float, default=0.5, help="seconds of each run")
    parser.add_argument("--only", default="", help="cases whose name or text contains this")
    parser.add_argument("--output", help="Markdown page to write; default: standard output")
    options = parser.parse_args()
    options.before_name = commit_of(options.before)
    options.after_name = commit_of(options.after)
    return options


def main():
    options = parse()
    load = machine.OtherLoad()
    measured, lacking = [], []
    for case in CASES:
        if options.only in case.what or options.only in case.name:
            (measured if measure(options, case) else lacking).append(case)
            print(
                f"{case.what}: {[f'{r:.3f}' for r in case.ratios()]}", file=sys.stderr, flush=True
            )
    if not measured:
        raise SystemExit("no case was measured in both trees")
    machine.give("\n".join(page(options, measured, lacking, load.text())), options.output)


if __name__ == "__main__":
    main()
