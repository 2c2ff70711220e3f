"""The pages of docs/ hold: commands run, links and keys are there, drawings are the program's.

Every `sh` block is run in the folder of `demo_fixture.py`, the tutorial's first, except for `git clone`, `cd`
and `make`, which that folder stands for. `console` blocks need more than one host has, unmarked ones are
forms with names to fill in: their options are checked. mkdocs is not needed.
"""

import contextlib
import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import cli_fixture
from demo_fixture import DemoTest, blocks

COMMANDS = ["tutorial.md", "how-to/*.md", "*.md"]  # pages whose blocks are run, in this order
STANDS_FOR = ("git clone ", "cd entrain", "make demo")
OF_THE_ENGINE = ("profile", "train", "feed", "eval", "checkpoint")
MAX_DRAWING = 60_000  # bytes
MAX_LINE = 100  # characters of a code block's line, in pages whose blocks are run

STAND_INS = {
    "srun": 'while [[ ${1:-} == --* ]]; do shift; done\nexec "$@"\n',
    "scontrol": 'if [[ $1 == requeue ]]; then touch "$STAND_IN_FOLDER/requeued"; '
    "else echo 127.0.0.1; fi\n",
}


# Eight samples on two replicas of two slots, and the proof of where the policy puts them.
TRY_POLICY = """
#include <iostream>
#include "entrain/core/assigner/assigner.h"
#include "entrain/core/cost/cost_table.h"
int main() {
  using namespace entrain;
  std::string rows = "sample_id,vision_tokens,vision_forward_s,vision_backward_s,";
  rows += "llm_tokens,llm_forward_s,llm_backward_s\\n";
  for (char name = 'a'; name <= 'h'; ++name) {
    rows += std::string(1, name) + ",100,0.001,0.002,100,0.001,0.002\\n";
  }
  Plan plan;
  plan.replicas = 2;
  plan.num_slots = 2;
  plan.modules = {{"vision", 1, 1, {{0, 1}}}, {"llm", 1, 1, {{0, 1}}}};
  plan.lanes = default_lanes(plan.modules);
  plan.schedule = "1f1b";
  const std::vector<int> batch = {0, 1, 2, 3, 4, 5, 6, 7};
  const StepCosts costs = table_costs(parse_cost_table(rows, "rows"), plan, batch, {0, 0});
  AssignRequest request;
  request.plan = &plan;
  request.costs = &costs;
  validate_assignment(to_assignment(costs, every_other_policy(request)), plan, costs);
  std::cout << "proven\\n";
}
"""


def module_of(path):
    """A Python file of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_blocks(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def slugs(text):
    """Anchors of a page's headings, as Python-Markdown makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", heading).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", words))
    return found


def flat(document, before=""):
    """{"data.train": value} of a document's tables."""
    result = {}
    for key, value in document.items():
        if isinstance(value, dict) and value:
            result |= flat(value, f"{before}{key}.")
        else:
            result[before + key] = value
    return result


def merged(base, more):
    """`base` with the tables of `more` over it."""
    result = dict(base)
    for key, value in more.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


