"""Holds the tree to the include table of ARCHITECTURE.md, and the pages to paths that exist.

Called as `includes_test.py --entrain PATH --root DIR`; standard library only. What is checked:
every `#include "entrain/…"` under entrain/ is an edge of the table; the table has a row for every
package, a package for every row, and no cycle; the files of a package (x.h and x.cc are one) do not
include each other in a circle; core includes nothing of torch, and fmt stays in core's .cc files;
no two files define a type of the same name and namespace; what core uses of headers that the build
precompiles is included, by itself or by headers of ours; paths in backticks and relative links of the
pages exist.
"""

import argparse
import re
import sys
import tempfile
import unittest
from collections import namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TABLE = re.compile(r"<!-- include-table: begin -->\n(.*?)<!-- include-table: end -->", re.DOTALL)
QUOTED_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
SYSTEM_INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
TORCH_HEADERS = ("torch/", "ATen/", "c10/")
# Folders whose paths the pages may name; build/ and runs/ are made, not kept.
KEPT_FOLDERS = (
    *("entrain", "tests", "tools", "docs", "configs", "benchmarks", "examples", "cmake", ".ci"),
)

NAMESPACE = re.compile(r"(?:inline )?namespace ?([\w:]*) \{")
NAMESPACE_END = re.compile(r"\}  // (?:inline )?namespace\b")
TYPE = re.compile(r"(?:struct|class|enum class|enum|union) (\w+)(?: final)?(?: [:{].*)?")

Report = namedtuple("Report", "edges paths problems")


