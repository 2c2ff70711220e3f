"""The scripts of examples/trainers on Gloo processes: losses of the trainer's own sampler, nothing lost.

Called as `trainers_test.py [TEST …]` by a Python with the package, torch, transformers and the trainers
(tools/requirements-parity.txt); what is not installed is skipped visibly.
"""

import collections
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "examples" / "trainers"
NEEDED = ("torch", "transformers", "datasets")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
# Of losses near 6, printed with seven digits: sums of a step in another order.
TOLERANCE = 3e-6
SAMPLES = 96


def needs(*modules):
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"{', '.join(missing)} not installed")


def run(script, *arguments, ranks=2):
    """The JSON that rank 0 prints."""
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    done = subprocess.run(
        [sys.executable, *launch, str(SCRIPTS / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if re.match(r"\[[0-9\]]|\{\"", line)]
    if done.returncode != 0 or not lines:
        raise AssertionError(f"{script} {arguments}: {done.returncode}\n{done.stderr[-3000:]}")
    return json.loads(lines[-1])


@unittest.skipIf(MISSING, f"{', '.join(MISSING)} not installed")
class Losses(unittest.TestCase):
    """In the same global batches, against the trainer's own sampler."""

    @classmethod
    def setUpClass(cls):
        cls.plain = run("loops.py", "--sampler", "own", "--wrap", "ddp")["losses"]

    def expect_same(self, losses, other=None):
        other = self.plain if other is None else other
        self.assertEqual(len(losses), len(other))
        for step, (mine, theirs) in enumerate(zip(losses, other, strict=True)):
            self.assertLess(abs(mine - theirs), TOLERANCE, f"step {step}: {losses}\n{other}")

    def test_of_ddp(self):
        self.expect_same(run("loops.py", "--wrap", "ddp")["losses"])

    def test_of_fsdp2(self):
        self.expect_same(run("loops.py", "--wrap", "fsdp2")["losses"])

    @needs("accelerate")
    def test_of_accelerate(self):
        self.expect_same(run("loops.py", "--wrap", "accelerate")["losses"])

    def of_hugging_face(self, trainer):
        with tempfile.TemporaryDirectory() as folder:
            given = ("--trainer", trainer, "--output", folder)
            own = run("hf_trainer.py", "--sampler", "own", *given)
            self.expect_same(own)  # so that what is compared is the mean over a step's tokens
            self.expect_same(run("hf_trainer.py", *given), own)

    @needs("accelerate")
    def test_of_trainer(self):
        self.of_hugging_face("hf")

    @needs("trl")
    def test_of_sft_trainer(self):
        self.of_hugging_face("sft")

    @needs("torchtitan")
    def test_of_torchtitan(self):
        self.expect_same(run("titan_loader.py")["losses"])

    @needs("megatron")
    def test_of_megatron(self):
        self.expect_same(run("megatron_external.py")["losses"])

    @needs("veomni")
    def test_of_veomni(self):
        self.expect_same(run("veomni_loader.py")["losses"])


@unittest.skipIf(MISSING, f"{', '.join(MISSING)} not installed")
class Samples(unittest.TestCase):
    @needs("accelerate")
    def test_come_once_an_epoch_when_a_trainer_resumes_at_other_ranks(self):
        """Three epochs of six steps, begun on two ranks, stopped in the second epoch, ended on one."""
        with tempfile.TemporaryDirectory() as folder:
            trained = []
            for attempt, (ranks, accumulation, first, last) in enumerate(
                [(2, 2, 0, 8), (1, 4, 8, 11), (4, 1, 11, 18)]
            ):
                seen = f"{folder}/seen{attempt}"
                more = ["--resume"] if attempt else []
                losses = run(
                    "hf_trainer.py", "--epochs", 3, "--accumulation", accumulation, "--seen", seen,
                    "--output", f"{folder}/run", "--save-steps", 1, "--stop-after", last, *more,
                    ranks=ranks,
                )  # fmt: skip
                self.assertEqual(len(losses), last)
                for rank in range(ranks):
                    batches = Path(f"{seen}.{rank}").read_text().split()
                    # The trainer reads a microbatch ahead of the step at which it stops.
                    for batch in batches[: (last - first) * accumulation]:
                        trained += map(int, batch.split(","))
        counts = collections.Counter(trained)
        self.assertEqual(counts, dict.fromkeys(range(SAMPLES), 3))


@unittest.skipIf(MISSING, f"{', '.join(MISSING)} not installed")
class Log(unittest.TestCase):
    @needs("accelerate")
    def test_of_a_trainer_gives_an_audit_its_costs(self):
        sys.path.insert(0, str(SCRIPTS))
        from tiny_vlm import TinyData, tiny_model

        import entrain

        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log.jsonl"
            run("hf_trainer.py", "--measured", log, "--output", folder, ranks=1)
            data = TinyData(SAMPLES)
            entries = [json.loads(line) for line in log.read_text().splitlines()]
            self.assertEqual(len(entries), SAMPLES // 4)
            tokens = sorted(n for entry in entries for n in entry["tokens"])
            self.assertEqual(tokens, sorted(data.tokens(i) for i in range(SAMPLES)))
            images = sorted(tuple(size) for entry in entries for size in entry["images"])
            known = sorted(tuple(size) for row in data.rows() for size in row["images"])
            self.assertEqual(images, known)
            index = entrain.Index.from_rows(data.rows())
            found = entrain.audit(index, tiny_model(), ranks=2, microbatch=2, measured=log)
            self.assertIn(f"Measured on {len(entries)} microbatches", found.findings[-1])
            print(found.findings[-1])


if __name__ == "__main__":
    unittest.main()
