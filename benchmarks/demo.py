"""What the demo ends with, over several runs: losses, accuracies, time.

Runs `tools/demo/run.sh` again and again, each time with a profile and a plan of its own, as a newcomer
would, and prints lowest, median and highest of every figure as the rows of README's table.

Example:
    python benchmarks/demo.py --runs 10 --output benchmarks/results/demo_2core_202611.md
"""

import argparse
import re
import statistics
import sys
import time
from pathlib import Path

import launch
import machine

ROOT = Path(__file__).resolve().parents[1]
RUN = ROOT / "runs" / "demo"
# As `entrain eval` prints them.
ACCURACY = re.compile(r"^loss \S+, accuracy (\S+) % of \d+ answers", re.MULTILINE)
KIND = re.compile(r"^  (\S.*?) +(\S+) % of (\d+)$", re.MULTILINE)
LAST_STEPS = 10


def losses():
    """Loss of the first step, and the mean of the last ones."""
    values = [row["loss"] for row in launch.rows(RUN) if "loss" in row]
    return values[0], statistics.mean(values[-LAST_STEPS:])


def run_once():
    """{figure: value} of one run of the demo."""
    started = time.monotonic()
    result = launch.run(ROOT / "tools" / "demo" / "run.sh")
    seconds = time.monotonic() - started
    seen, blank = ACCURACY.findall(result.stdout)
    with_images = result.stdout.rpartition("The same with every image blanked:")[0]
    first, last = losses()
    figures = {"loss of the first step": first, f"loss, mean of the last {LAST_STEPS} steps": last}
    figures["accuracy on 600 unseen charts, %"] = float(seen)
    for kind, share, count in KIND.findall(with_images.rpartition("accuracy")[2]):
        figures[f"… of the kind {kind} ({count}), %"] = float(share)
    figures["accuracy with every image blanked, %"] = float(blank)
    figures["time of the demo without the build, s"] = seconds
    return figures


def page(runs, command):
    lines = [
        "# The demo's figures over several runs",
        "",
        machine.describe() + ".",
        f"Command: `{command}`. Runs: {len(runs)}; charts were drawn before the first.",
        "Every run measures its own profile and finds its own plan.",
        "",
        "| | lowest | median | highest |",
        "|---|---|---|---|",
    ]
    for figure in runs[0]:
        values = [run[figure] for run in runs]
        cells = (f"{value:.3g}" for value in (min(values), statistics.median(values), max(values)))
        lines.append(f"| {figure} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10, help="default %(default)s")
    parser.add_argument("--output", help="page to write; default: standard output")
    options = parser.parse_args()
    runs = []
    for number in range(options.runs):
        runs.append(run_once())
        print(f"run {number + 1} of {options.runs}: {runs[-1]}", file=sys.stderr)
        if options.output or number + 1 == options.runs:  # what is done is kept
            text = page(runs, f"python benchmarks/demo.py --runs {options.runs}")
            machine.give(text, options.output)


if __name__ == "__main__":
    main()
