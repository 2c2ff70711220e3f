"""The policy `entrain` on data that nobody tuned it for, against the best that a long search knows.

For every generated family (families.py; even seeds report, odd ones are for learning) and setting
of memory, schedule and freezing: the step time of `entrain` with several budgets over the best
known. The best known is the least of every run so far, with any budget, this one included. Limits
are bytes that a plan comes to, and under them only runs of the same plan count. It is read from
`benchmarks/results/best_known_202611.jsonl`, or from `--best`, a file of your own that is added to:
a line a case with the step time, its bound, the budget and a digest of the index. `--long` searches
for it. "half" memory is half of the bytes that `lpt-2d` needs with `1f1b`. `--limits`
compares limits of memory with each other instead: how often a tighter one has a faster step, which
a search that never errs would not let happen. `--rivals` compares with every other policy under
every schedule instead.

Example:
    python benchmarks/pressure.py --families pixels-1.1,oversized-5 --output page.md
    cp benchmarks/results/best_known_202611.jsonl best.jsonl
    python benchmarks/pressure.py --long 100000 --best best.jsonl
    python benchmarks/pressure.py --every 13 --budgets 10,1000,100000,1000000 --best best.jsonl
    python benchmarks/pressure.py --limits 30-100 --output limits.md
    python benchmarks/pressure.py --rivals --memory free,equal --schedules entrain
"""

import argparse
import concurrent.futures
import functools
import hashlib
import itertools
import json
import statistics
import sys
import tempfile
from pathlib import Path

import launch
import machine
from families import FAMILIES, seeds_of, write_family
from machine import table

MEMORY = ("free", "equal", "half")
SCHEDULES = ("1f1b", "entrain")
FROZEN = ("no", "yes")
RIVAL_SCHEDULES = "gpipe,1f1b,1f1b-eager,zb-h1,zb-h2,entrain"
TOLERANCE = 1.002  # of the step time: who is slower by more has lost
KNOWN = Path(__file__).parent / "results" / "best_known_202611.jsonl"


def names_of(allowed):
    """A type of argparse: comma-separated names."""

    def names(text):
        given = text.split(",")
        unknown = [name for name in given if name not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} given; allowed: {', '.join(allowed)}")
        return given

    return names


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} given; allowed: 1 and more")
    return number


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entrain", default="build/core/entrain/cli/entrain", help="the program")
    parser.add_argument(
        "--families", type=names_of(FAMILIES), default=list(FAMILIES), help="default: all"
    )
    parser.add_argument(
        "--seeds", type=seeds_of, default=[2], help="such as 2,4 or 1-6; default: 2"
    )
    parser.add_argument(
        "--budgets",
        default="10,100,default,10000",
        help="evaluations, ascending, or `default`; default: 10,100,default,10000",
    )
    parser.add_argument(
        "--long", type=positive, default=0, help="evaluations; only looks for the best (--best)"
    )
    parser.add_argument(
        "--limits", default="", help="percent of the bytes of lpt-2d with 1f1b, such as 30-100"
    )
    parser.add_argument(
        "--rivals", action="store_true", help="the fastest other policy × schedule over entrain's"
    )
    for name, allowed in (("memory", MEMORY), ("schedules", SCHEDULES), ("frozen", FROZEN)):
        listed = ",".join(allowed)
        parser.add_argument(
            f"--{name}", type=names_of(allowed), default=list(allowed), help=f"default: {listed}"
        )
    parser.add_argument("--chunks", action="store_true", help="allow chunks")
    parser.add_argument(
        "--every",
        type=positive,
        default=1,
        help="one case of so many, of families × memory × schedules × frozen in that order; 13 "
        "gives each setting in turn",
    )
    parser.add_argument("--batch", type=positive, default=512, help="samples; default: 512")
    parser.add_argument("--replicas", type=positive, default=4, help="default: 4")
    parser.add_argument(
        "--best", default="", help="best known step times, added to (default: the repository's)"
    )
    parser.add_argument("--jobs", type=positive, default=1, help="cases at a time; default: 1")
    parser.add_argument("--output", default="", help="Markdown page to write (default: print)")
    options = parser.parse_args()
    if options.long and not options.best:
        parser.error("--long needs --best, the file that it adds to")
    if not Path(options.entrain).exists():
        parser.error(f"--entrain {options.entrain}: no such file (`make core-test` builds one)")
    return options


