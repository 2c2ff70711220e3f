"""Policies × schedules on real size manifests, simulated: step time, bound, balance, memory.

Runs `entrain simulate` for every manifest, model and freezing pattern, and writes one page: step time
of every policy under every schedule relative to the best of its manifest, wins and losses of
`entrain`, gaps to the lower bound, the rows of the numbers to reach, and an ablation of `entrain`.

Example:
    python benchmarks/policies.py --manifests ../shared/data/manifests --steps 20 --output page.md
"""

import argparse
import csv
import platform
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import launch
import machine
from machine import table
from manifests import AUDIO, chosen, inputs

CAUSES = ("fill", "drain", "oversized", "uneven", "order", "launches", "links", "in_bound")
CAUSE_WORDS = {
    "fill": "fill before the busiest lane's first operation",
    "drain": "drain after its last one",
    "oversized": "waits for oversized samples",
    "uneven": "uneven work of indivisible units",
    "order": "waits by order and dependencies",
    "launches": "launch constants",
    "links": "waits for messages",
}
SCHEDULES = "1f1b,1f1b-eager,zb-h1,entrain"
PARTS = (
    "joint",
    "shape",
    "replicas",
    "slots",
    "order",
    "segments",
    "deferral",
    "chunks",
    "search",
    "rivals",
    "tuning",
    "bytes",
)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--entrain", default="build/release/entrain/cli/entrain")
    parser.add_argument("--manifests", required=True, help="folder of size manifests")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="equal", help="equal or free")
    parser.add_argument("--models", default="1B,3B")
    parser.add_argument("--frozen", default="no,yes", help="encoder frozen: no, yes or both")
    parser.add_argument("--policies", default="all")
    parser.add_argument("--schedules", default=SCHEDULES)
    parser.add_argument("--only", default="", help="comma-separated manifests (default: all)")
    parser.add_argument("--ablation", action="store_true", help="entrain without each part instead")
    parser.add_argument(
        "--own-plans", action="store_true", help="disttrain under its own plans instead"
    )
    parser.add_argument("--gaps", action="store_true", help="the gap to the bound by cause instead")
    parser.add_argument("--chunks", action="store_true", help="allow chunks")
    parser.add_argument("--plan-batches", type=int, default=3, help="batches the plan is chosen by")
    parser.add_argument("--output", required=True, help="Markdown page to write")
    return parser.parse_args()


def settings(options):
    """(manifest, model label, whether the encoder is frozen) of every study."""
    for manifest in chosen(options):
        for label in options.models.split(","):
            for frozen in options.frozen.split(","):
                yield manifest, label, frozen == "yes"


def simulate(options, setting, policies, schedules, extra=(), memory=None):
    """Rows of `entrain simulate --csv`: one per policy, schedule and step."""
    manifest, label, frozen = setting
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.csv"
        command = [options.entrain, "simulate", *inputs(options.manifests, manifest, label.lower())]
        command += ["--global-batch", options.batch, "--replicas", options.replicas]
        command += ["--lanes", 8, "--num-slots", 32, "--steps", options.steps]
        command += ["--policy", policies, "--schedule", schedules]
        command += ["--memory", memory or options.memory]
        command += ["--plan-batches", options.plan_batches]
        command += ["--threads", options.threads, "--csv", path, "--json", *extra]
        if frozen:
            command += ["--freeze", "vision,audio" if manifest in AUDIO else "vision"]
        if options.chunks:
            command += ["--chunks"]
        launch.run(*command)
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    for row in rows:
        for key, value in row.items():
            words = key in ("policy", "schedule", "num_slots", "reason", "equal_slots")
            several = value and ";" in value  # one for each replica or module
            if value and not (words or several):
                row[key] = float(value)
    return rows


def by_case(rows):
    """{(policy, schedule): [row of every step that was not refused]}."""
    cases = defaultdict(list)
    for row in rows:
        if row["step_s"] != "":
            cases[row["policy"], row["schedule"]].append(row)
    return cases


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def name_of(setting):
    manifest, label, frozen = setting
    return f"{manifest}, {label}, {'frozen' if frozen else 'trainable'}"


def ratios(rows, base):
    """Step times of `rows` over those of `base`, step by step, where both ran."""
    seconds = {row["step"]: row["step_s"] for row in base}
    return [row["step_s"] / seconds[row["step"]] for row in rows if row["step"] in seconds]


