"""Runs the fuzz targets for a while each and says what came out.

Every target starts from its seeds in tests/fuzz/corpus and from what earlier runs on this machine
found worth keeping (build/fuzz/found). A finding ends the run with exit code 1 and names the input.

Example:
    python tools/fuzz.py --seconds 60
    python tools/fuzz.py --seconds 600 --target tar --target png --page page.md
    python tools/fuzz.py --inputs 1000000 --largest 1024 --page page.md
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "fuzz"
sys.path.insert(0, str(ROOT / "benchmarks"))

import machine

# Seconds that one input may take, and memory that a run may hold.
SLOWEST_S = 10
MEMORY_MIB = 2048


def targets():
    names = sorted(path.name for path in (BUILD / "tests" / "fuzz").glob("*_fuzz"))
    return [name.removesuffix("_fuzz") for name in names]


def run(name, options):
    """One target's row: inputs tried, seconds, edges covered, inputs kept, longest; or its finding."""
    found = BUILD / "found" / name
    findings = BUILD / "findings"
    for folder in (found, findings):
        folder.mkdir(parents=True, exist_ok=True)
    command = [
        str(BUILD / "tests" / "fuzz" / f"{name}_fuzz"),
        f"-runs={options.inputs}" if options.inputs else f"-max_total_time={options.seconds}",
        f"-timeout={SLOWEST_S}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-malloc_limit_mb={MEMORY_MIB // 2}",
        f"-max_len={options.largest}",
        f"-artifact_prefix={findings}/{name}-",
        "-print_final_stats=1",
        str(found),
        str(ROOT / "tests" / "fuzz" / "corpus" / name),
    ]
    begun = time.monotonic()
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    log = result.stderr

    def stat(pattern):
        matches = re.findall(pattern, log)
        return int(matches[-1]) if matches else 0

    row = {
        "target": name,
        "inputs": stat(r"number_of_executed_units: (\d+)"),
        "seconds": time.monotonic() - begun,
        "edges": stat(r"cov: (\d+)"),
        "kept": stat(r"corp: (\d+)"),
        "slowest_s": stat(r"slowest_unit_time_sec: (\d+)"),
        "finding": "",
    }
    if result.returncode != 0:
        artifact = re.search(r"Test unit written to (\S+)", log)
        row["finding"] = artifact.group(1) if artifact else "no input was kept"
        (findings / f"{name}.log").write_text(log)
        print(f"fuzz: {name}: FINDING {row['finding']}", file=sys.stderr)
        print("\n".join(log.splitlines()[-40:]), file=sys.stderr)
    return row


def page(rows, options):
    contract = (
        "Whatever the bytes, a parser has to return a result or to refuse them (`InvalidInput`, "
        f"`SystemFailure`), within {SLOWEST_S} s an input and {MEMORY_MIB // 2} MiB an allocation; "
        "some targets check more (what was read is written and read back unchanged). Inputs are up "
        f"to {options.largest:,} bytes."
    )
    limit = f"--inputs {options.inputs}" if options.inputs else f"--seconds {options.seconds}"
    lines = [
        "# Fuzzing of every parser",
        "",
        f"Command: `python tools/fuzz.py {limit} --largest {options.largest}`",
        "",
        f"{machine.describe()}; clang 14, libFuzzer, address and undefined-behaviour sanitizers.",
        "",
        contract,
        "",
        "| target | inputs tried | seconds | edges covered | inputs kept | slowest, s | findings |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['target']} | {row['inputs']:,} | {row['seconds']:.0f} | {row['edges']:,} | {row['kept']:,} | "
            f"{row['slowest_s']} | {1 if row['finding'] else 0} |"
        )
    total = sum(row["inputs"] for row in rows)
    lines += ["", f"{total:,} inputs in all, {sum(bool(r['finding']) for r in rows)} findings."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="for every target")
    parser.add_argument("--inputs", type=int, help="for every target, instead of seconds")
    parser.add_argument("--largest", type=int, default=1 << 16, help="bytes of an input")
    parser.add_argument("--target", action="append", help="only these (default: all)")
    parser.add_argument("--page", help="write the table to this file")
    options = parser.parse_args()
    chosen = options.target or targets()
    unknown = sorted(set(chosen) - set(targets()))
    if unknown or not chosen:
        sys.exit(f"no such targets: {unknown}; there are: {', '.join(targets()) or 'none built'}")
    rows = []
    for name in chosen:
        rows.append(run(name, options))
        row = rows[-1]
        print(
            f"fuzz: {name}: {row['inputs']:,} inputs, {row['seconds']:.0f} s, {row['edges']:,} edges",
            flush=True,
        )
    if options.page:
        machine.give(page(rows, options), options.page)
    return 1 if any(row["finding"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
