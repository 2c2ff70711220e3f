"""A clone after a small `make demo`, for the tests that run the commands of pages."""

import os
import re
import subprocess
from pathlib import Path

import cli_fixture

LINKS = ("configs", "tools", "examples", "docs", "Makefile")


def blocks(text, kind):
    """Contents of the fenced blocks of that kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


class DemoTest(cli_fixture.CliTest):
    """A copy of the project's folder, with links to its files, gets what `make demo` leaves, made by
    the demo's own script on fewer charts and steps."""

    charts = ("--train", "600", "--validation", "40", "--seed", "1")

    def make_folder(self):
        """The files of a clone after `make demo`."""
        python = self.root / ".venv" / "bin" / "python"
        if not python.exists() or not self.has_engine():
            self.skipTest("no engine in this build")
        for name in LINKS:
            (self.folder / name).symlink_to(self.root / name)
        (self.folder / ".venv").symlink_to(self.root / ".venv")
        build = Path(self.entrain).parents[2]
        (self.folder / "build").mkdir()
        (self.folder / "build" / "release").symlink_to(build)
        data = self.folder / "data" / "demo"
        data.mkdir(parents=True)
        script = self.root / "tools" / "demo" / "make_charts.py"
        subprocess.run([python, script, "--output", data, *self.charts], check=True)
        (data / ".complete").touch()
        self.environment = dict(os.environ, PYTHONPATH=str(build / "python"))
        self.run_shell("tools/demo/run.sh --set steps=20")

    def run_shell(self, command, timeout=300):
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        output = f"{command}\n{result.stdout[-3000:]}{result.stderr[-3000:]}"
        self.assertEqual(result.returncode, 0, output)
        return result.stdout
