"""Reference pages from the code: commands from `--help`, run-file keys from the configuration's
reader and header, file formats and one page a package from the headers' comments.

Read first: pages(). `mkdocs.yml` calls it through hooks.py; tests/end_to_end/site_test.py checks the
keys against the program. Standard library only.
"""

import functools
import html
import re
import subprocess
from collections import namedtuple

RUN_CONFIG = "entrain/engine/train/run_config"
# Fields whose key in the file is another word.
KEY_OF_FIELD = {"model_file": "model", "export_as": "export"}
# Defaults that are no literal there.
DEFAULTS = {
    "execution.precision": '"fp32"',
    "execution.recompute": '"plan"',
    "steps": "",
    "epochs": "",
    "lora.alpha": "",
    "lora.rank": "required",
}

# What a file is, its syntax, the header that reads it, and the page that explains it.
FORMATS = (
    ("Run", "TOML", f"{RUN_CONFIG}.h", "reference/keys.md"),
    ("Model", "TOML", "entrain/core/spec/model.h", "models.md"),
    ("Cluster", "TOML", "entrain/core/spec/cluster.h", "planning.md"),
    ("Mixture", "TOML", "entrain/core/dataset/mixture.h", "data.md"),
    ("Index, manifest", "CSV", "entrain/core/dataset/index.h", "data.md"),
    ("Token ids", "binary", "entrain/core/dataset/token_cache.h", "tokens.md"),
    ("Cost table", "CSV", "entrain/core/cost/cost_table.h", "simulate.md"),
    ("Profile", "JSON", "entrain/core/spec/profile.h", "profiling.md"),
    ("Plan", "JSON", "entrain/core/spec/plan.h", "planning.md"),
    ("Assignment", "JSON", "entrain/core/spec/assignment.h", "assignment.md"),
    ("Compute order", "CSV", "entrain/core/schedule/torch_csv.h", "schedules.md"),
    ("Timeline", "JSON", "entrain/core/report/trace.h", "report.md"),
    ("Step of a report", "JSON", "entrain/core/report/step_view.h", "report.md"),
    ("Metrics of a run", "JSON Lines", "entrain/core/report/run_rows.h", "training.md"),
    ("Dump of a rank", "JSON", "entrain/core/base/call_log.h", "faults.md"),
    ("Checkpoint", "safetensors, JSON", "entrain/engine/checkpoint/manifest.h", "checkpoint.md"),
)

CLAUSES = (
    "Shapes|Requires|Ensures|Returns|Gives|Throws|Cost|Source|Blocks|Thread safety|Units|Example"
)

KEYS_HEAD = (
    f"From `{RUN_CONFIG}.h` and `{RUN_CONFIG}.cc`, which read them. `docs/training.md` explains how they "
    "work together. `--set table.key=value` overrides any of them. Where no default is given, the key is "
    "empty or decided as described."
)
FORMATS_HEAD = (
    "Each file is read by one header, whose comment says what it holds. JSON documents have a `version`, "
    "and unknown keys are refused by name everywhere. `docs/outputs.md` says which files a command may "
    "replace."
)

Key = namedtuple("Key", "path default allowed meaning")


def prose(text):
    """Text of a comment or of a help page as Markdown that means nothing but its words."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        part
        if part.startswith("`")
        else re.sub(r"([\\*_\[\]|#~^])", r"\\\1", html.escape(part, quote=False))
        for part in parts
    )


def is_public(path):
    return not path.name.endswith(("_pch.h", "_internal.h"))


# ----------------------------------------------------------------------------------- commands


@functools.cache  # those of the engine load torch
def help_of(entrain, *words):
    return subprocess.run(
        [entrain, *words, "--help"], check=True, capture_output=True, text=True
    ).stdout


def subcommands(text):
    """Names below "Subcommands:" of a help page."""
    return re.findall(
        r"^  ([a-z][a-z-]*) ",
        text.partition("Subcommands:\n")[2].partition("\n\n")[0],
        re.MULTILINE,
    )


def command_names(entrain):
    """All commands, as lists of words; `checkpoint show` is one."""
    names = []
    for name in subcommands(help_of(entrain)):
        inner = subcommands(help_of(entrain, name))
        names += [[name, word] for word in inner] or [[name]]
    return names


def options(text):
    """(section, option with its value, meaning) of every line of a help page's tables."""
    rows = []
    section = ""
    for line in text.splitlines():
        if re.fullmatch(r"[A-Z][a-z]+:", line):
            section = line[:-1]
        elif section in ("Options", "Positionals") and re.match(r"  \S", line):
            option, _, meaning = line.strip().partition("  ")
            rows.append([section, option, meaning.strip()])
        elif section in ("Options", "Positionals") and line.startswith("      ") and rows:
            rows[-1][2] = f"{rows[-1][2]} {line.strip()}".strip()
    return rows