def run(command):
    result = launch.run(*command, allowed=(0, 4))  # 4: nothing fits
    return json.loads(result.stdout) if result.stdout else {}


class Case:
    """A family's batch under a plan of 8 lanes, and one setting."""

    def __init__(self, options, folder, family, seed, setting):
        self.options, self.folder = options, folder
        self.family, self.seed = family, seed
        self.memory, self.schedule, self.frozen = setting
        self.key = f"{family} {seed} {' '.join(setting)}{' chunks' if options.chunks else ''}"
        self.key += f" {options.batch}x{options.replicas}"

    def index(self):
        return self.folder / f"{self.family}-s{self.seed}.csv"

    def inputs(self):
        model = f"configs/models/{FAMILIES[self.family].model}.toml"
        common = ["--index", self.index(), "--model", model, "--profile", "analytic:a40"]
        common += ["--global-batch", self.options.batch]
        return common + (["--freeze", "vision"] if self.frozen == "yes" else [])

    def plan(self):
        path = self.folder / f"{self.family}-{self.seed}-{self.frozen}.json"
        if not path.exists():
            lanes = ["--lanes", 8, "--replicas", self.options.replicas]
            run([self.options.entrain, "plan", *self.inputs(), *lanes, "--json", "-o", path])
        return path

    @functools.cached_property
    def record(self):
        """The key of the best known step: under limits, which are a plan's, of that plan alone."""
        if self.memory == "free":
            return self.key
        plan = json.loads(self.plan().read_text())
        named = ("modules", "lanes", "num_slots")
        parts = json.dumps([plan[part] for part in named], sort_keys=True)
        return f"{self.key} plan {hashlib.sha256(parts.encode()).hexdigest()[:8]}"

    def simulate(self, policy, schedule, memory, budget="default"):
        """Rows of `entrain simulate --json`: one a policy and schedule."""
        command = [self.options.entrain, "simulate", *self.inputs(), "--plan", self.plan()]
        command += ["--policy", policy, "--schedule", schedule, "--memory", memory, "--steps", 1]
        command += ["--chunks"] if self.options.chunks else []
        command += [] if budget == "default" else ["--evaluations", budget]
        return run([*command, "--json"])["rows"]

    def bytes_of(self, percent):
        """That share of what lpt-2d needs with 1f1b."""
        return self.simulate("lpt-2d", "1f1b", "free")[0]["peak_bytes"] * percent // 100

    def limit(self):
        """The value of --memory: half of what lpt-2d needs with 1f1b, or a word."""
        return self.bytes_of(50) if self.memory == "half" else self.memory

    def steps_by_limit(self, percents):
        """Seconds of the step for each limit, None where nothing fits."""
        limits = [self.bytes_of(percent) for percent in percents]
        rows = [self.simulate("entrain", self.schedule, limit)[0] for limit in limits]
        return [row.get("step_s") or None for row in rows]

    def step_and_rival(self):
        """(seconds of entrain's step, seconds of the fastest rival's that fits, its name)."""
        found = self.simulate("all", RIVAL_SCHEDULES, self.limit())
        rows = [row for row in found if row.get("step_s") and not row["over"]]
        mine = [r for r in rows if (r["policy"], r["schedule"]) == ("entrain", self.schedule)]
        rivals = [
            (r["step_s"], f"{r['policy']}, {r['schedule']}")
            for r in rows
            if r["policy"] != "entrain"
        ]
        return (mine[0]["step_s"] if mine else None, *min(rivals, default=(None, "none fits")))

    def measure(self, budgets):
        """[(budget, seconds of the step or None where nothing fits, bound, ms of assigning)]."""
        limit = self.limit()
        rows = [(b, self.simulate("entrain", self.schedule, limit, b)[0]) for b in budgets]
        return [
            (b, row.get("step_s") or None, row.get("lower_bound_s", 0), row.get("assign_ms", 0))
            for b, row in rows
        ]


