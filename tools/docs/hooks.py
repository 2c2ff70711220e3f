"""mkdocs hooks: adds the generated pages and the result pages, and links paths in backticks.

Read first: on_files(). Paths that pages name, such as `docs/plan.md`, `entrain/core/spec/plan.h` or
`benchmarks/results/x.md`, become links where the site has a page of them.
"""

import os
import posixpath
import re
import sys
from pathlib import Path

from mkdocs.structure.files import File, InclusionLevel

sys.path.insert(0, str(Path(__file__).resolve().parent))
import reference

ROOT = Path(__file__).resolve().parents[2]
ENTRAIN = os.environ.get("ENTRAIN", str(ROOT / "build" / "release" / "entrain" / "cli" / "entrain"))
PATH = r"(?<!\[)`([^`\s]+)`(?!\])"
RESULTS = ROOT / "benchmarks" / "results"


def on_config(config):
    """Fills the two parts of the navigation whose pages are not in docs/."""
    packages = [{name_of(page): page} for page in reference.api_pages(ROOT)]
    results = [f"results/{path.relative_to(RESULTS)}" for path in sorted(RESULTS.rglob("*.md"))]
    for section in config.nav:
        if "Reference" in section:
            section["Reference"].append({"Headers by package": packages})
        if "Measured" in section:
            section["Measured"] += results
    return config


def name_of(page):
    return page.rpartition("/")[2].removesuffix(".md").replace("-", "/", 1)


def on_files(files, config):
    generated = dict(reference.pages(ROOT, ENTRAIN))
    generated["architecture.md"] = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for path in sorted(RESULTS.rglob("*.*")):
        content = path.read_bytes()
        name = f"results/{path.relative_to(RESULTS)}"
        generated[name] = content if path.suffix != ".md" else content.decode()
    for address, content in generated.items():
        files.append(
            File.generated(config, address, content=content, inclusion=InclusionLevel.INCLUDED)
        )
    return files


def address_of(path):
    """The site's page of a path of the project; empty if it has none."""
    page, _, _ = path.partition("#")
    if re.fullmatch(r"entrain/.*\.h", page) and (ROOT / page).is_file():
        return reference.api_address(page)
    if page == "ARCHITECTURE.md":
        return "architecture.md"
    for folder, here in (("docs/", ""), ("benchmarks/results/", "results/")):
        if page.startswith(folder) and page.endswith(".md") and (ROOT / page).is_file():
            return here + page.removeprefix(folder)
    if re.fullmatch(r"\w+_(\d{6})\.md", page) and (RESULTS / page).is_file():
        return f"results/{page}"
    return ""


def section_of_readme(match):
    """The text below that heading of README.md, up to the next."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(match[1])}\n.*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    return found[0].strip()


def spaced(part):
    """An empty line before lists and tables, which pages for GitHub may leave out."""
    begin = r"(?:[-*] |\d+\. |\|)"
    return re.sub(rf"^((?!\s|{begin}).*\S.*)\n(?={begin})", r"\1\n\n", part, flags=re.MULTILINE)


def on_page_markdown(markdown, page, config, files):
    here = posixpath.dirname(page.file.src_uri)
    markdown = re.sub(r"<!-- section of README.md: (.*) -->", section_of_readme, markdown)

    def linked(match):
        address = address_of(match[1])
        if not address or address == page.file.src_uri:
            return match[0]
        file, _, anchor = address.partition("#")
        to = posixpath.relpath(file, here or ".") + (f"#{anchor}" if anchor else "")
        return f"[`{match[1]}`]({to})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if part.startswith("```") else re.sub(PATH, linked, spaced(part)) for part in parts
    )