def command_section(entrain, words):
    text = help_of(entrain, *words)
    name = " ".join(["entrain", *words])
    head, _, rest = text.partition("Usage: ")
    lines = [f"## {name}", "", prose(" ".join(head.split())), ""]
    lines += ["```text", rest.splitlines()[0], "```", "", "| option | meaning |", "|---|---|"]
    for section, option, meaning in options(text):
        mark = "" if section == "Options" else " (argument)"
        lines.append(f"| {prose(option)}{mark} | {prose(meaning)} |")
    example = text.partition("\nExample:")[2]
    if example:
        lines += ["", "Example:", "", "```text", example.strip("\n"), "```"]
    return "\n".join(lines)


def commands_page(entrain):
    head = (
        "# Commands\n\nFrom `entrain COMMAND --help` of the program that was built with this site. "
        "A value's range follows its type, its default follows `=`."
    )
    sections = [command_section(entrain, words) for words in command_names(entrain)]
    return "\n\n".join([head, *sections, ""])


# ----------------------------------------------------------------------------- keys of run files


def constants(root):
    """Named constants of core and of the engine's configuration: {"kMostSlots": "65'536"}."""
    found = {}
    folders = ("core/spec", "core/dataset", "engine/pipeline", "engine/train")
    for folder in (f"entrain/{name}" for name in folders):
        for path in sorted((root / folder).glob("run_config.*")) + sorted(
            (root / folder).glob("*.h")
        ):
            text = path.read_text(encoding="utf-8")
            found.update(re.findall(r"constexpr [\w:<>*, ]*?(k[A-Z]\w*) = {?([^;{}]+)}?;", text))
    return found


def value_of(text, known):
    text = known.get(text.strip(), text.strip())
    return text.replace("'", ",") if text[:1].isdigit() or text[:1] == "-" else text


def range_text(inside, note, known):
    """`1, kMostSlots` → "1 to 65,536"; numbers may exclude an end."""
    values = [value_of(part, known) for part in inside.split(",")] if "'" not in inside else None
    if values is None:
        values = [value_of(part, known) for part in re.split(r",\s", inside)]
    values += ["false"] * (4 - len(values))
    least = f"above {values[0]}, up to" if values[2] == "true" else f"{values[0]} to"
    most = f"below {values[1]}" if values[3] == "true" else values[1]
    return f"{least} {most}{note}"


def checked_ranges(body, known):
    """{key: its range in words} of the checks in a function over a table."""
    check = r'(?:key|check_range)\(\s*"(\w+)",[^{;"]*\{([^}]*)\}(?:,\s*"([^"]*)")?'
    ranges = {key: range_text(*found, known) for key, *found in re.findall(check, body)}
    for key, names in re.findall(r'(?:key|check_name)\(\s*"(\w+)",[^;]*?(k[A-Z]\w*)\);', body):
        local = re.search(rf"{names} = {{([^}}]*)}}", body)
        inside = local[1] if local else known[names]
        ranges[key] = ", ".join(value_of(name, known) for name in inside.split(","))
    require = r'require\([^;]*?"(\w+)",\s*"((?:[^"\\]|\\.)*)"\);'
    for key, words in re.findall(require, body):
        ranges.setdefault(key, words.replace("\\", ""))
    return ranges


def tables_of(root):
    """{struct: {key: allowed}} of the functions that read a run file's tables."""
    text = (root / f"{RUN_CONFIG}.cc").read_text(encoding="utf-8")
    known = constants(root)
    rates = re.search(r"^void rate_keys.*?^}", text, re.MULTILINE | re.DOTALL)[0]
    tables = {"PartOptimizer": checked_ranges(rates, known)}
    for match in re.finditer(r"^\S+ \w+\(.*?^}", text, re.MULTILINE | re.DOTALL):
        body = match[0]
        struct = re.match(
            r"(?:std::optional<)?(\w+Config)>? |.*?\(ConfigTable& \w+, (\w+Config)& ", body
        )
        if struct is None:
            continue
        table = tables.setdefault(struct[1] or struct[2], {})
        if "rate_keys(" in body:
            table.update(tables["PartOptimizer"])
        ranges = checked_ranges(body, known)
        named = r'\b(?:key|required|optional|table|find|has)\(\s*"(\w+)"|count_keys\(\w+, "(\w+)"'
        called = r"\b(precision)_key\(|\bread_(recompute|lora)\w*\("
        for groups in re.findall(f"{named}|{called}", body):
            key = "".join(groups)
            table.setdefault(key, ranges.get(key, ""))
    return tables


