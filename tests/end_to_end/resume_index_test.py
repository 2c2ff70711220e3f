"""`entrain index` that was killed: the same command goes on, and its index is the same."""

import os
import random
import signal
import subprocess
import time

import cli_fixture
from cli_fixture import CliTest, sample, write_shard

SHARDS = 12


class ResumedIndex(CliTest):
    def setUp(self):
        super().setUp()
        for number in range(SHARDS):
            samples = [sample(1000 * number + i, (1, 0, 2)[i % 3]) for i in range(150)]
            write_shard(self.folder / f"s-{number:02d}.tar", samples)
        self.shards = [f"s-{number:02d}.tar" for number in range(SHARDS)]
        self.more = ["-m", "model.toml", "--threads", "2"]
        self.index("whole.csv")
        self.expected = (self.folder / "whole.csv").read_bytes()

    def index(self, output, *more):
        return self.expect_success("index", *self.shards, "-o", output, *self.more, *more)

    def kept(self, output="x.csv"):
        return sorted((self.folder / f"{output}.partial").glob("*.measured"))

    def kill(self, ready, output="x.csv", signals=signal.SIGKILL):
        """Starts the command and ends it as soon as `ready()`; whether it was still at work."""
        command = [self.entrain, "index", *self.shards, "-o", output, *self.more]
        process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and not ready():
            time.sleep(0.0005)
        process.send_signal(signals)
        process.wait()
        return process.returncode == -signals

    def test_it_goes_on_from_what_was_measured(self):
        killed = self.kill(lambda: len(self.kept()) >= 3)
        self.assertTrue(killed, "it was too fast to be killed")
        self.assertFalse((self.folder / "x.csv").exists())
        self.assertGreaterEqual(len(self.kept()), 3)
        # Measured files are not opened again: they would be refused.
        for shard in self.shards[:2]:
            stat = (self.folder / shard).stat()
            content = bytearray((self.folder / shard).read_bytes())
            content[:512] = b"x" * 512
            (self.folder / shard).write_bytes(content)
            self.set_time(shard, stat)
        said = self.index("x.csv")
        self.assertRegex(
            said.stdout + said.stderr, rf"\d+ of {SHARDS} files were measured by an earlier run"
        )
        self.assertEqual((self.folder / "x.csv").read_bytes(), self.expected)
        self.assertFalse((self.folder / "x.csv.partial").exists())

    def set_time(self, name, stat):
        os.utime(self.folder / name, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def test_it_may_be_killed_at_any_moment_and_again(self):
        choose = random.Random(4)
        kills = 0
        for _ in range(25):
            delay = time.monotonic() + choose.uniform(0, 0.12)
            kills += self.kill(lambda at=delay: time.monotonic() >= at)
            if (self.folder / "x.csv").exists():  # whole, or not there at all
                self.assertEqual((self.folder / "x.csv").read_bytes(), self.expected)
                (self.folder / "x.csv").unlink()
        self.assertGreater(kills, 3)
        self.index("x.csv")
        self.assertEqual((self.folder / "x.csv").read_bytes(), self.expected)
        self.assertFalse((self.folder / "x.csv.partial").exists())

    def test_what_changed_or_is_damaged_is_measured_again(self):
        self.assertTrue(self.kill(lambda: len(self.kept()) >= 4), "too fast to be killed")
        self.kept()[0].write_bytes(b"damaged")
        samples = [sample(500_000 + i, 1) for i in range(5)]
        write_shard(self.folder / self.shards[1], samples)
        self.index("fresh.csv")
        self.index("x.csv")
        fresh = (self.folder / "fresh.csv").read_bytes()
        self.assertEqual((self.folder / "x.csv").read_bytes(), fresh)
        self.assertNotEqual(fresh, self.expected)

    def test_a_refused_run_goes_on_where_it_stopped(self):
        broken = self.folder / self.shards[-1]
        broken.write_bytes(broken.read_bytes()[:5000])
        call = ["index", *self.shards, "-o", "x.csv", *self.more]
        result = self.run_program(*call)
        self.assertEqual(result.returncode, 2)
        self.assertIn("what was measured is kept in 'x.csv.partial'", result.stderr)
        self.assertFalse((self.folder / "x.csv").exists())
        said = self.expect_success(*call, "--damaged", "leave-out")
        self.assertIn("were measured by an earlier run", said.stdout + said.stderr)
        self.assertFalse((self.folder / "x.csv.partial").exists())


if __name__ == "__main__":
    cli_fixture.main()