def figures(values):
    """Median, least and largest as cells."""
    return [f"{value:.3f}" for value in (statistics.median(values), min(values), max(values))]


def modules_of(row):
    """Those with a deviation over slots."""
    ending = "_cv"
    names = [key.removesuffix(ending) for key in row if key.endswith(ending)]
    return [name for name in names if "floor" not in name and "replica" not in name]


def time_table(cases, policies, schedules):
    """Step times relative to the best case of the manifest; `!` marks bytes over the limit."""
    times = {case: median(rows, "step_s") for case, rows in cases.items() if rows}
    best = min(times.values())
    lines = []
    for policy in policies:
        cells = [policy]
        for schedule in schedules:
            rows = cases.get((policy, schedule), [])
            if not rows:
                cells.append("–")
                continue
            over = max(row["over_bytes"] for row in rows) > 0
            cells.append(f"{times[policy, schedule] / best:.3f}{'!' if over else ''}")
        rows = next((cases[policy, s] for s in schedules if cases.get((policy, s))), [])
        if rows:
            cells += [f"{median(rows, f'{name}_cv'):.3f}" for name in modules_of(rows[0])]
            cells.append(f"{median(rows, 'assign_ms'):.1f}")
        lines.append(cells)
    return lines


def wins_and_losses(cases, schedules):
    """Per schedule, the best other policy that keeps the limit, and whether `entrain` beats it."""
    cells = []
    for schedule in schedules:
        ours = cases.get(("entrain", schedule), [])
        rivals = {}
        for (policy, of), rows in cases.items():
            fits = rows and max(row["over_bytes"] for row in rows) == 0
            if of == schedule and policy != "entrain" and fits and len(rows) == len(ours):
                rivals[policy] = statistics.median(ratios(rows, ours))
        if not ours or not rivals:
            cells.append("no rival fits" if ours else "refused")
            continue
        policy = min(rivals, key=rivals.get)
        verdict = "win" if rivals[policy] >= 0.995 else "LOSS"
        cells.append(f"{verdict} {rivals[policy]:.3f} ({policy})")
    return cells


def study_page(options, studies):
    policies = sorted({policy for cases in studies.values() for policy, _ in cases})
    schedules = options.schedules.split(",")
    page = [
        "## `entrain` against the best other policy under the same plan, schedule and limit",
        "",
        (
            "Step time of the best other policy that keeps the limit over `entrain`'s, median over "
            "steps; a win is >= 0.995."
        ),
        "",
    ]
    rows = [
        [name_of(setting)] + wins_and_losses(cases, schedules) for setting, cases in studies.items()
    ]
    page += table(["manifest"] + schedules, rows)
    page += ["", "## Step time over the lower bound, `entrain`", ""]
    rows = []
    for setting, cases in studies.items():
        cells = [name_of(setting)]
        for schedule in schedules:
            of = cases.get(("entrain", schedule), [])
            cells.append(f"{1 + median(of, 'gap'):.3f}" if of else "–")
        rows.append(cells)
    page += table(["manifest"] + schedules, rows)
    page += [""] + summary_rows(studies, schedules)
    for setting, cases in studies.items():
        page += ["", f"## {name_of(setting)}", ""]
        first = next(rows for rows in cases.values() if rows)[0]
        modules = modules_of(first)
        header = ["policy"] + schedules + [f"CV {m}" for m in modules] + ["assign ms"]
        page += table(header, time_table(cases, policies, schedules))
        fits = cases.get(("entrain", schedules[-1]), [])
        if fits:
            floors = ", ".join(f"{m} {median(fits, m + '_floor_cv'):.3f}" for m in modules)
            page += ["", f"Floor of CV at equal slots: {floors}."]
    return page


