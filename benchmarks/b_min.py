"""b_min on real size manifests: which split of 16 devices batches of each size ask for.

Runs `entrain b-min` for every manifest with encoder work and every size of LLM, and writes one page
in the manner of the paper's table. Fails where the program says something inconsistent.

Example:
    python benchmarks/b_min.py --manifests ../shared/data/manifests \\
        --output benchmarks/results/b_min_simulated_202611.md
"""

import argparse
import json
import platform
import sys
from pathlib import Path

import launch
import machine
from machine import table
from manifests import AUDIO, chosen, inputs

LLMS = ("1b", "3b", "8b")
SIZES = (1, 4, 16, 64, 256)


def study(options, manifest, llm):
    """The program's report on one manifest and model."""
    command = [options.entrain, "b-min", *inputs(options.manifests, manifest, llm)]
    command += ["--devices", options.devices, "--seed", options.seed]
    command += ["--global-batch", 512, "--also", ",".join(map(str, SIZES)), "--json"]
    result = launch.run(*command, allowed=(0, 4))
    report = json.loads(result.stdout)
    for size in report["sizes"]:
        counts = sum(split["count"] for split in size["splits"])
        if counts != report["draws"] + 1:
            sys.exit(f"{manifest}, {llm}: {counts} batches of {size['batch']} samples")
    if (result.returncode == 0) != report["stable"]:
        sys.exit(f"{manifest}, {llm}: exit code {result.returncode}, stable {report['stable']}")
    return report


def splits_text(size, audio):
    """Splits seen, most encoder devices first; the middle ones left out where there are many."""
    splits = [split["devices"] for split in size["splits"]]
    # No manifest has sound and pictures: the vision encoder's one device is left out for sound.
    names = sorted((":".join(map(str, s[1:] if audio else s)) for s in splits), key=first_number)
    names.reverse()
    if len(names) > 3:
        return f"{names[0]} … {names[-1]} ({len(names)})"
    return " ".join(names)


def first_number(name):
    return int(name.split(":")[0])


def row(manifest, llm, report):
    sizes = sizes_of(report)
    cells = [manifest, llm.upper(), f"{report['samples']:,}"]
    cells += [splits_text(sizes[n], manifest in AUDIO) for n in (*SIZES, 512)]
    share = report["shares"][1 if manifest in AUDIO else 0]
    cells += [f"{share:.2f}", f"{report['margin_devices']:.2f}"]
    for key in ("b_min", "proven"):
        cells.append(f"{report[key]:,}" if report[key] else "none")
    return cells


def findings(reports):
    """What the paper's table claims, counted on ours."""
    total = len(reports)
    many = sum(len(sizes_of(r)[1]["splits"]) > 1 for r in reports.values())
    settled = {n: sum(sizes_of(r)[n]["settled"] for r in reports.values()) for n in (64, 256, 512)}
    by = {n: sum(0 < (r["b_min"] or 0) <= n for r in reports.values()) for n in (64, 256, 512)}
    none = [f"{m} {k.upper()}" for (m, k), r in reports.items() if not r["b_min"]]
    return [
        f"Of {total} cases {many} see more than one split at n = 1.",
        (
            f"All {reports_draws(reports)} batches agree in {settled[64]} cases at 64, in "
            f"{settled[256]} at 256, in {settled[512]} at 512 samples (the paper: most by 64, all by "
            "256)."
        ),
        f"b_min is at most 64 in {by[64]} cases, 256 in {by[256]}, 512 in {by[512]}.",
        f"No b_min up to the size of the data set: {', '.join(none) if none else 'nowhere'}.",
    ]


def sizes_of(report):
    return {size["batch"]: size for size in report["sizes"]}


def reports_draws(reports):
    return next(iter(reports.values()))["draws"] + 1


def page(options, reports):
    header = ["manifest", "LLM", "samples", *[f"n = {n}" for n in (*SIZES, 512)]]
    header += ["share", "margin", "b_min", "proven"]
    lines = [
        f"# b_min on real size manifests, {options.devices} devices",
        "",
        (
            f"Command: `python benchmarks/b_min.py --manifests MANIFESTS --devices "
            f"{options.devices} --seed {options.seed} --output {options.output}`"
        ),
        "",
        (
            f"Commit {machine.commit()}; 2-core {platform.system()} {platform.machine()}; analytic A40 profile; "
            "Qwen2.5-VL vision or Whisper large v3 before Llama-3 1B, 3B and 8B, all "
            "trained; alpha 5 %, error 5 %: a reference batch and 59 validation batches of each size."
        ),
        "",
        (
            "Splits are encoder:LLM, as seen in these batches; for more than three the ends and their "
            "number. For sound the model has a vision encoder too, which keeps one device of the "
            f"{options.devices}. `share`: devices that the encoder's part of all samples' work comes "
            "to; `margin`: devices to the next split; `b_min`: the first doubled size from which on all "
            "batches of all sizes tried ask for the split of all samples; `proven`: the size from which on the bound of "
            "docs/static-plan.md holds. Batches of more than a quarter of the samples are drawn "
            "with replacement."
        ),
        "",
        *table(header, [row(*case, report) for case, report in reports.items()]),
        "",
        *(f"- {text}" for text in findings(reports)),
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entrain", default="build/core/entrain/cli/entrain")
    parser.add_argument("--manifests", required=True, help="folder of size manifests")
    parser.add_argument("--devices", type=int, default=16, help="of one replica")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="comma-separated manifests (default: all)")
    parser.add_argument("--output", required=True, help="Markdown page to write")
    options = parser.parse_args()
    reports = {}
    for manifest in chosen(options):
        for llm in LLMS:
            reports[manifest, llm] = study(options, manifest, llm)
            print(f"{manifest}, {llm}", file=sys.stderr)
    Path(options.output).write_text(page(options, reports))


if __name__ == "__main__":
    main()
