"""The paper's measure: how even slots are, `--objective balance` against `disttrain`, with step times.

Both policies deal the same batches to the same number of slots under the same plan. CV is the
coefficient of variation of forward times over the slots of a replica, mean of replicas, `floor` the
least that the replicas' indivisible segments and samples allow. Balance is not step time: the last columns say what each
costs, and what `entrain` takes when it looks for step time instead.

Example:
    python benchmarks/balance.py --manifests data/manifests --output page.md
"""

import statistics
import sys

import launch
import machine
from machine import table
from manifests import AUDIO, chosen
from policies import by_case, median, name_of, settings, simulate


def parse():
    parser = launch.parser(__doc__)
    parser.add_argument("--manifests", required=True, help="folder of size manifests")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--models", default="1B,3B")
    parser.add_argument("--only", default="", help="comma-separated manifests (default: all)")
    options = parser.parse_args()
    options.batch, options.replicas, options.threads = 512, 4, 1
    options.memory, options.plan_batches, options.chunks = "free", 3, False
    options.frozen = "no"
    return options


class Case:
    """One manifest and model: balanced `entrain`, `disttrain`, and `entrain` for step time."""

    def __init__(self, options, setting):
        self.name = name_of(setting).removesuffix(", trainable")
        self.encoder = "audio" if setting[0] in AUDIO else "vision"
        extra = ("--objective", "balance")
        even = by_case(simulate(options, setting, "entrain,disttrain", "1f1b", extra))
        fast = by_case(simulate(options, setting, "entrain", "1f1b"))
        self.even = even["entrain", "1f1b"]
        self.disttrain = even["disttrain", "1f1b"]
        self.fast = fast["entrain", "1f1b"]

    def improvement(self, module):
        """CV of `disttrain` over that of balanced `entrain`."""
        key = f"{module}_cv"
        return median(self.disttrain, key) / max(1e-9, median(self.even, key))

    def over_floor(self, module):
        """CV over its floor, infinite where the floor is 0 and the CV is not."""
        cv, floor = median(self.even, f"{module}_cv"), median(self.even, f"{module}_floor_cv")
        return cv / floor if floor > 0 else (1.0 if cv == 0 else float("inf"))

    def row(self):
        cells = [self.name]
        for module in (self.encoder, "llm"):
            over = self.over_floor(module)
            cells += [
                f"{median(self.even, f'{module}_cv'):.4f}",
                f"{median(self.even, f'{module}_floor_cv'):.4f}",
                "–" if over == float("inf") else f"{over:.3f}",
                f"{median(self.disttrain, f'{module}_cv'):.4f}",
                f"{self.improvement(module):.1f}",
            ]
        step = median(self.even, "step_s")
        cells.append(f"{median(self.disttrain, 'step_s') / step:.3f}")
        cells.append(f"{median(self.fast, 'step_s') / step:.3f}")
        return cells


def summary(cases):
    """The rows of the numbers to reach."""
    both = [c.name for c in cases if c.improvement(c.encoder) >= 10.6 and c.improvement("llm") >= 4]
    over = [
        ratio
        for case in cases
        for ratio in (case.over_floor(case.encoder), case.over_floor("llm"))
        if ratio != float("inf")
    ]
    return [
        (
            f"CV of `disttrain` at least 10.6 times (encoder) and 4 times (LLM) as large, asked on two "
            f"manifests: {len(both)} of {len(cases)} cases ({', '.join(both) or 'none'})."
        ),
        (
            f"CV over its floor where the floor is above 0, asked 1.05: {len(over)} modules, median "
            f"{statistics.median(over):.3f}, largest {max(over):.3f}, "
            f"{sum(ratio > 1.05 for ratio in over)} over 1.05."
        ),
    ]


def page(options, cases):
    header = ["manifest"]
    for module in ("encoder", "LLM"):
        header += [f"{module} CV", "floor", "over floor", "`disttrain`", "times"]
    header += ["step of `disttrain`", "step of `entrain` for time"]
    chosen = f" --models {options.models} --only {options.only}"
    return "\n".join(
        [
            "# Balance of slots at equal K, simulated",
            "",
            (
                f"Command: `python benchmarks/balance.py --manifests MANIFESTS --steps {options.steps}"
                f"{chosen} --output page.md`"
            ),
            "",
            (
                f"{machine.describe()}; simulated, analytic A40 profile, global batch 512, 4 replicas, 8 "
                f"lanes, K = 32, `1f1b`, memory free, medians over {options.steps} steps. The last two "
                "columns are step times over that of balanced `entrain`."
            ),
            "",
            *[f"- {line}" for line in summary(cases)],
            "",
            *table(header, [case.row() for case in cases]),
            "",
        ]
    )


def main():
    options = parse()
    options.only = ",".join(chosen(options))
    cases = []
    for setting in settings(options):
        cases.append(Case(options, setting))
        print(cases[-1].name, file=sys.stderr)
    machine.give(page(options, cases), options.output)


if __name__ == "__main__":
    main()