def read_table(root):
    """Allowed packages per package, as in ARCHITECTURE.md: {"core/spec": {"core/base"}, …}."""
    match = TABLE.search((root / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    if match is None:
        raise ValueError("ARCHITECTURE.md: the markers of the include table are missing")
    table = {}
    for line in match.group(1).strip().splitlines()[2:]:
        package, allowed = (cell.strip() for cell in line.strip().strip("|").split("|", 1))
        if package in table:
            raise ValueError(f"ARCHITECTURE.md: two rows for {package}")
        table[package] = set(allowed.strip(" |").split())
    return table


def package_of(path):
    """`entrain/core/spec/plan.h` → `core/spec`; `entrain/cli/main.cc` → `cli`."""
    parts = path.split("/")[1:-1]
    if parts and parts[0] == "cli":
        return "cli"
    return "/".join(parts[:2])


def table_problems(table, packages):
    problems = []
    for package in sorted(packages - set(table)):
        problems.append(f"entrain/{package} is missing from the include table")
    for package in sorted(set(table) - packages):
        problems.append(f"the include table has a row for {package}, which has no source")
    for package, allowed in table.items():
        for unknown in sorted(allowed - set(table)):
            problems.append(f"the row of {package} allows {unknown}, which has no row")

    for cycle in cycles(table):
        problems.append("the include table has a cycle: " + " → ".join(cycle))
    return problems


def cycles(graph):
    """Cycles of {node: nodes}, each as [a, b, …, a]; at least one of every knot."""
    found = []
    finished = set()

    def visit(node, trail):
        if node in trail:
            found.append(trail[trail.index(node) :] + [node])
        elif node not in finished:
            for successor in sorted(graph.get(node, ())):
                visit(successor, [*trail, node])
            finished.add(node)

    for node in graph:
        visit(node, [])
    return found


def circle_problems(units):
    """`units`: what every unit (a path without .h or .cc) includes of its own package."""
    problems = []
    for cycle in cycles(units):
        names = " → ".join(Path(unit).name for unit in cycle)
        package = package_of(cycle[0])
        problems.append(f"entrain/{package}: files include each other in a circle: {names}")
    return problems


def library_problems(name, text):
    """Core knows nothing of torch; torch ships another fmt, so that one stays in core's units."""
    problems = []
    core = name.startswith("entrain/core/")
    engine = name.startswith("entrain/engine/")
    for header in SYSTEM_INCLUDE.findall(text):
        if core and header.startswith(TORCH_HEADERS):
            problems.append(f"{name}: core must not include <{header}>")
        if header.startswith(("entrain/", "tests/")):
            problems.append(f"{name}: <{header}> belongs in quotes")
        if header.startswith("fmt/") and (engine or name.endswith(".h")):
            problems.append(f"{name}: <{header}> is for .cc files of core and cli only")
    return problems


def source_report(root, table):
    """Checks every source under entrain/."""
    edges = 0
    packages = set()
    units = {}
    problems = []
    for path in sorted((root / "entrain").rglob("*")):
        if path.suffix not in (".h", ".cc", ".cpp", ".cu", ".cuh"):
            continue
        name = path.relative_to(root).as_posix()
        package = package_of(name)
        packages.add(package)
        text = path.read_text(encoding="utf-8")
        problems += library_problems(name, text)
        for header in QUOTED_INCLUDE.findall(text):
            edges += 1
            if not (root / header).is_file():
                problems.append(f'{name}: "{header}" is not a path from the root of the project')
            elif header.startswith("tests/oracle/"):
                if not path.name.endswith("_test.cc"):
                    problems.append(f'{name}: only tests may include "{header}"')
            elif not header.startswith("entrain/"):
                problems.append(f'{name}: "{header}" is no header of a package')
            elif package_of(header) not in table.get(package, set()) | {package}:
                problems.append(f'{name}: {package} may not include "{header}"')
            elif package_of(header) == package:
                unit, included = name.rsplit(".", 1)[0], header.rsplit(".", 1)[0]
                if included != unit:
                    units.setdefault(unit, set()).add(included)
    return Report(edges, 0, problems + table_problems(table, packages) + circle_problems(units))


def types_of(text):
    """The types of a formatted file that are not private to it, with their namespaces."""
    open_namespaces = []
    for line in text.splitlines():
        if begin := NAMESPACE.fullmatch(line):
            open_namespaces.append(begin.group(1))
        elif NAMESPACE_END.match(line):
            open_namespaces.pop()
        elif (found := TYPE.fullmatch(line)) and "" not in open_namespaces:
            yield "::".join([*open_namespaces, found.group(1)])


def type_problems(root):
    """Two types of one name and namespace are undefined behaviour, which no compiler sees."""
    problems = []
    known = {}
    for path in sorted((root / "entrain").rglob("*")):
        if path.suffix in (".h", ".cc", ".cpp", ".cu", ".cuh"):
            name = path.relative_to(root).as_posix()
            for defined in types_of(path.read_text(encoding="utf-8")):
                if defined in known:
                    problems.append(f"{name}: {known[defined]} defines {defined} as well")
                known[defined] = name
    return known, problems


# Names of the precompiled headers (cmake/EntrainPackage.cmake) that are used, by header: a file that
# does not include one compiles here all the same.
STANDARD_NAMES = {
    "algorithm": "sort stable_sort max_element min_element max min clamp any_of all_of none_of find "
    "find_if count count_if fill copy reverse unique lower_bound upper_bound transform",
    "chrono": "chrono",
    "filesystem": "filesystem",
    "functional": "function greater less plus multiplies",
    "map": "map",
    "numeric": "iota accumulate gcd lcm partial_sum inner_product",
    "optional": "optional nullopt make_optional",
    "set": "set",
    "span": "span",
    "string": "string to_string stoi getline",
    "string_view": "string_view",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in STANDARD_NAMES.items() for name in names.split()}
PRECOMPILED_NAME = re.compile(rf"\bstd::(?:ranges::)?({'|'.join(HEADER_OF)})\b|\b(fmt|nlohmann)::")
HEADER_OF |= {"fmt": "fmt/", "nlohmann": "nlohmann/"}  # any of the folder


def precompiled_problems(root):
    """Files of core without its tests, and the headers that each of them should include."""
    texts = {}
    for path in sorted((root / "entrain" / "core").rglob("*")):
        if path.suffix in (".h", ".cc") and not path.stem.endswith("_test"):
            texts[path.relative_to(root).as_posix()] = path.read_text()

    def included(name, seen):
        seen.add(name)
        headers = set(SYSTEM_INCLUDE.findall(texts[name]))
        headers |= {header[: header.find("/") + 1] for header in headers}
        for header in QUOTED_INCLUDE.findall(texts[name]):
            if header in texts and header not in seen:
                headers |= included(header, seen)
        return headers

    problems = []
    for name, text in texts.items():
        code = re.sub(r"//.*", "", text)
        used = {HEADER_OF[found[1] or found[2]] for found in PRECOMPILED_NAME.finditer(code)}
        problems += [f"{name}: needs <{header}>" for header in sorted(used - included(name, set()))]
    return len(texts), problems


def page_report(root):
    """Checks the paths that pages name in backticks and as relative links."""
    pages = [root / "README.md", root / "ARCHITECTURE.md"]
    for folder in ("docs", "configs", "benchmarks"):
        pages += sorted((root / folder).rglob("*.md"))
    paths = 0
    problems = []
    for page in pages:
        if not page.is_file():
            problems.append(f"{page.relative_to(root)} is missing")
            continue
        text = re.sub(
            r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
        )
        named = [(root, path) for path in re.findall(r"`([^`\s]+)[^`]*`", text)]
        named = [(base, path) for base, path in named if path.split("/")[0] in KEPT_FOLDERS]
        named = [(base, path) for base, path in named if "/" in path]
        links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
        # Pages of docs/reference/ are made with the site; site_test.py checks links to them.
        links = [link for link in links if ":" not in link and not link.startswith("reference/")]
        named += [(page.parent, link) for link in links]
        for base, path in named:
            path = re.sub(r":\d+$", "", path)
            if any(mark in path for mark in "<>{}…") or path.endswith("..."):
                continue  # a pattern for people
            paths += 1
            found = any(base.glob(path)) if "*" in path else (base / path).exists()
            if not found:
                problems.append(f"{page.relative_to(root)}: {path} does not exist")
    return Report(0, paths, problems)


class TheProject(unittest.TestCase):
    def test_includes_follow_the_table(self):
        report = source_report(ROOT, read_table(ROOT))
        print(f"{report.edges} include edges checked")
        self.assertEqual(report.problems, [])
        self.assertGreater(report.edges, 100)

    def test_types_have_one_definition(self):
        known, problems = type_problems(ROOT)
        print(f"{len(known)} types checked")
        self.assertEqual(problems, [])
        self.assertGreater(len(known), 100)

    def test_core_includes_what_it_uses(self):
        files, problems = precompiled_problems(ROOT)
        self.assertEqual(problems, [])
        self.assertGreater(files, 400)

    def test_pages_name_paths_that_exist(self):
        report = page_report(ROOT)
        print(f"{report.paths} paths in pages checked")
        self.assertEqual(report.problems, [])
        self.assertGreater(report.paths, 10)


class TheChecker(unittest.TestCase):
    """A small tree that is right, and one mistake at a time."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("entrain/core/base/a.h", "#include <vector>\n")
        self.write("entrain/core/base/a.cc", '#include "entrain/core/base/a.h"\n#include <fmt/x>\n')
        self.write("entrain/core/spec/b.h", '#include "entrain/core/base/a.h"\n')
        self.write("entrain/cli/main.cc", '#include "entrain/core/spec/b.h"\n')
        self.write("tests/oracle/slow.h", "")
        self.write("docs/idea.md", "See `entrain/core/spec/b.h:3` and [home](../README.md).\n")
        self.write("README.md", "`docs/*.md`, `entrain/<part>/x.h`, `make test`, `core/base`\n")
        self.write_table("| core/base | |", "| core/spec | core/base |", "| cli | core/spec |")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def write_table(self, *rows):
        begin, end = "<!-- include-table: begin -->", "<!-- include-table: end -->"
        head = ["| package | may include |", "|---|---|"]
        self.write("ARCHITECTURE.md", "\n".join(["# A", begin, *head, *rows, end, ""]))

    def expect(self, *parts):
        report = source_report(self.root, read_table(self.root))
        problems = report.problems + page_report(self.root).problems
        self.assertEqual(len(problems), len(parts), problems)
        for problem, part in zip(problems, parts):
            self.assertIn(part, problem)

    def test_accepts_a_tree_that_is_right(self):
        self.expect()
        report = source_report(self.root, read_table(self.root))
        self.assertEqual(report.edges, 3)
        self.assertEqual(page_report(self.root).paths, 3)

    def test_sees_an_edge_that_is_not_in_the_table(self):
        self.write("entrain/core/base/c.cc", '  #  include "entrain/core/spec/b.h"\n')
        self.expect('c.cc: core/base may not include "entrain/core/spec/b.h"')
        self.write("entrain/core/base/c.cc", "")
        self.write("entrain/cli/main.cc", '#include "entrain/core/base/a.h"\n')
        self.expect('cli may not include "entrain/core/base/a.h"')

    def test_sees_tests_included_outside_tests(self):
        self.write("entrain/core/base/a_test.cc", '#include "tests/oracle/slow.h"\n')
        self.expect()
        self.write("entrain/core/base/c.cc", '#include "tests/oracle/slow.h"\n')
        self.expect('only tests may include "tests/oracle/slow.h"')

    def test_sees_headers_that_are_not_paths_from_the_root(self):
        self.write("entrain/core/base/c.cc", '#include "a.h"\n#include "README.md"\n')
        self.write("entrain/core/base/d.cc", "#include <entrain/core/spec/b.h>\n")
        self.expect('"a.h" is not a path', '"README.md" is no header of a package', "in quotes")

    def test_sees_packages_and_rows_without_each_other(self):
        self.write("entrain/engine/comm/d.h", "")
        self.expect("entrain/engine/comm is missing from the include table")
        self.write_table(
            "| core/base | |",
            "| core/spec | core/base |",
            "| cli | core/spec |",
            "| engine/comm | core/bse |",
            "| engine/models | |",
        )
        self.expect("row for engine/models", "allows core/bse, which has no row")

    def test_sees_a_cycle_in_the_table(self):
        self.write_table(
            "| core/base | core/spec |", "| core/spec | core/base |", "| cli | core/spec |"
        )
        self.expect("cycle: core/base → core/spec → core/base")

    def test_sees_files_that_include_each_other(self):
        self.write("entrain/core/spec/c.h", '#include "entrain/core/spec/b.h"\n')
        self.write("entrain/core/spec/c.cc", '#include "entrain/core/spec/c.h"\n')
        self.expect()
        self.write("entrain/core/spec/b.cc", '#include "entrain/core/spec/c.h"\n')
        self.expect("entrain/core/spec: files include each other in a circle: b → c → b")
        self.write("entrain/core/spec/c.h", '#include "entrain/core/spec/d.h"\n')
        self.write("entrain/core/spec/d.h", "")
        self.write("entrain/core/spec/d.cc", '#include "entrain/core/spec/b.h"\n')
        self.expect("circle: b → c → d → b")

    def test_sees_torch_in_core_and_fmt_in_headers(self):
        self.write("entrain/core/base/c.cc", "#include <torch/torch.h>\n")
        self.write("entrain/core/base/d.h", "#include <fmt/format.h>\n")
        self.expect("core must not include <torch/torch.h>", "d.h: <fmt/format.h> is for .cc")

    def test_sees_types_with_two_definitions(self):
        def define(name, *lines):
            lines = ["namespace entrain {", *lines, "}  // namespace entrain", ""]
            self.write(f"entrain/core/base/{name}", "\n".join(lines))

        hidden = ["namespace {", "struct Lane {", "};", "}  // namespace"]
        other = ["namespace deep {", "struct Lane {", "};", "}  // namespace deep", "class Lane;"]
        define("c.h", "struct Lane : Place {", "};")
        define("c.cc", *hidden)
        define("d.h", *other)
        self.assertEqual(type_problems(self.root)[1], [])
        define("e.cc", *hidden, "class Lane final", "    : Place {", "};")
        problems = type_problems(self.root)[1]
        self.assertEqual(len(problems), 1, problems)
        self.assertIn("e.cc: entrain/core/base/c.h defines entrain::Lane as well", problems[0])

    def test_sees_a_header_that_is_missing(self):
        self.write("entrain/core/base/c.h", "#include <vector>\nstd::vector<int> of();\n")
        self.write(
            "entrain/core/base/c.cc", '#include "entrain/core/base/c.h"\nstd::vector<int> a;\n'
        )
        self.assertEqual(precompiled_problems(self.root)[1], [])
        self.write(
            "entrain/core/base/d.cc", "std::string a;  // std::map\nstd::ranges::find(a, fmt::x);\n"
        )
        wanted = [
            f"entrain/core/base/d.cc: needs <{header}>"
            for header in ("algorithm", "fmt/", "string")
        ]
        self.assertEqual(precompiled_problems(self.root)[1], wanted)

    def test_sees_paths_that_do_not_exist(self):
        self.write("docs/idea.md", "`entrain/core/spec/x.h` `docs/*.txt` [a](gone.md)\n")
        self.expect("x.h does not exist", "docs/*.txt does not exist", "gone.md does not exist")

    def test_needs_the_table(self):
        self.write("ARCHITECTURE.md", "no table\n")
        with self.assertRaises(ValueError):
            read_table(self.root)


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
