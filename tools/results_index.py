"""Writes benchmarks/results/README.md: what every page of results claims, its command and its commit.

    python tools/results_index.py [--check] [--root DIR]

A page is a file *.md of that folder, or NAME/README.md within it. Below its title it has the line
`Claim (topic): one sentence.` Its first "Command: `…`" and "Commit …" fill the other columns.
With --check nothing is written; a stale index is shown as a diff and exits with 1.
"""

import argparse
import difflib
import re
import sys
import textwrap
from collections import namedtuple
from pathlib import Path

FOLDER = Path("benchmarks/results")
TOPICS = {  # in the order of the index
    "engine": "Engine: speed and overhead of a step",
    "devices": "Devices",
    "assignment": "Assignment of samples to microbatches",
    "plans": "Plans",
    "costs": "Predicted costs and step times",
    "sampler": "The sampler in other trainers",
    "data": "Reading data",
    "quality": "Quality: losses, accuracy, parity",
    "faults": "Faults and damaged input",
    "builds": "Builds",
}
CLAIM = re.compile(r"^Claim \(([a-z]+)\): (.+)$", re.MULTILINE)
COMMAND = re.compile(r"\bCommands?\b[^`:]*: *`([^`]+)`")
COMMITS = [re.compile(rf"\b{word}s?:? `?([0-9a-f]{{7,40}})\b") for word in ("Commit", "commit")]
LONGEST_COMMAND = 100  # characters of a row; the page has all of it
LONGEST_CLAIM = 200

HEAD = """# Results

What every page claims, as the page says it. Written by `make results-index` from the pages' lines
`Claim (topic): …`; a command that ends in … is whole on its page, – is what a page does not say.
"""

# `topic`, `claim`: None without a line; `text`: all of the page but that line.
Page = namedtuple("Page", "path name topic claim command commit text")


def shortened(command):
    """A command in one line, cut at a space."""
    return textwrap.shorten(command, LONGEST_COMMAND, placeholder=" …", break_on_hyphens=False)


def read_page(path):
    text = path.read_text(encoding="utf-8")
    claim = CLAIM.search(text)
    command = COMMAND.search(text)
    commits = [found.group(1) for found in (word.search(text) for word in COMMITS) if found]
    return Page(
        path,
        path.parent.name if path.name == "README.md" else path.stem,
        claim.group(1) if claim else None,
        claim.group(2) if claim else None,
        shortened(command.group(1)) if command else None,
        commits[0] if commits else None,
        CLAIM.sub("", text, count=1),
    )


def read_pages(root):
    """All pages, by name; the index itself is none."""
    folder = root / FOLDER
    paths = [path for path in folder.glob("*.md") if path.name != "README.md"]
    pages = [read_page(path) for path in [*paths, *folder.glob("*/README.md")]]
    return sorted(pages, key=lambda page: page.name)


def row(page, folder):
    command = f"`{page.command}`" if page.command else "–"
    cells = [page.claim, command, page.commit or "–"]
    cells.append(f"[{page.name}]({page.path.relative_to(folder).as_posix()})")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def index(root):
    """The index's text."""
    pages = [page for page in read_pages(root) if page.claim]
    parts = [HEAD]
    for topic, title in TOPICS.items():
        rows = [row(page, root / FOLDER) for page in pages if page.topic == topic]
        if rows:
            head = "| claim | command | commit | page |\n|---|---|---|---|\n"
            parts.append(f"\n## {title}\n\n{head}{''.join(rows)}")
    return "".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    options = parser.parse_args()
    path = options.root / FOLDER / "README.md"
    text = index(options.root)
    if not options.check:
        path.write_text(text, encoding="utf-8")
        return 0
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    names = (f"{FOLDER}/README.md", "from the pages")
    sys.stdout.writelines(
        difflib.unified_diff(kept.splitlines(True), text.splitlines(True), *names)
    )
    return 1 if text != kept else 0


if __name__ == "__main__":
    sys.exit(main())