class Pages(cli_fixture.CliTest):
    @classmethod
    def setUpClass(cls):
        cls.reference = module_of(cls.root / "tools" / "docs" / "reference.py")

    def setUp(self):
        super().setUp()
        self.docs = self.root / "docs"
        self.pages = sorted(self.docs.rglob("*.md"))
        # What build/site has besides docs/.
        self.made = {"reference/commands.md", "reference/keys.md", "reference/formats.md"}
        self.made |= set(self.reference.api_pages(self.root))

    def read(self, name):
        return (self.root / name).read_text(encoding="utf-8")

    def test_links_between_pages_and_to_headings_resolve(self):
        count = 0
        for page in self.pages:
            text = page.read_text(encoding="utf-8")
            here = page.relative_to(self.docs).parent
            for link in re.findall(r"\]\(([^)\s]+)\)", without_blocks(text)):
                if ":" in link:
                    continue
                count += 1
                name, _, anchor = link.partition("#")
                target = os.path.normpath(here / name) if name else str(page.relative_to(self.docs))
                file = self.docs / target
                with self.subTest(page=page.name, link=link):
                    self.assertTrue(target in self.made or file.is_file(), "no such page")
                    if anchor and file.is_file():
                        self.assertIn(anchor, slugs(file.read_text(encoding="utf-8")))
        self.assertGreater(count, 25)

    def test_the_navigation_holds_every_page_once(self):
        listed = re.findall(r":\s+([\w/-]+\.md)$", self.read("mkdocs.yml"), re.MULTILINE)
        self.assertEqual(len(listed), len(set(listed)))
        pages = {str(page.relative_to(self.docs)) for page in self.pages}
        generated = {"reference/commands.md", "reference/keys.md", "reference/formats.md"}
        self.assertEqual(set(listed), pages | generated | {"architecture.md"})

    def test_blocks_of_toml_are_read_by_the_program(self):
        if not self.has_engine():
            self.skipTest("no engine in this build")
        self.make_data()
        base = {
            "output": "run",
            "steps": 1,
            "model": "model.toml",
            "data": {"train": "train.csv", "global_batch": 4},
        }
        count = 0
        for page in [*self.pages, self.root / "README.md", self.root / "configs" / "README.md"]:
            for block in blocks(page.read_text(encoding="utf-8"), "toml"):
                count += 1
                document = merged(base, tomllib.loads(block))
                (self.folder / "block.json").write_text(json.dumps(document))
                with self.subTest(page=page.name, block=block):
                    # What the block names need not be here; what it says must be a run file's.
                    done = self.run_program("train", "block.json", "--dry-run")
                    self.assertNotIn("block.json: ", done.stderr)
                    self.assertIn(done.returncode, (0, 2))
        self.assertGreaterEqual(count, 7)
        document["data"]["tarin"] = "x"
        (self.folder / "block.json").write_text(json.dumps(document))
        self.expect_failure(2, ["block.json: data.tarin"], "train", "block.json", "--dry-run")

    def test_the_reference_has_every_key_with_its_default(self):
        """Against what a run resolves from a file that gives the required keys alone."""
        keys = {key.path: key for key in self.reference.run_keys(self.root)}
        for key in keys.values():
            self.assertNotEqual(key.meaning, "", f"{key.path}: run_config.h says nothing of it")
        required = {path for path, key in keys.items() if key.default == "required"}
        self.assertEqual(
            required, {"output", "model", "data.train", "data.global_batch", "lora.rank"}
        )
        if not self.has_engine():
            self.skipTest("no engine in this build")
        self.make_data()
        (self.folder / "run.toml").write_text(
            'output = "run"\nsteps = 1\nmodel = "model.toml"\n'
            '[data]\ntrain = "train.csv"\nglobal_batch = 8\n'
        )
        self.expect_success("train", "run.toml")
        resolved = flat(json.loads((self.folder / "run" / "config.json").read_text()))
        self.assertEqual(set(resolved) - set(keys), set())
        for path, value in resolved.items():
            if keys[path].default not in ("", "required"):
                default = tomllib.loads(f"v = {keys[path].default}")["v"]
                self.assertEqual(value, default, path)
        # Keys that are not written while they are empty.
        left = {path.partition(".")[0] for path in set(keys) - set(resolved)}
        self.assertEqual(
            left,
            {"epochs", "model_dtype", "plan", "optimizer", "init", "lora"},
            "keys that no run has",
        )

    def test_the_reference_has_every_command_and_header(self):
        pages = self.reference.pages(self.root, self.entrain)
        commands = pages["reference/commands.md"]
        names = self.reference.command_names(self.entrain)
        listed = {
            line.split()[1] for line in "".join(blocks(self.read("README.md"), "text")).splitlines()
        }
        self.assertEqual({words[0] for words in names}, listed)
        if self.has_engine():
            inner = {words[1] for words in names if len(words) > 1}
            self.assertEqual(inner, {"show", "verify", "export", "paper"})
        for words in names:
            self.assertIn(f"## {' '.join(['entrain', *words])}\n", commands)
        self.assertRegex(commands, r"\| -b,--global-batch INT:1 to 1,000,000 REQUIRED \| samples")
        headers = sum(text.count("`#include ") for text in pages.values())
        self.assertEqual(headers, len(list((self.root / "entrain").rglob("*.h"))))
        self.assertIn("**Cost** O(n log n)", self.reference.paragraphs(["Cost  O(n log n)"]))
        self.assertIn("Proves an assignment", pages["reference/api/core-assigner.md"])

    def test_commands_in_blocks_have_options_that_exist(self):
        known = {}
        for words in self.reference.command_names(self.entrain):
            options = self.reference.options(self.reference.help_of(self.entrain, *words))
            names = {n for _, option, _ in options for n in re.findall(r"--?[a-z][a-z-]*", option)}
            known[words[0]] = known.get(words[0], set()) | names
        # A program without the engine lists its commands and knows no options of theirs.
        absent = set() if self.has_engine() else set(OF_THE_ENGINE)
        count = 0
        for page in [*self.pages, self.root / "README.md", self.root / "configs" / "README.md"]:
            text = page.read_text(encoding="utf-8").replace("\\\n", " ")
            for kind in ("sh", "console", ""):
                for line in "\n".join(blocks(text, kind)).splitlines():
                    command = re.match(
                        r"(?:torchrun .* -m )?entrain ([a-z][a-z-]*)(?=\s)(.*)", line
                    )
                    if not command or command[1] in absent:
                        continue
                    count += 1
                    given = re.findall(r"(?<=\s)--?[a-z][a-z-]*", command[2].partition(" #")[0])
                    with self.subTest(page=page.name, line=line):
                        self.assertIn(command[1], known)
                        self.assertEqual(set(given) - known[command[1]], set())
        self.assertGreater(count, 50)

    def test_lines_of_blocks_are_short(self):
        for pattern in COMMANDS:
            for page in self.docs.glob(pattern):
                for kind in ("sh", "console", "text", "cpp"):
                    for line in "\n".join(blocks(page.read_text(), kind)).splitlines():
                        self.assertLessEqual(len(line), MAX_LINE, f"{page.name}: {line}")

    def test_drawings_are_those_of_the_program(self):
        drawings = module_of(self.root / "tools" / "docs" / "drawings.py")
        drawn = drawings.draw_all(self.entrain)
        shown = "".join(page.read_text(encoding="utf-8") for page in self.pages)
        kept = {path.stem for path in (self.docs / "drawings").glob("*.svg")}
        self.assertEqual(kept, set(drawn))
        for name, drawing in drawn.items():
            self.assertEqual(drawing, (self.docs / "drawings" / f"{name}.svg").read_text(), name)
            self.assertLess(len(drawing), MAX_DRAWING)
            self.assertIn(f"(drawings/{name}.svg)", shown)

    def test_cluster_files_are_well_formed(self):
        folder = self.root / "examples" / "cluster"
        subprocess.run(["bash", "-n", folder / "slurm.sbatch"], check=True)
        manifest = (folder / "kubernetes.yaml").read_text()
        known = self.reference.help_of(self.entrain, "train") if self.has_engine() else ""
        for word in re.findall(r"entrain train .*", self.read("docs/how-to/cluster.md")):
            for option in re.findall(r"--[a-z]+(?= )", word.partition("`")[0]):
                self.assertIn(option, known or option)
        yaml = importlib.util.find_spec("yaml")
        if yaml is None:
            self.skipTest("no PyYAML: the manifest was not parsed")
        service, job = importlib.import_module("yaml").safe_load_all(manifest)
        template = job["spec"]["template"]["spec"]
        self.assertEqual(template["subdomain"], service["metadata"]["name"])
        self.assertEqual(service["spec"]["selector"], {"job-name": job["metadata"]["name"]})
        self.assertEqual(job["spec"]["completions"], job["spec"]["parallelism"])
        command = template["containers"][0]["command"]
        self.assertIn(f"--nnodes={job['spec']['completions']}", command)
        first = f"{job['metadata']['name']}-0.{template['subdomain']}"
        self.assertIn(f"--master-addr={first}", command)
        self.assertEqual(command[-4:], ["-m", "entrain", "train", "run.toml"])
        mounts = {mount["name"] for mount in template["containers"][0]["volumeMounts"]}
        self.assertEqual(mounts, {volume["name"] for volume in template["volumes"]})
        stop = next(
            k for k in self.reference.run_keys(self.root) if k.path.endswith("stop_seconds")
        )
        self.assertGreater(template["terminationGracePeriodSeconds"], float(stop.default) + 15)


