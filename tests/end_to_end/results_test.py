"""Holds the index of results to its pages, and the numbers of README.md and docs/ to both.

Called as `results_test.py --entrain PATH --root DIR`; standard library only. A table row, a list item
or a sentence that names pages of benchmarks/results may hold only numbers of those pages, as they are
written there; so may the table or list below a sentence that names a page and ends with a colon. In
README's tables of gains and measurements every row with a number names a page. Free of this are code,
link targets, numbers in names (`3B`, `1f1b`), and whole numbers up to ten without a unit of measurement.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import unittest
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import results_index

PAGE_NAME = re.compile(r"\b(\w+_20\d{4})(?:\.md|/)")
REFERENCE = re.compile(r"^\[([^\]]+)\]: +(\S+)$", re.MULTILINE)
LINK = re.compile(r"\]\[([^\]]+)\]")
NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e-?\d+)?"
UNITS = r"%|x\b|times\b|(?:tokens|images|GB|MB|MiB)/s|(?:ns|us|µs|ms|s|min|h|seconds|minutes)\b|[KMG]i?B\b"
STATED = re.compile(rf"(?<![\w.,])({NUMBER})(?![.,]?\d)(?=[\W_]|(?:x|ms|s)\b|$)")
MEASURED = re.compile(rf"(?:\s*(?:to|and|or|–|-|…|/)\s*{NUMBER})*\s*(?:{UNITS})")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=\W*[A-Z0-9])")
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
HELD_SECTIONS = ("What it gains", "What is measured")


def value(number):
    return Decimal(number.replace(",", "")).normalize()


def stated_numbers(text):
    """Numbers that a reader takes for figures."""
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|\]\[[^\]]*\]", "]", text)
    for match in STATED.finditer(text):
        number = value(match.group(1))
        small = number <= 10 and number == number.to_integral_value()
        if not small or MEASURED.match(text, match.end()):
            yield number, match.group(1)


def held_numbers(text):
    """All numbers of a page, those within names too."""
    return {value(number) for number in re.findall(NUMBER, text)}


def units(text):
    """(section, kind, text) of every table row, list item and sentence, code blocks left out.

    Rows and items below a sentence that ends with a colon get the pages that it names.
    """
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    section, lead = "", ""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s|#)", text):
        if block.startswith("#"):
            heading, _, block = block.partition("\n")
            section, lead = heading.strip("# "), ""
        if not block.strip():
            continue
        named = " ".join(match.group(0) for match in PAGE_NAME.finditer(lead))
        if block.lstrip().startswith("|"):
            rows = block.strip().splitlines()
            yield from ((section, "row", f"{row} `{named}`") for row in rows[2:])
        elif ITEM.match(block):
            yield section, "item", f"{' '.join(block.split())} `{named}`"
        else:
            sentences = SENTENCE_END.split(" ".join(block.split()))
            yield from ((section, "sentence", sentence) for sentence in sentences)
            lead = sentences[-1] if sentences[-1].endswith(":") else ""


def problems_of(path, pages):
    """What `path` says that no named page holds; `pages`: {name: numbers}."""
    text = path.read_text(encoding="utf-8")
    targets = dict(REFERENCE.findall(text))
    found = []
    for section, kind, unit in units(REFERENCE.sub("", text)):
        links = " ".join(targets.get(name, "") for name in LINK.findall(unit))
        names = set(PAGE_NAME.findall(f"{unit} {links}"))
        lacking = sorted(names - set(pages))
        found += [f"{path.name}: no page {name}" for name in lacking]
        stated = list(stated_numbers(unit))
        if not names:
            if path.name == "README.md" and section in HELD_SECTIONS and kind == "row" and stated:
                found.append(f"{path.name}: no page is named for {unit[:90]}")
            continue
        held = set().union(*(pages[name] for name in names if name in pages))
        for number, written in stated:
            if number not in held:
                found.append(f"{path.name}: {written} is not in {sorted(names)}: {unit[:90]}")
    for target in targets.values():
        names = PAGE_NAME.findall(target)
        found += [f"{path.name}: no page {name}" for name in names if name not in pages]
    return found


class TheProject(unittest.TestCase):
    def setUp(self):
        self.pages = results_index.read_pages(ROOT)

    def test_the_index_is_current(self):
        command = [sys.executable, ROOT / "tools" / "results_index.py", "--check", "--root", ROOT]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, f"make results-index\n{result.stdout}")

    def test_every_page_makes_a_claim_of_its_own_numbers(self):
        self.assertGreater(len(self.pages), 50)
        for page in self.pages:
            with self.subTest(page=page.name):
                self.assertIn(page.topic, results_index.TOPICS, "a line `Claim (topic): …`")
                self.assertLessEqual(len(page.claim), results_index.LONGEST_CLAIM)
                held = held_numbers(page.text)
                lacking = [
                    text for number, text in stated_numbers(page.claim) if number not in held
                ]
                self.assertEqual(lacking, [], page.claim)

    def test_every_number_is_on_the_page_that_is_named_for_it(self):
        pages = {page.name: held_numbers(page.text) for page in self.pages}
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
            with self.subTest(path=path.relative_to(ROOT)):
                problems = problems_of(path, pages)
                self.assertEqual(problems, [], "\n".join(problems))


class TheChecker(unittest.TestCase):
    """Texts that are right, and one mistake at a time."""

    def setUp(self):
        self.pages = {"a_202611": held_numbers("1.391x, 12,128 in 2.8 … 4.9 %, 5 %")}

    def expect(self, text, *parts):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "README.md"
            path.write_text(text, encoding="utf-8")
            problems = problems_of(path, self.pages)
        self.assertEqual(len(problems), len(parts), problems)
        for problem, part in zip(problems, parts):
            self.assertIn(part, problem)

    def test_accepts_what_the_page_holds(self):
        self.expect("On 3B, 4 ranks, 1f1b: 1.391 times, 12,128 (`a_202611.md`, `--x 77`).")
        self.expect("No page, 99 %. From 2.8 to 4.90 % (`benchmarks/results/a_202611.md`). Or 7 %.")
        self.expect("```\n88 of `a_202611.md`\n```\n")
        self.expect(
            "# What it gains\n| x | y |\n|---|---|\n| 1.391 | [p][q] |\n\n[q]: a_202611.md\n"
        )

    def test_sees_a_number_that_the_page_does_not_hold(self):
        self.expect("It is 1.39 times (`a_202611.md`).", "1.39 is not in ['a_202611']")
        self.expect("- from 5 to 7 %\n  (`a_202611.md`)\n- 8 %", "7 is not in")
        self.expect("| a | b |\n|---|---|\n| 99 | `a_202611.md` |", "99 is not in")
        self.expect(
            "Runs gave (`a_202611.md`):\n\n| a | b |\n|---|---|\n| 98 | 1.391 |", "98 is not"
        )

    def test_sees_rows_without_a_page_and_pages_that_do_not_exist(self):
        row = "# What it gains\n\n| x | y |\n|---|---|\n| fast | 1.391 |"
        self.expect(row, "no page is named")
        self.expect(row.replace("gains", "is"))
        self.expect(
            "See `gone_202611.md` and `gone_202612/README.md`.", "gone_202611", "gone_202612"
        )
        self.expect("[q]: benchmarks/results/gone_202611.md\n", "gone_202611")


def main():
    global ROOT
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entrain", help="the program; not needed here")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's root")
    options, rest = parser.parse_known_args()
    ROOT = options.root.resolve()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
