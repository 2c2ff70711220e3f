"""Every command of README.md runs as it stands, in the order in which a newcomer meets them.

In the folder of `demo_fixture.py` every fenced block marked `sh` is run, `make` lines apart: of these the
targets must exist.
"""

import re
import sys
from xml.etree import ElementTree

import cli_fixture
from demo_fixture import DemoTest, blocks

MAX_LINE = 120  # characters of README's text; tables may be wider
MAX_PICTURE = 150_000  # bytes


def commands(block):
    """Its commands, continued lines joined."""
    lines = block.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


class Readme(DemoTest):
    def setUp(self):
        super().setUp()
        self.text = (self.root / "README.md").read_text()

    def test_every_command_runs_as_it_stands(self):
        self.make_folder()
        ran = 0
        exports = ""
        for block in blocks(self.text, "sh"):
            for command in commands(block):
                if command.startswith("make "):
                    continue
                if command.startswith("export "):
                    exports += command + "\n"
                    continue
                with self.subTest(command=command):
                    self.run_shell(exports + command)
                ran += 1
        print(f"{ran} commands of README.md ran")
        self.assertGreaterEqual(ran, 15)
        self.draw_the_picture()

    def draw_the_picture(self):
        """The picture of README's head can be drawn again, and is small enough to be kept."""
        self.assertIn("tools/draw_step.py", self.text)
        picture = self.folder / "one_step.svg"
        self.run_shell(
            f".venv/bin/python tools/draw_step.py --entrain {self.entrain} "
            f"--index data/demo/train.csv --output {picture}"
        )
        for drawn in (picture, self.root / "docs" / "one_step.svg"):
            self.assertLess(drawn.stat().st_size, MAX_PICTURE)
            texts = [node.text for node in ElementTree.parse(drawn).iter() if node.text]
            self.assertEqual(sum(text.strip().endswith("% idle") for text in texts), 2)

    def test_targets_of_make_exist(self):
        makefile = (self.root / "Makefile").read_text()
        named = re.findall(r"(?:^|`|\s)make ([a-z-]+)(?=[`\s])", self.text)
        self.assertGreaterEqual(len(named), 4)
        for target in named:
            self.assertRegex(makefile, rf"(?m)^{re.escape(target)}:.*##", f"make {target}")

    def test_every_command_of_the_program_is_listed(self):
        listed = {line.split()[1] for line in "".join(blocks(self.text, "text")).splitlines()}
        help_text = self.expect_success("--help").stdout
        subcommands = help_text.partition("Subcommands:")[2]
        known = set(re.findall(r"^  ([a-z][a-z-]*) ", subcommands, flags=re.MULTILINE))
        self.assertEqual(listed, known)

    def test_lines_are_short(self):
        long = [
            line
            for line in self.text.splitlines()
            if len(line) > MAX_LINE and not line.startswith("|")
        ]
        self.assertEqual(long, [])


if __name__ == "__main__":
    sys.exit(cli_fixture.main())