class Commands(DemoTest):
    """What takes longer than a minute."""

    charts = ("--train", "600", "--validation", "540", "--seed", "1")

    def run_page(self, page):
        """Every block as a script of its own, after the exports of those before it."""
        exports = ""
        for block in blocks(page.read_text(encoding="utf-8"), "sh"):
            lines = [line for line in block.splitlines() if not line.startswith(STANDS_FOR)]
            exports += "".join(f"{line}\n" for line in lines if line.startswith("export "))
            script = "\n".join(line for line in lines if not line.startswith("export "))
            if script.strip():
                with self.subTest(page=page.name, block=block):
                    began = time.monotonic()
                    self.run_shell(exports + script, timeout=900)
                    print(
                        f"{page.name}: {time.monotonic() - began:.1f} s: {script.splitlines()[0]}"
                    )

    def test_every_block_of_commands_runs(self):
        self.make_folder()
        programs = [self.folder / "build/release/entrain/cli", self.folder / ".venv/bin"]
        self.environment["PATH"] = ":".join(map(str, [*programs, os.environ["PATH"]]))
        pages = [p for pattern in COMMANDS for p in sorted((self.root / "docs").glob(pattern))]
        for page in dict.fromkeys(pages):
            self.run_page(page)
        answers = json.loads((self.folder / "data/own/mine.json").read_text())
        self.assertEqual(sum(map(len, answers["replicas"][0]["modules"]["llm"])), 32)
        for page in ("data/mine/report.html", "data/mine/cases.html"):
            self.assertIn("</html>", (self.folder / page).read_text())
        self.run_slurm_job()

    def run_slurm_job(self):
        """Slurm's script, stopped as before a time limit, then requeued."""
        programs = self.folder / "stand-ins"
        programs.mkdir()
        for name, body in STAND_INS.items():
            (programs / name).write_text(f"#!/bin/bash\n{body}")
            (programs / name).chmod(0o755)
        path = f"{programs}:{self.root / '.venv' / 'bin'}:{os.environ['PATH']}"
        slurm = {"SLURM_JOB_NODELIST": "h[1-2]", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_ID": "7"}
        own = {"ENTRAIN_RANKS_PER_NODE": "4", "ENTRAIN_PORT": "29517", "PATH": path}
        environment = self.environment | slurm | own | {"STAND_IN_FOLDER": str(self.folder)}
        command = "bash examples/cluster/slurm.sbatch configs/demo.toml --set output=runs/slurm"
        words = [*shlex.split(command), "--set", "steps=40"]
        with (self.folder / "slurm.log").open("w") as log:
            job = subprocess.Popen(words, cwd=self.folder, env=environment, stdout=log, stderr=log)
            rows = self.folder / "runs" / "slurm" / "metrics.jsonl"
            end = time.monotonic() + 300
            while time.monotonic() < end and job.poll() is None:
                with contextlib.suppress(FileNotFoundError):
                    if rows.read_text().count("\n") >= 3:
                        break
                time.sleep(0.2)
            job.send_signal(signal.SIGTERM)
            said = self.folder / "slurm.log"
            self.assertEqual(job.wait(timeout=120), 0, said.read_text()[-3000:])
            self.assertTrue((self.folder / "requeued").exists())
            again = subprocess.run(
                words, cwd=self.folder, env=environment, stdout=log, stderr=log, check=False
            )
        self.assertEqual(again.returncode, 0, said.read_text()[-3000:])
        self.assertIn("resumed at step", said.read_text())
        self.assertEqual(rows.read_text().count('"loss"'), 40)

    def test_a_policy_of_a_page_places_samples_and_a_rule_compiles(self):
        page = (self.root / "docs" / "how-to" / "own-policy.md").read_text()
        policy, rule = blocks(page, "cpp")
        declared = "namespace entrain { Placement every_other_policy(const AssignRequest&); }\n"
        policy = policy.replace("namespace entrain {", declared + "namespace entrain {", 1)
        for name, source in (("policy", policy + TRY_POLICY), ("rule", rule)):
            (self.folder / f"{name}.cc").write_text(source)
            words = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
            words += ["-Wno-unused-variable", f"-I{self.root}", "-c", f"{name}.cc"]
            subprocess.run(words, cwd=self.folder, check=True)
        built = Path(self.entrain).parents[1]
        packages = (
            "assigner",
            "baselines",
            "schedule",
            "simulator",
            "graph",
            "cost",
            "spec",
            "base",
        )
        libraries = [built / f"libentrain_{package}.a" for package in packages]
        words = ["g++", "policy.o", *libraries, "-lfmt", "-lz", "-lxxhash", "-o", "policy"]
        subprocess.run(words, cwd=self.folder, check=True)
        done = subprocess.run([self.folder / "policy"], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "proven\n")


if __name__ == "__main__":
    sys.exit(cli_fixture.main())
