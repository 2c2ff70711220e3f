"""Helpers of the end-to-end tests: tiny real data sets, configurations, and runs of the program.

Standard library only, so that the core's tests need nothing from PyPI.
"""

import argparse
import io
import json
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zlib
from pathlib import Path

DOCUMENTS = Path(__file__).resolve().parents[1] / "documents"

# With an encoder of one layer: runs are real here.
MODEL = (DOCUMENTS / "tiny_model.toml").read_text().replace("num_layers = 2", "num_layers = 1", 1)


def png(width, height, colour=(200, 30, 30)):
    """Bytes of an RGB PNG of one colour."""

    def chunk(kind, body):
        checksum = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)

    row = b"\x00" + bytes(colour) * width
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(row * height))
        + chunk(b"IEND", b"")
    )


def corrupt_png(width, height):
    """A PNG whose header is right and whose pixels are not."""
    data = bytearray(png(width, height))
    middle = data.index(b"IDAT") + 4
    data[middle : middle + 8] = b"\xff" * 8
    return bytes(data)


def write_members(path, members, mode="w"):
    """members: list of (name, bytes)."""
    with tarfile.open(path, mode, format=tarfile.USTAR_FORMAT) as shard:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            shard.addfile(info, io.BytesIO(content))


def write_shard(path, samples):
    """samples: list of (name, list of image bytes, JSON dictionary)."""
    members = []
    for name, images, text in samples:
        if len(images) == 1:
            members.append((f"{name}.png", images[0]))
        else:
            members += [(f"{name}.{i}.png", image) for i, image in enumerate(images)]
        members.append((f"{name}.json", json.dumps(text).encode()))
    write_members(path, members)


def sample(number, images=1, answer="red"):
    """A sample with a question, a short answer and `images` pictures of changing size."""
    pictures = [png(16 * (1 + (number + i) % 3), 16 * (1 + number % 2)) for i in range(images)]
    return f"s{number:03d}", pictures, {"question": f"colour {number}?", "answer": answer}


class CliTest(unittest.TestCase):
    """Runs the program in a folder of its own and judges exit code, message and files left."""

    entrain = None
    root = None

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        (self.folder / "model.toml").write_text(MODEL)

    def tearDown(self):
        self._folder.cleanup()

    def run_program(self, *arguments, timeout=120):
        return subprocess.run(
            [self.entrain, *map(str, arguments)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def expect_success(self, *arguments, timeout=120):
        result = self.run_program(*arguments, timeout=timeout)
        self.assertEqual(result.returncode, 0, f"{arguments}\n{result.stdout}{result.stderr}")
        return result

    def expect_failure(self, code, words, *arguments, timeout=120):
        """The exit code, every word in the message, and no partial file anywhere."""
        result = self.run_program(*arguments, timeout=timeout)
        output = result.stdout + result.stderr
        self.assertEqual(result.returncode, code, f"{arguments}\n{output}")
        for word in words:
            self.assertIn(word, result.stderr, f"{arguments}\n{output}")
        partial = [str(p) for p in self.folder.rglob("*.partial*")]
        self.assertEqual(partial, [], "partial files were left")
        return result

    def python_without(self, package, module):
        """An interpreter that runs one of the program's Python modules and lacks a package."""
        (self.folder / f"{package}.py").write_text("raise ImportError('none')")
        code = "import runpy, sys; sys.path.insert(0, '.')"
        code += f"; runpy.run_module('{module}', run_name='__main__')"
        script = self.folder / "lame-python"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}"\n')
        script.chmod(0o755)
        return str(script)

    def has_engine(self):
        report = json.loads(self.expect_success("env", "--json").stdout)
        return not report["engine"].startswith("none")

    def make_data(self, count=12, name="train-000000.tar", images=None):
        """A shard with text-only, single- and multi-image samples, and its index train.csv."""
        choose = images or (lambda number: (1, 0, 2, 1)[number % 4])
        write_shard(self.folder / name, [sample(i, choose(i)) for i in range(count)])
        self.expect_success("index", name, "-o", "train.csv", "--model", "model.toml")

    def write_run(self, **changes):
        settings = {"steps": 2, "global_batch": 8, "vision": 1, "llm": 1, "replicas": 1} | changes
        (self.folder / "run.toml").write_text(
            f"""
output = "run"
steps = {settings["steps"]}
model = "model.toml"
[data]
train = "train.csv"
validation = "train.csv"
global_batch = {settings["global_batch"]}
[plan]
replicas = {settings["replicas"]}
num_slots = 3
evaluations = 20
[plan.stages]
vision = {settings["vision"]}
llm = {settings["llm"]}
[optimizer]
warmup_steps = 1
[validation]
samples = 4
[execution]
deadline_seconds = 20
"""
        )


class Selection(unittest.TestLoader):
    """Loads tests as --gtest_filter does: those of `a:b`, or with `-a:b` all others."""

    def __init__(self, selected):
        super().__init__()
        self.inverse = selected.startswith("-")
        self.names = set(filter(None, selected.removeprefix("-").split(":")))
        self.known = set()

    def getTestCaseNames(self, case):
        names = super().getTestCaseNames(case)
        self.known.update(names)
        return [name for name in names if not self.names or (name in self.names) != self.inverse]

    def loadTestsFromModule(self, *arguments, **options):
        tests = super().loadTestsFromModule(*arguments, **options)
        unknown = self.names - self.known
        if unknown:
            raise SystemExit(f"--tests: there is no {', '.join(sorted(unknown))}")
        return tests


def options_parser():
    """Options of a test file: the program's path from the build, and which tests to run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--entrain", required=True, help="path of the entrain program")
    parser.add_argument("--root", required=True, help="repository root")
    parser.add_argument(
        "--tests", default="", help="names, as a:b; with a minus before, all others"
    )
    return parser


def run_tests(options, rest):
    """Runs the test file as its options say; `rest` are unittest's own arguments."""
    CliTest.entrain = str(Path(options.entrain).resolve())
    CliTest.root = Path(options.root).resolve()
    unittest.main(
        module="__main__",
        argv=[sys.argv[0], *rest],
        testLoader=Selection(options.tests),
        verbosity=2,
    )


def main():
    """Entry point of a test file."""
    run_tests(*options_parser().parse_known_args())
