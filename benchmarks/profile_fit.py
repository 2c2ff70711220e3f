"""How well a measured profile predicts whole stages: writes a results page.

For every model given: measures a profile, lets `entrain profile --check` run whole stages, several
layers each, on slots of real samples drawn from an index, and compares; the sizes of those slots are
not among those fitted. Several rounds, models in turn, each with a profile and samples of its own, so
that a busy minute of the machine spoils one round and not one model.

Example:
    python benchmarks/profile_fit.py --case configs/demo-model.toml=data/demo/train.csv
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import launch
import machine

MEDIAN_BAR = 0.05
WORST_BAR = 0.15


def entrain(options, *arguments):
    """One command's JSON."""
    result = launch.run(options.entrain, "profile", *arguments, "--json")
    sys.stderr.write(result.stderr)
    return json.loads(result.stdout)


def percent(value):
    """One decimal."""
    return f"{100 * value:.1f} %"


class Case:
    """One model and its samples; profiles and checks of all rounds."""

    def __init__(self, text):
        self.model, self.index = text.split("=", 1)
        self.profiles = []
        self.checks = []

    def measure(self, options, seed):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "profile.json"
            self.profiles.append(
                entrain(
                    options, "--model", self.model, "-o", path, "--max-tokens", options.max_tokens,
                    "--seconds", options.seconds,
                )
            )  # fmt: skip
            self.checks.append(
                entrain(
                    options, "--check", path, "--model", self.model, "--index", self.index,
                    "--slots", options.slots, "--samples-per-slot", options.samples_per_slot,
                    "--seed", seed,
                )
            )  # fmt: skip

    def fit_rows(self):
        """One line per entry: what it was measured on and how well the curves fit."""
        rows = []
        for entries in zip(*(profile["layers"] for profile in self.profiles), strict=True):
            curves = [
                f"{percent(median(e[name]['fit_median'] for e in entries))} / "
                f"{percent(max(e[name]['fit_error'] for e in entries))}"
                for name in ("forward", "backward_input", "backward_weight")
            ]
            tokens = min(entry["range"]["most_tokens"] for entry in entries)
            rows.append(
                f"| {entries[0]['module']} | {entries[0]['kind']} | {tokens:.0f} | "
                f"{percent(median(entry.get('spread', 0) for entry in entries))} | "
                f"{' | '.join(curves)} |"
            )
        return rows

    def check_rows(self):
        """One line per stage and direction."""
        rows = []
        for title in self.checks[0]:
            for entries in zip(*(check[title] for check in self.checks), strict=True):
                rows.append(
                    f"| {title} | {entries[0]['what']} | {sum(e['count'] for e in entries)} | "
                    f"{percent(median(e['median_error'] for e in entries))} | "
                    f"{percent(max(e['worst_error'] for e in entries))} | "
                    f"{', '.join(percent(e['bias']) for e in entries)} |"
                )
        return rows

    def verdict(self):
        """Both directions together, over all rounds, stages and slots."""
        entries = [
            entry
            for check in self.checks
            for rows in check.values()
            for entry in rows
            if entry["what"] == "all"
        ]
        middle = median(entry["median_error"] for entry in entries)
        worst = max(entry["worst_error"] for entry in entries)
        met = "met" if middle <= MEDIAN_BAR and worst <= WORST_BAR else "**missed**"
        return (
            f"Stages as wholes: median {percent(middle)}, worst {percent(worst)}; the bar of "
            f"{percent(MEDIAN_BAR)} and {percent(WORST_BAR)} is {met}."
        )

    def section(self):
        return [
            f"## {Path(self.model).stem}, samples of {Path(self.index).parent.name}",
            "",
            self.verdict(),
            "",
            "| module | layer | up to tokens | spread | forward fit | input gradient | weight gradient |",
            "|---|---|---|---|---|---|---|",
            *self.fit_rows(),
            "",
            "| stages | stage | slots | median error | worst | bias by round |",
            "|---|---|---|---|---|---|",
            *self.check_rows(),
            "",
        ]


def median(values):
    return statistics.median(values)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--case", action="append", required=True, help="MODEL.toml=INDEX.csv, may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=8192)
    parser.add_argument("--seconds", type=int, default=30, help="of every profile")
    parser.add_argument("--slots", type=int, default=10)
    parser.add_argument("--samples-per-slot", type=int, default=6)
    parser.add_argument("--entrain", default="build/release/entrain/cli/entrain")
    parser.add_argument("--output", help="Markdown page to write; default: standard output")
    return parser.parse_args()


def main():
    options = parse()
    cases = [Case(text) for text in options.case]
    load = machine.OtherLoad()
    for round_index in range(options.rounds):
        for case in cases:
            case.measure(options, round_index)
    texts = " ".join(f"--case {case}" for case in options.case)
    lines = [
        "# Fit of a profile, and its prediction error on whole stages",
        "",
        (
            f"Command: `python benchmarks/profile_fit.py {texts} --rounds {options.rounds} "
            f"--max-tokens {options.max_tokens} --seconds {options.seconds} --slots {options.slots} "
            f"--samples-per-slot {options.samples_per_slot}`"
        ),
        "",
        f"{machine.describe()}; one thread, fp32, {load.text()}.",
        "",
        (
            "Times are processor time of one thread, medians of repeats. Fit: error of the curve at "
            "its own points, median / worst. Stages: every slot packs samples of the index and runs "
            "through whole stages of several layers; error is (predicted - measured) / measured; "
            "`all` is forward and backward together, over all slots and stages. Every round has its "
            "own profile and samples; figures are medians over rounds, the worst is of all rounds."
        ),
        "",
    ]
    for case in cases:
        lines += case.section()
    text = "\n".join(lines)
    machine.give(text, options.output)


if __name__ == "__main__":
    main()