def read_best(path):
    best = {}
    if Path(path).exists():
        for line in Path(path).read_text().splitlines():
            entry = json.loads(line)
            if entry["key"] not in best or entry["step_s"] < best[entry["key"]]["step_s"]:
                best[entry["key"]] = entry
    return best


def keep_best(path, best):
    lines = [json.dumps(best[key], sort_keys=True) for key in sorted(best)]
    Path(path).write_text("\n".join(lines) + "\n")


def learn(best, case, results):
    for budget, step, bound, _ in results:
        entry = {"key": case.record, "step_s": step, "bound_s": bound, "budget": str(budget)}
        entry["index"] = hashlib.sha256(case.index().read_bytes()).hexdigest()[:16]
        if step and (entry["key"] not in best or step < best[entry["key"]]["step_s"]):
            best[entry["key"]] = entry


def listed(seeds):
    return ", ".join(map(str, seeds))


def page(options, budgets, cases, results, best, known):
    """Step time over the best known, of which `known` cases were: mean and worst, a row a setting."""
    rows = []
    settings = sorted({(c.memory, c.schedule, c.frozen) for c in cases})
    for setting in [*settings, ("all", "all", "all")]:
        whole = "all" in setting
        mine = [c for c in cases if whole or (c.memory, c.schedule, c.frozen) == setting]
        fit = [c for c in mine if all(step for _, step, *_ in results[c.key])]
        cells = [*setting, f"{len(fit)} of {len(mine)}"]
        for number in range(len(budgets)):
            over = [results[c.key][number][1] / best[c.record]["step_s"] for c in fit]
            cells.append(f"{statistics.mean(over):.3f} / {max(over):.3f}" if over else "–")
        known_best = [best[c.record] for c in fit]
        bound = [entry["step_s"] / entry["bound_s"] for entry in known_best]
        cells.append(f"{statistics.mean(bound):.3f}" if bound else "–")
        rows.append(cells)
    rising = [
        c.key
        for c in cases
        if any(
            later and (not step or later > step)
            for (_, step, *_), (_, later, *_) in itertools.pairwise(results[c.key])
            if step
        )
    ]
    families = sorted({case.family for case in cases})
    slowest = max(ms for values in results.values() for *_, ms in values)
    header = ["memory", "schedule", "frozen", "fit", *budgets, "best over bound"]
    return "\n".join(
        [
            "# The policy `entrain` under pressure: generated families",
            "",
            f"{machine.describe()}; simulated, analytic A40 profile, 8 lanes × {options.replicas}",
            f"replicas, {options.batch} samples, seeds {listed(options.seeds)}, one batch each.",
            "",
            "Step time over the best known, mean / worst over families, by budget of evaluations",
            f"({known} of {len(cases)} cases were known before; of others this run's best counts):",
            "",
            *table(header, rows),
            "",
            f"A larger budget was slower in {len(rising)} of {len(cases)} cases.",
            f"Assigning took {slowest:.0f} ms at most.",
            "",
            *(f"- `{name}`: {FAMILIES[name].description}" for name in families),
            "",
        ]
    )


