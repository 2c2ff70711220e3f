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
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

VISION = (
    "coco_val2017_captions",
    "opencqa_charts",
    "mathvision_qa",
    "openstax_chem_pages",
    "openstax_chem_sections",
    "vlm_small",
    "condensed_movies_video",
)
AUDIO = ("audio_small", "librispeech_utterances", "librispeech_multiclip", "earnings22_turns")
MODELS = {"1B": "qwen2.5-vl-llama-1b", "3B": "qwen2.5-vl-llama-3b"}
AUDIO_MODELS = {"1B": "qwen2.5-vl-audio-llama-1b", "3B": "qwen2.5-vl-audio-llama-3b"}
SCHEDULES = "1f1b,1f1b-eager,zb-h1,entrain"
PARTS = ("joint", "shape", "replicas", "slots", "order", "segments", "deferral", "chunks", "search")


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
    parser.add_argument("--chunks", action="store_true", help="allow chunks")
    parser.add_argument("--output", required=True, help="Markdown page to write")
    return parser.parse_args()


def settings(options):
    """(manifest, model label, model file, frozen) of every study."""
    chosen = options.only.split(",") if options.only else VISION + AUDIO
    for manifest in chosen:
        audio = manifest in AUDIO
        for label in options.models.split(","):
            model = (AUDIO_MODELS if audio else MODELS)[label]
            for frozen in options.frozen.split(","):
                yield manifest, label, model, frozen == "yes", audio


def simulate(options, setting, policies, schedules, extra=()):
    """Rows of `entrain simulate --csv`: one per policy, schedule and step."""
    manifest, _, model, frozen, audio = setting
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.csv"
        command = [options.entrain, "simulate"]
        command += ["--index", str(Path(options.manifests) / f"{manifest}.csv")]
        command += ["--model", f"configs/models/{model}.toml", "--profile", "analytic:a40"]
        command += ["--global-batch", str(options.batch), "--replicas", str(options.replicas)]
        command += ["--lanes", "8", "--num-slots", "32", "--steps", str(options.steps)]
        command += ["--policy", policies, "--schedule", schedules, "--memory", options.memory]
        command += ["--threads", str(options.threads), "--csv", str(path), "--json", *extra]
        if frozen:
            command += ["--frozen", "vision,audio" if audio else "vision"]
        if options.chunks:
            command += ["--chunks"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{result.stderr}")
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    for row in rows:
        for key, value in row.items():
            if key not in ("policy", "schedule", "num_slots", "reason") and value not in ("", None):
                row[key] = float(value) if key != "equal_slots" else value
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
    manifest, label, _, frozen, _ = setting
    return f"{manifest}, {label}, {'frozen' if frozen else 'trainable'}"


def ratios(cases, schedule, policy, other):
    """Step times of `other` over `policy`, step by step, where both ran."""
    ours = {row["step"]: row["step_s"] for row in cases[policy, schedule]}
    theirs = {row["step"]: row["step_s"] for row in cases[other, schedule]}
    return [theirs[step] / ours[step] for step in ours if step in theirs]


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


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
            for key in rows[0]:
                if key.endswith("_cv") and "floor" not in key and "replica" not in key:
                    cells.append(f"{median(rows, key):.3f}")
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
                rivals[policy] = statistics.median(ratios(cases, schedule, "entrain", policy))
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
    ]
    page += [
        "Step time of the best other policy that keeps the limit over `entrain`'s, median over",
        "",
    ]
    page[-2] += " steps; a win is >= 0.995."
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
        modules = [
            k[:-3] for k in first if k.endswith("_cv") and "floor" not in k and "replica" not in k
        ]
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
            for cases in studies.values():
                if cases.get((rival, schedule)) and cases.get(("entrain", schedule)):
                    values.append(statistics.median(ratios(cases, schedule, "entrain", rival)))
            if rival != "entrain" and values:
                rows.append(
                    [
                        schedule,
                        rival,
                        f"{statistics.median(values):.3f}",
                        f"{min(values):.3f}",
                        f"{max(values):.3f}",
                    ]
                )
    lines += table(["schedule of both", "policy", "median", "least", "largest"], rows)
    own = []
    for rival in ("disttrain", "lpt-2d", "sequential"):
        values = []
        for cases in studies.values():
            ours = {r["step"]: r["step_s"] for r in cases.get(("entrain", schedules[-1]), [])}
            theirs = {r["step"]: r["step_s"] for r in cases.get((rival, "1f1b"), [])}
            if ours and theirs:
                values.append(statistics.median(theirs[s] / ours[s] for s in ours if s in theirs))
        if values:
            own.append(
                [
                    rival,
                    f"{statistics.median(values):.3f}",
                    f"{min(values):.3f}",
                    f"{max(values):.3f}",
                ]
            )
    lines += [
        "",
        f"`entrain` with `{schedules[-1]}` against others with `1f1b`, our plan for both:",
        "",
    ]
    return lines + table(["policy", "median", "least", "largest"], own)