def fields(text, struct):
    """{field: (default, comment)} of a struct in a header's text, and the comment on its head."""
    match = re.search(rf"^struct {struct}\b[^\n]*?{{(.*?)^}};", text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise ValueError(f"struct {struct} is gone")
    lines = match[1].split("\n")
    found = {}
    pending = []
    last = None
    statement = ""
    for line in lines[1:]:
        comment = line.partition("//")[2].strip()
        code = line.partition("//")[0].strip()
        if not code and comment and len(line) - len(line.lstrip()) > 2 and last:
            found[last] = (found[last][0], f"{found[last][1]} {comment}".strip())
        elif not code and comment:
            pending.append(comment)
        elif code:
            statement = f"{statement} {code}".strip()
            if not statement.endswith(";"):
                continue
            declared = re.match(r".*?[ >](\w+)(?:\s*=\s*(.*))?;$", statement)
            statement = ""
            if declared and declared[1] != "operator":
                last = declared[1]
                found[last] = (declared[2] or "", " ".join([*pending, comment]).strip())
            pending = []
        else:
            pending, last = [], None
    return found, lines[0].partition("//")[2].strip()


def section_of(head):
    """`[data]; docs/x.md` → "data"."""
    match = re.match(r"\[([\w.]+)\]", head)
    return match[1] + "." if match else ""


def run_keys(root):
    """Every key of a run file, in the order of its reader."""
    text = (root / f"{RUN_CONFIG}.h").read_text(encoding="utf-8")
    known = constants(root)
    keys = []
    tables = tables_of(root)
    reader = (root / f"{RUN_CONFIG}.cc").read_text(encoding="utf-8")
    required = set(re.findall(r'required\("(\w+)"', reader))
    tables = {struct: table for struct, table in tables.items() if f"struct {struct} " in text}
    for struct in sorted(
        tables, key=lambda name: (name != "RunConfig", text.find(f"struct {name}"))
    ):
        given, head = fields(text, struct)
        section = section_of(head)
        own = dict(tables[struct])
        if struct == "LoraConfig":
            model = (root / "entrain/core/spec/model.h").read_text(encoding="utf-8")
            given = fields(model, "LoraSpec")[0] | given
            own = dict.fromkeys(KEY_OF_FIELD.get(field, field) for field in given)
            head = re.search(r"struct LoraConfig[^\n]*// (.*)", text)[1]
            section = section_of(head)
        named = {KEY_OF_FIELD.get(field, field): entry for field, entry in given.items()}
        for key, allowed in own.items():
            if key not in named:
                raise ValueError(f"{RUN_CONFIG}.h: {struct} says nothing of the key {key}")
            default, comment = named[key]
            path = section + key
            default = DEFAULTS.get(path, value_of(default, known))
            if key in required and struct != "LoraConfig":
                default = "required"
            keys.append(Key(path, default, allowed or "", comment))
    tables_themselves = {key.path.rpartition(".")[0] for key in keys} - {""}
    return [key for key in keys if key.path not in tables_themselves]


def keys_page(root):
    lines = [
        "# Keys of a run file",
        "",
        KEYS_HEAD,
    ]
    section = None
    for key in run_keys(root):
        table, _, name = key.path.rpartition(".")
        if table != section:
            section = table
            lines += ["", f"## [{table}]" if table else "## Top level", ""]
            lines += ["| key | default | allowed | meaning, unit |", "|---|---|---|---|"]
        default = f"`{key.default}`" if key.default not in ("", "required") else key.default
        lines.append(f"| `{name}` | {default} | {prose(key.allowed)} | {prose(key.meaning)} |")
    return "\n".join([*lines, ""])


# ------------------------------------------------------------------------------- headers, formats


def head_comment(text):
    """The comment before `#pragma once`, as lines."""
    before = text.partition("#pragma once")[0]
    return [line[2:].removeprefix(" ") for line in before.splitlines() if line.startswith("//")]


def paragraphs(lines):
    """Lines of a comment as Markdown: paragraphs, lists, clauses in bold, tables of words as they are."""
    parts = []
    inside = ""  # what a line that is indented goes on with
    for line in lines:
        clause = re.match(rf"({CLAUSES}|[a-z]+ )\s+(\S.*)", line)
        item = re.match(r"(- |\d+\. )(.*)", line)
        if not line.strip():
            inside = ""
            parts.append("")
        elif clause:
            inside = "clause"
            parts += ["", f"**{clause[1]}** {prose(clause[2])}"]
        elif item:
            parts += [*([] if inside == "list" else [""]), item[1] + prose(item[2])]
            inside = "list"
        elif line.startswith("  ") and inside not in ("clause", "list"):
            parts += [*([] if inside == "table" else [""]), "    " + line]
            inside = "table"
        elif inside == "table":
            inside = ""
            parts += ["", prose(line)]
        else:
            parts.append(("  " if inside == "list" else "") + prose(line.strip()))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).strip("\n")


