"""What is left of an assignment's lead when costs turn out other than they were assigned by.

For every size manifest, a few drawn batches under the best plan of 8 lanes: policies assign by
`entrain cost`'s costs; then each sample's time in each module is multiplied by a random factor
(log-normal, of the given standard deviation), and all assignments are simulated with the same new
costs. Orders of lanes are fixed under `1f1b`; a schedule that searches them would know the new
costs here, as no run does. `entrain` is also run with 100 and 10,000 evaluations: does a longer
search fit the wrong costs too well?

Example:
    python benchmarks/wrong_costs.py --data data/manifests --output page.md
"""

import csv
import json
import random
import statistics
import sys
import tempfile
from pathlib import Path

import launch
import machine
from machine import table
from manifests import chosen, inputs

BUDGETS = ("100", "default", "10000")
TOLERANCE = 1.002  # of the step time: who is slower by more has lost


def parse():
    parser = launch.parser(__doc__)
    parser.add_argument("--data", required=True, help="folder of size manifests")
    parser.add_argument("--only", default="", help="comma-separated manifests (default: all)")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--batches", type=int, default=3, help="drawn batches of a manifest")
    parser.add_argument("--draws", type=int, default=8, help="of wrong costs, for each batch")
    parser.add_argument("--errors", default="0.1,0.3", help="standard deviations of the factors")
    parser.add_argument("--schedules", default="1f1b")
    parser.add_argument(
        "--policies", default="entrain,lpt-2d,dflop,disttrain,llm-lpt,entrain-paper"
    )
    return parser.parse_args()


class Case:
    """One drawn batch and what every policy makes of it."""

    def __init__(self, options, folder, manifest, seed):
        self.options, self.folder = options, folder
        sizes = inputs(options.data, manifest, "3b")
        self.plan, costs = folder / f"{manifest}.json", folder / f"{manifest}.csv"
        if not costs.exists():
            self.run("cost", *sizes, "-o", costs)
            lanes = ["--lanes", 8, "--replicas", options.replicas]
            self.run("plan", *sizes, "--global-batch", options.batch, *lanes, "-o", self.plan)
        self.rows = {row["sample_id"]: row for row in csv.DictReader(costs.open(newline=""))}
        drawn = ["--costs", costs, "--global-batch", options.batch, "--seed", seed]
        self.assignments = {}  # (policy, schedule that it was assigned for): file
        for schedule in options.schedules.split(","):
            for budget in BUDGETS:
                policy = options.policies if budget == "default" else "entrain"
                few = [] if budget == "default" else ["--evaluations", budget]
                self._assign(drawn, schedule, policy, few)
        self.ids = folder / "ids.txt"
        self.ids.write_text("\n".join(self._samples()) + "\n")

    def run(self, *command):
        return launch.run(self.options.entrain, *command).stdout

    def _assign(self, drawn, schedule, policy, few):
        command = ["assign", *drawn, "--plan", self.plan, "--policy", policy, *few]
        command += ["--schedule", schedule, "--memory", "free", "--json"]
        found = json.loads(self.run(*command))
        for assignment in found if isinstance(found, list) else [found]:
            assignment["step"] = 0
            name = " ".join([assignment["policy"], *few[1:]])
            path = self.folder / f"{name}-{schedule}.json"
            path.write_text(json.dumps(assignment))
            self.assignments[name, schedule] = path

    def _samples(self):
        assignment = json.loads(next(iter(self.assignments.values())).read_text())
        slots = [slot for of in assignment["replicas"] for slot in of["modules"]["llm"]]
        return [sample for slot in slots for sample in slot]

    def wrong_costs(self, error, generator):
        path = self.folder / "wrong.csv"
        modules = [key[: -len("_tokens")] for key in self._columns() if key.endswith("_tokens")]
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, self._columns(), lineterminator="\n")
            writer.writeheader()
            for sample in self.ids.read_text().split():
                of = sample.rsplit("~", 1)[0]  # "~7": the manifest's samples for the eighth time
                row = dict(self.rows.get(sample) or self.rows[of], sample_id=sample)
                for module in modules:
                    factor = generator.lognormvariate(-error * error / 2, error)
                    for half in ("forward", "backward"):
                        key = f"{module}_{half}_s"
                        row[key] = float(row[key]) * factor
                writer.writerow(row)
        return path

    def _columns(self):
        return list(next(iter(self.rows.values())))

    def steps(self, costs):
        """{(policy, schedule): seconds} with other costs."""
        found = {}
        for (policy, schedule), path in self.assignments.items():
            command = ["simulate", "--costs", costs, "--plan", self.plan, "--batch", self.ids]
            command += ["--assignment", path, "--schedule", schedule, "--memory", "free", "--json"]
            rows = json.loads(self.run(*command))["rows"]
            found[policy, schedule] = rows[0]["step_s"]
        return found


def lost(steps, schedule):
    """Whether a rival's step is shorter than entrain's, and the step of the best over entrain's."""
    mine = steps["entrain", schedule]
    ours = {"entrain", *(f"entrain {budget}" for budget in BUDGETS)}
    best = min(s for (policy, of), s in steps.items() if of == schedule and policy not in ours)
    return best * TOLERANCE < mine, best / mine


def page(options, found):
    rows = []
    for (error, schedule), steps in sorted(found.items()):
        results = [lost(step, schedule) for step in steps]
        ratios = [ratio for _, ratio in results]
        budgets = [
            statistics.mean(s[f"entrain {b}", schedule] / s["entrain", schedule] for s in steps)
            for b in BUDGETS
            if b != "default"
        ]
        rows.append(
            [
                f"{100 * error:g} %",
                schedule,
                f"{sum(loses for loses, _ in results)} of {len(results)}",
                f"{statistics.median(ratios):.3f}",
                f"{min(ratios):.3f}",
                *(f"{ratio:.3f}" for ratio in budgets),
            ]
        )
    header = ["error", "schedule", "a rival wins", "median", "least", "100", "10000"]
    return "\n".join(
        [
            "# Costs that turn out wrong after the assignment",
            "",
            f"{machine.describe()}; simulated, 3B, 8 lanes × {options.replicas} replicas,",
            f"{options.policies.replace(',', ', ')};",
            f"{options.batch} samples, {options.batches} batches of every manifest × {options.draws}",
            "draws of costs. A rival wins where its step is shorter by more than 0.2 %. Median and least:",
            "the fastest rival's step over `entrain`'s. Last: `entrain` with so many evaluations over its",
            "default.",
            "",
            *table(header, rows),
            "",
        ]
    )


def main():
    options = parse()
    errors = [0.0, *map(float, options.errors.split(","))]
    found = {}
    for manifest in chosen(options):
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(options.batches):
                case = Case(options, Path(folder), manifest, seed)
                generator = random.Random(f"{manifest}/{seed}")
                for error in errors:
                    for _ in range(options.draws if error > 0 else 1):
                        steps = case.steps(case.wrong_costs(error, generator))
                        for schedule in options.schedules.split(","):
                            found.setdefault((error, schedule), []).append(steps)
                print(f"{manifest} {seed}", file=sys.stderr)
    machine.give(page(options, found), options.output)


if __name__ == "__main__":
    main()
