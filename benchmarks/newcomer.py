"""A newcomer's path: every command of docs/tutorial.md from a fresh clone, in order and timed.

The environment and the compiler's cache are the newcomer's: a new .venv, an empty cache. A command that
fails ends it with the output of that command.

Example:
    python benchmarks/newcomer.py --folder /tmp/newcomer --output benchmarks/results/newcomer_2core_202611.md
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import machine

ROOT = Path(__file__).resolve().parent.parent


def commands(page):
    """Commands of the page's `sh` blocks, here-documents and continued lines as one."""
    found, lines, end = [], [], None
    for block in re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            lines.append(line)
            opened = re.search(r"<<'(\w+)'", line)
            end = opened[1] if opened else end
            if line == end or (end is None and not line.endswith("\\")):
                found.append("\n".join(lines))
                lines, end = [], None
    return found


def script(words, times):
    """One shell that runs them all, so that `cd` and `export` last; a line of `times` for each."""
    parts = ["set -euo pipefail", f"exec 3>{times}"]
    for word in words:
        parts += ["began=$EPOCHREALTIME", word, 'echo "$began $EPOCHREALTIME" >&3']
    return "\n".join(parts)


def table(words, times):
    rows = ["| command | seconds |", "|---|---|"]
    whole = 0.0
    for word, line in zip(words, times.read_text().splitlines(), strict=True):
        began, ended = map(float, line.split())
        whole += ended - began
        shown = re.sub(r"\s*\\\n\s*", " ", word).splitlines()[0]
        shown = shown if len(shown) <= 72 else shown[:71] + "…"
        rows.append(f"| `{shown}` | {ended - began:.1f} |")
    return "\n".join([*rows, f"| together | {whole:.0f} |"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="a new folder to work in")
    parser.add_argument("--output", type=Path, help="page to write (default: standard output)")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True)
    words = commands((ROOT / "docs" / "tutorial.md").read_text())
    environment = os.environ | {
        "ENTRAIN_URL": str(ROOT),
        "CCACHE_DIR": str(folder / "compiler-cache"),
    }
    environment.pop("PYTHONPATH", None)
    where, load = machine.describe(), machine.OtherLoad()
    times = folder / "times"
    with (folder / "log").open("w") as log:
        done = subprocess.run(
            ["bash", "-c", script(words, times)],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            check=False,
        )
    if done.returncode != 0:
        sys.exit((folder / "log").read_text()[-4000:])
    head = (
        f"{where}; {load.text()}.\n"
        "Command: `python benchmarks/newcomer.py --folder FOLDER`. The commands are those of "
        "`docs/tutorial.md`."
    )
    foot = (
        "`make demo` makes a new `.venv` with torch, builds the program with an empty compiler cache, draws "
        "the charts, measures,\nplans, trains 600 steps and evaluates. Packages of the distribution were there."
    )
    page = ["# A newcomer's path, each command timed", head, table(words, times), foot]
    machine.give("\n\n".join(page) + "\n", options.output)


if __name__ == "__main__":
    main()