def ablation_page(options, settings_list):
    """Step time without each part over that of the whole, per manifest."""
    schedules = options.schedules.split(",")
    page = [
        "Step time of `entrain` without a part over that with all of them, median over steps.",
        "",
    ]
    rows = []
    for setting in settings_list:
        whole = by_case(simulate(options, setting, "entrain", options.schedules))
        cells = {schedule: [name_of(setting), schedule] for schedule in schedules}
        for part in PARTS:
            extra = ("--without", part)
            cases = by_case(simulate(options, setting, "entrain", options.schedules, extra))
            for schedule in schedules:
                base = {row["step"]: row["step_s"] for row in whole["entrain", schedule]}
                values = [
                    row["step_s"] / base[row["step"]]
                    for row in cases["entrain", schedule]
                    if row["step"] in base
                ]
                cells[schedule].append(
                    f"{statistics.median(values):.3f}" if values else "nothing fits"
                )
        rows += cells.values()
        print(name_of(setting), file=sys.stderr)
    return page + table(["manifest", "schedule"] + list(PARTS), rows)


def own_plans_page(options, chosen):
    """`disttrain` under the plans of 59 single samples against `entrain` under ours."""
    schedules = options.schedules.split(",")
    page = [
        "Mean step time of `disttrain` with `1f1b` over the plans that 59 single samples ask",
        "",
    ]
    page[-2] += " for, over that of `entrain` under the split that simulation finds best for it and"
    page[-2] += " the schedule (with chunks for `entrain`); median, least and largest over steps."
    rows = []
    medians = defaultdict(list)
    for setting in chosen:
        extra = ("--one-sample", "59")
        theirs = by_case(simulate(options, setting, "disttrain", "1f1b", extra))
        own = {row["step"]: row["step_s"] for row in theirs["disttrain (own plans)", "1f1b"]}
        cells = [name_of(setting)]
        for schedule in schedules:
            extra = ("--plan-schedule", schedule)
            if schedule == "entrain":
                extra += ("--chunks",)
            ours = by_case(simulate(options, setting, "entrain", schedule, extra))
            values = [
                own[row["step"]] / row["step_s"]
                for row in ours["entrain", schedule]
                if row["step"] in own
            ]
            medians[schedule].append(statistics.median(values))
            cells.append(f"{medians[schedule][-1]:.3f} ({min(values):.3f}–{max(values):.3f})")
        rows.append(cells)
        print(" | ".join(cells), file=sys.stderr)
    rows.append(["median of all"] + [f"**{statistics.median(medians[s]):.3f}**" for s in schedules])
    rows.append(
        ["best, least"] + [f"{max(medians[s]):.3f}, {min(medians[s]):.3f}" for s in schedules]
    )
    return page + table(["manifest"] + [f"entrain, {s}" for s in schedules], rows)


def main():
    options = parse_arguments()
    chosen = list(settings(options))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    page = [f"Command: `python {' '.join(['benchmarks/policies.py'] + sys.argv[1:])}`", ""]
    page += [
        (
            f"Commit {commit}; {platform.system()} {platform.machine()}; simulated, analytic A40 "
            f"profile; 8 lanes, the best split by simulation (policy entrain, 1f1b, three batches); "
            f"K = 32 where a policy does not choose; memory: {options.memory}."
        ),
        "",
    ]
    if options.own_plans:
        page += own_plans_page(options, chosen)
    elif options.ablation:
        page += ablation_page(options, chosen)
    else:
        studies = {}
        for setting in chosen:
            studies[setting] = by_case(
                simulate(options, setting, options.policies, options.schedules)
            )
            print(name_of(setting), file=sys.stderr)
        page += study_page(options, studies)
    Path(options.output).write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
