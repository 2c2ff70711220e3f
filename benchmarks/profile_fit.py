"""How well a measured profile predicts whole stages: writes a results page.

Measures a profile of every model given (or takes the one beside it), then lets `entrain profile
--check` run whole stages, several layers each, on slots of real samples drawn from an index, and
compares. The sizes of those slots were not among those fitted.

Example:
    python benchmarks/profile_fit.py --case configs/demo-model.toml=data/demo/train.csv
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path


def entrain(options, *arguments):
    """One command's JSON."""
    command = [options.entrain, "profile", *arguments, "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    sys.stderr.write(result.stderr)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed")
    return json.loads(result.stdout)


def percent(value):
    """One decimal."""
    return f"{100 * value:.1f} %"


def fit_rows(profile):
    """One line per entry: what it was measured on and how well the curves fit."""
    rows = []
    for layer in profile["layers"]:
        curves = [layer["forward"], layer["backward_input"], layer["backward_weight"]]
        rows.append(
            f"| {layer['module']} | {layer['kind']} | {layer['range']['most_tokens']:.0f} | "
            f"{percent(layer.get('spread', 0))} | "
            + " | ".join(f"{percent(c['fit_median'])} / {percent(c['fit_error'])}" for c in curves)
            + " |"
        )
    return rows


def check_rows(report):
    """One line per stage and direction."""
    rows = []
    for title, entries in report.items():
        for row in entries:
            rows.append(
                f"| {title} | {row['what']} | {row['count']} | {percent(row['median_error'])} | "
                f"{percent(row['worst_error'])} | {percent(row['bias'])} |"
            )
    return rows


def section(options, case, folder):
    """A model's two tables."""
    model, index = case.split("=", 1)
    output = Path(folder) / "profile.json"
    profile = entrain(
        options, "--model", model, "-o", str(output), "--max-tokens", str(options.max_tokens),
        "--seconds", str(options.seconds),
    )  # fmt: skip
    report = entrain(
        options, "--check", str(output), "--model", model, "--index", index,
        "--slots", str(options.slots), "--samples-per-slot", str(options.samples_per_slot),
    )  # fmt: skip
    return [
        f"## {Path(model).stem}, samples of {Path(index).parent.name}",
        "",
        "| module | layer | up to tokens | spread | forward fit | input gradient | weight gradient |",
        "|---|---|---|---|---|---|---|",
        *fit_rows(profile),
        "",
        "| stages | stage | slots | median error | worst | bias |",
        "|---|---|---|---|---|---|",
        *check_rows(report),
        "",
    ]


def processor():
    """The processor's name as the system tells it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--case", action="append", required=True, help="MODEL.toml=INDEX.csv, may be repeated"
    )
    parser.add_argument("--max-tokens", type=int, default=8192)
    parser.add_argument("--seconds", type=int, default=90)
    parser.add_argument("--slots", type=int, default=12)
    parser.add_argument("--samples-per-slot", type=int, default=8)
    parser.add_argument("--entrain", default="build/release/entrain/cli/entrain")
    parser.add_argument("--output", default="benchmarks/results/profile_fit_2core_202611.md")
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    cases = " ".join(f"--case {case}" for case in options.case)
    lines = [
        "# A profile's fit, and how it predicts whole stages",
        "",
        (
            f"Command: `python benchmarks/profile_fit.py {cases} --max-tokens {options.max_tokens} "
            f"--seconds {options.seconds} --slots {options.slots} "
            f"--samples-per-slot {options.samples_per_slot}`"
        ),
        "",
        f"Commit {commit}; {processor()}, {platform.system()} {platform.machine()}; one thread, fp32.",
        "",
        (
            "Times are processor time of one thread, medians of repeats. Fit: error of the curve at its "
            "own points, median / worst. Stages: every slot packs samples of the index and runs through "
            "whole stages of several layers; error is (predicted - measured) / measured, `all` is forward "
            "and backward together over all slots and stages."
        ),
        "",
    ]
    for case in options.case:
        with tempfile.TemporaryDirectory() as folder:
            lines += section(options, case, folder)
    Path(options.output).write_text("\n".join(lines))


if __name__ == "__main__":
    main()