def limits_page(options, cases):
    """Of every limit: how much faster the fastest of the tighter ones is, a row a setting."""
    low, high = map(int, options.limits.split("-"))
    percents = range(low, high + 1, 5)
    excess = {}
    for number, case in enumerate(cases, 1):
        steps = case.steps_by_limit(percents)
        for tighter, step in zip(itertools.accumulate(steps, fastest), steps, strict=True):
            if tighter:
                excess.setdefault((case.schedule, case.frozen), []).append(
                    (step / tighter, case.key)
                )
        print(f"{number}/{len(cases)} {case.key}", file=sys.stderr)
    rows = []
    for setting, found in sorted(excess.items()):
        slower = [ratio for ratio, _ in found if ratio > 1.0001]
        worst, where = max(found)
        mean = statistics.mean(ratio for ratio, _ in found)
        share = f"{len(slower)} of {len(found)}"
        rows.append([*setting, share, f"{mean:.4f}", f"{worst:.3f}", where])
    header = ["schedule", "frozen", "a tighter limit is faster", "mean", "worst", "there"]
    return "\n".join(
        [
            "# The policy `entrain` under ever tighter limits",
            "",
            f"{machine.describe()}; limits of {low} to {high} % of the bytes of `lpt-2d` with",
            "`1f1b` in steps of 5 %; step time over the fastest of this and all tighter limits:",
            "",
            *table(header, rows),
            "",
        ]
    )


def rivals_page(options, cases):
    """The fastest rival's step over entrain's: a row a setting."""
    found = {}
    for number, case in enumerate(cases, 1):
        mine, rival, name = case.step_and_rival()
        if mine and rival:
            where = f"{case.family} {case.seed}: {name}"
            found.setdefault((case.memory, case.schedule, case.frozen), []).append(
                (rival / mine, where)
            )
        elif rival:
            print(f"{case.key}: only {name} fits", file=sys.stderr)
        print(f"{number}/{len(cases)} {case.key}", file=sys.stderr)
    rows = []
    for setting, ratios in sorted(found.items()):
        lost = [where for ratio, where in ratios if ratio * TOLERANCE < 1]
        least, where = min(ratios)
        median = statistics.median(ratio for ratio, _ in ratios)
        cells = [f"{len(lost)} of {len(ratios)}", f"{median:.3f}", f"{least:.3f}", where]
        rows.append([*setting, *cells])
    header = ["memory", "schedule", "frozen", "rival faster", "median", "least", "there"]
    return "\n".join(
        [
            "# The policy `entrain` against every other policy under every schedule",
            "",
            f"{machine.describe()}; generated families, seeds {listed(options.seeds)}, simulated.",
            f"Step of the fastest rival (ten policies × {RIVAL_SCHEDULES}) that keeps the same limit,",
            "over `entrain`'s with the default budget; a rival is faster below 0.998:",
            "",
            *table(header, rows),
            "",
        ]
    )


def fastest(a, b):
    return min((step for step in (a, b) if step), default=None)


def main():
    options = parse()
    names, seeds = options.families, options.seeds
    memory = ["limits"] if options.limits else options.memory
    settings = itertools.product(memory, options.schedules, options.frozen)
    budgets = [options.long] if options.long else options.budgets.split(",")
    best = read_best(options.best or KNOWN)
    before = set(best)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        cases = []
        for (family, seed), setting in itertools.product(itertools.product(names, seeds), settings):
            cases.append(Case(options, folder, family, seed, setting))
        cases = cases[:: options.every]
        for family, seed in itertools.product(names, seeds):
            write_family(family, seed, folder)
        for case in cases:
            case.plan()  # once, not by several jobs
        if options.limits:
            machine.give(limits_page(options, cases), options.output)
            return
        if options.rivals:
            machine.give(rivals_page(options, cases), options.output)
            return
        results = {}
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            done = pool.map(lambda case: (case, case.measure(budgets)), cases)
            for number, (case, result) in enumerate(done, 1):
                results[case.key] = result
                learn(best, case, result)
                if options.best:
                    keep_best(options.best, best)
                print(f"{number}/{len(cases)} {case.key}", file=sys.stderr)
    if not options.long:
        known = sum(case.record in before for case in cases)
        machine.give(page(options, budgets, cases, results, best, known), options.output)


if __name__ == "__main__":
    main()