def summary_rows(studies, schedules):
    """Median, least and largest ratio of each rival's step time to that of `entrain`."""
    lines = ["## Ratios over all studies", ""]
    rows = []
    for schedule in schedules:
        rivals = sorted({p for cases in studies.values() for p, s in cases if s == schedule})
        for rival in rivals:
            values = []
            possible = []
            for cases in studies.values():
                theirs, ours = (cases.get((p, schedule)) for p in (rival, "entrain"))
                if theirs and ours:
                    values.append(statistics.median(ratios(theirs, ours)))
                    possible.append(1 + median(theirs, "gap"))
            if rival != "entrain" and values:
                cells = [*figures(values), f"{statistics.median(possible):.3f}"]
                rows.append([schedule, rival, *cells])
    lines += [
        "`possible`: the policy's own step time over the lower bound, which no policy can beat."
    ]
    lines += [""]
    lines += table(
        ["schedule of both", "policy", "median", "least", "largest", "possible (median)"], rows
    )
    own = []
    for rival in ("disttrain", "lpt-2d", "sequential"):
        values = []
        for cases in studies.values():
            ours, theirs = cases.get(("entrain", schedules[-1])), cases.get((rival, "1f1b"))
            if ours and theirs:
                values.append(statistics.median(ratios(theirs, ours)))
        if values:
            own.append([rival, *figures(values)])
    lines += [
        "",
        f"`entrain` with `{schedules[-1]}` against others with `1f1b`, our plan for both:",
        "",
    ]
    return lines + table(["policy", "median", "least", "largest"], own)


def ablation_page(options, settings_list):
    """Step time without each part over that of the whole, per manifest."""
    schedules = options.schedules.split(",")
    yield "Step time of `entrain` without a part over that with all of them, median over steps."
    yield "`split`: weight gradients, found order without splitting them over that with (the"
    yield "schedules `entrain-fused` and `entrain`)."
    yield ""
    yield from table(["manifest", "schedule"] + list(PARTS) + ["split"], [])
    for setting in settings_list:
        both = ",".join(dict.fromkeys(schedules + ["entrain-fused", "entrain"]))
        whole = by_case(simulate(options, setting, "entrain", both))
        cells = {schedule: [name_of(setting), schedule] for schedule in schedules}
        for part in PARTS:
            extra = ("--without", part)
            cases = by_case(simulate(options, setting, "entrain", options.schedules, extra))
            for schedule in schedules:
                values = ratios(cases["entrain", schedule], whole["entrain", schedule])
                cells[schedule].append(
                    f"{statistics.median(values):.3f}" if values else "nothing fits"
                )
        values = ratios(whole["entrain", "entrain-fused"], whole["entrain", "entrain"])
        for schedule in schedules:
            found = schedule == "entrain" and values
            cells[schedule].append(f"{statistics.median(values):.3f}" if found else "–")
            yield "| " + " | ".join(cells[schedule]) + " |"


def cause_cells(rows):
    """Mean share of the bound that each cause takes, in %, and what the bound counts of them."""
    cells = [f"{100 * statistics.fmean(r['step_s'] / r['lower_bound_s'] - 1 for r in rows):.1f}"]
    for cause in CAUSES:
        share = statistics.fmean(r[f"gap_{cause}_s"] / r["lower_bound_s"] for r in rows)
        cells.append(f"{-100 * share if cause == 'in_bound' else 100 * share:.1f}")
    return cells


def gaps_page(options, settings_list):
    """Why `entrain` is slower than its bound, cause by cause, per manifest."""
    yield "Mean over steps, in % of the lower bound. `fill` to `links` less `in bound` (what of them"
    yield "the bound counts already) is the gap, on the busiest lane of the slowest replica"
    yield "(`entrain/core/report/gap_causes.h`). `memory`: how much longer the step is than with"
    yield "memory free; `order`, where the schedule is `1f1b`: than with the found order."
    yield ""
    header = ["manifest", "schedule", "gap"] + [c.replace("_", " ") for c in CAUSES]
    yield from table(header + ["memory", "order found"], [])
    sentences = []
    for setting in settings_list:
        limited = by_case(simulate(options, setting, "entrain", "1f1b,entrain"))
        free = by_case(simulate(options, setting, "entrain", "1f1b,entrain", memory="free"))
        for schedule in ("1f1b", "entrain"):
            rows = limited["entrain", schedule]
            of_memory = [ratio - 1 for ratio in ratios(rows, free["entrain", schedule])]
            of_order = [ratio - 1 for ratio in ratios(rows, limited["entrain", "entrain"])]
            cells = [name_of(setting), schedule] + cause_cells(rows)
            cells.append(f"{100 * statistics.fmean(of_memory):.1f}")
            cells.append(f"{100 * statistics.fmean(of_order):.1f}" if schedule == "1f1b" else "–")
            yield "| " + " | ".join(cells) + " |"
            sentences.append(gap_sentence(cells))
    yield ""
    yield from sentences