def chunks(text):
    """(comment lines, declaration) of everything that a header declares at namespace level."""
    body = text.partition("#pragma once")[2]
    body = re.sub(
        r"^(#include|namespace|}  // namespace|using namespace).*$", "", body, flags=re.MULTILINE
    )
    found = []
    current, depth = [], 0
    for line in [*body.splitlines(), ""]:
        code = line.partition("//")[0]
        if not line.strip() and depth == 0:
            if current:
                found.append(current)
            current = []
            continue
        current.append(line)
        depth += code.count("{") + code.count("(") - code.count("}") - code.count(")")
    result = []
    for lines in found:
        comment = []
        while lines and lines[0].startswith("//"):
            comment.append(lines.pop(0)[2:].removeprefix(" "))
        result.append((comment, "\n".join(lines)))
    return result


def name_of(declaration):
    declaration = re.sub(r"^template <.*?>\n", "", declaration)
    match = re.match(r"(?:struct|class|enum class)\s+(\w+)", declaration)
    match = match or re.search(r"(\w+)\(", declaration) or re.search(r"(k[A-Z]\w*)", declaration)
    return match[1] if match else ""


def header_section(root, path):
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(root).as_posix()
    lines = [f"## {path.name} {{ #{anchor_of(path.name)} }}", "", f'`#include "{name}"`', ""]
    lines.append(paragraphs(head_comment(text)))
    for comment, declaration in chunks(text):
        if not declaration:
            lines += ["", paragraphs(comment)]
            continue
        title = name_of(declaration)
        lines += ["", f"### {title}" if title else "", "", paragraphs(comment), ""]
        lines += ["```cpp", declaration, "```"]
    return "\n".join(lines)


def anchor_of(file_name):
    return file_name.replace(".", "-").replace("_", "-")


def api_address(header):
    """Page and anchor of `entrain/core/spec/plan.h`."""
    folder, _, name = header.rpartition("/")
    page = folder.removeprefix("entrain/").replace("/", "-")
    return f"reference/api/{page}.md#{anchor_of(name)}"


def api_pages(root):
    """{address: text}, a page for each package with headers."""
    packages = {}
    for path in sorted((root / "entrain").rglob("*.h")):
        if is_public(path):
            packages.setdefault(path.parent.relative_to(root / "entrain").as_posix(), []).append(
                path
            )
    pages = {}
    for package, paths in packages.items():
        head = f"# {package}\n\nHeaders of `entrain/{package}`, from their own comments."
        sections = [header_section(root, path) for path in paths]
        pages[f"reference/api/{package.replace('/', '-')}.md"] = "\n\n".join([head, *sections, ""])
    return pages


def formats_page(root):
    lines = [
        "# File formats",
        "",
        FORMATS_HEAD,
        "",
        "| file | syntax | read by | page |",
        "|---|---|---|---|",
    ]
    for what, syntax, header, page in FORMATS:
        shown = page if page.startswith("reference/") else f"docs/{page}"
        link = "[keys](keys.md)" if page.startswith("reference/") else f"`{shown}`"
        lines.append(f"| {what} | {syntax} | `{header}` | {link} |")
    for what, _, header, _ in FORMATS:
        text = (root / header).read_text(encoding="utf-8")
        lines += ["", f"## {what}", "", paragraphs(head_comment(text))]
        keyed = [
            c for c, _ in chunks(text) if re.search(r"\b[Kk]eys?:|[Cc]olumns?:|Format", " ".join(c))
        ]
        for comment in keyed:
            lines += ["", paragraphs(comment)]
    return "\n".join([*lines, ""])


def pages(root, entrain):
    """{address in the site: Markdown} of all generated pages."""
    result = {
        "reference/commands.md": commands_page(entrain),
        "reference/keys.md": keys_page(root),
        "reference/formats.md": formats_page(root),
    }
    return result | api_pages(root)