def gap_sentence(cells):
    causes = sorted(zip(map(float, cells[3 : 2 + len(CAUSES)]), CAUSES, strict=False), reverse=True)
    named = ", ".join(
        f"{CAUSE_WORDS[name]} {share:.1f} %" for share, name in causes if share >= 0.5
    )
    text = f"- {cells[0]}, `{cells[1]}`: {cells[2]} % over the bound"
    text += (
        f": {named or 'no cause of half a per cent'}; the bound counts {-float(cells[10]):.1f} %"
    )
    if abs(float(cells[11])) >= 0.5:
        text += f"; keeping the memory limit costs {cells[11]} %"
    if cells[12] != "–" and abs(float(cells[12])) >= 0.5:
        text += f"; the strict order costs {cells[12]} % against the found one"
    return text + "."


def own_plans_page(options, settings_list):
    """`disttrain` under the plans of 59 single samples against `entrain` under ours."""
    schedules = options.schedules.split(",")
    yield "Mean step time of `disttrain` with `1f1b` over the plans that 59 single samples ask for,"
    yield "over that of `entrain` under the split that simulation finds best for it and the schedule"
    yield "(with chunks for `entrain`); median, least and largest over steps; behind them the median of"
    yield "the same over the lower bound under that split, which no assignment and order can reach."
    yield ""
    yield from table(["manifest"] + [f"entrain, {s}" for s in schedules], [])
    medians = defaultdict(list)
    possible = defaultdict(list)
    for setting in settings_list:
        extra = ("--one-sample", "59")
        theirs = by_case(simulate(options, setting, "disttrain", "1f1b", extra))
        own = {row["step"]: row["step_s"] for row in theirs["disttrain (own plans)", "1f1b"]}
        cells = [name_of(setting)]
        for schedule in schedules:
            extra = ("--plan-schedule", schedule)
            if schedule == "entrain":
                extra += ("--chunks",)
            ours = by_case(simulate(options, setting, "entrain", schedule, extra))
            rows = [row for row in ours["entrain", schedule] if row["step"] in own]
            values = [own[row["step"]] / row["step_s"] for row in rows]
            possible[schedule].append(
                statistics.median(own[row["step"]] / row["lower_bound_s"] for row in rows)
            )
            medians[schedule].append(statistics.median(values))
            cells.append(
                f"{medians[schedule][-1]:.3f} ({min(values):.3f}–{max(values):.3f}), "
                f"{possible[schedule][-1]:.3f}"
            )
        yield "| " + " | ".join(cells) + " |"
    for label, of in (("median of all", statistics.median), ("best", max), ("least", min)):
        cells = [f"{of(medians[s]):.3f}, {of(possible[s]):.3f}" for s in schedules]
        yield "| " + " | ".join([label, *cells]) + " |"


def study_lines(options, settings_list):
    studies = {}
    for setting in settings_list:
        studies[setting] = by_case(simulate(options, setting, options.policies, options.schedules))
        print(name_of(setting), file=sys.stderr)
    yield from study_page(options, studies)


def main():
    options = parse_arguments()
    lines = study_lines
    if options.own_plans:
        lines = own_plans_page
    elif options.ablation:
        lines = ablation_page
    elif options.gaps:
        lines = gaps_page
    unfinished = Path(options.output + ".partial")  # lines as they come, renamed when complete
    with unfinished.open("w") as file:
        print(f"Command: `python {' '.join(['benchmarks/policies.py'] + sys.argv[1:])}`", file=file)
        print(file=file)
        print(
            f"Commit {machine.commit()}; {platform.system()} {platform.machine()}; simulated, analytic A40 "
            f"profile; 8 lanes, the best split by simulation (policy entrain, 1f1b, "
            f"{options.plan_batches} batches); K = 32 where a policy does not choose; memory: "
            f"{options.memory}.",
            file=file,
        )
        print(file=file)
        for line in lines(options, list(settings(options))):
            print(line, file=file, flush=True)
    unfinished.rename(options.output)


if __name__ == "__main__":
    main()
