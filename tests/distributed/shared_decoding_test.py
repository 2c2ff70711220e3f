"""Lanes of several ranks under torchrun: one decode for those of a host, and what may befall it."""

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import process_fixture
from process_fixture import (
    ProcessTest,
    history,
    ranks_of,
    rows,
    validated_patches,
    whole_lines,
)

DEGREES = ["plan.tensor_parallel.llm=2", "plan.tensor_parallel.vision=2"]
PATIENT = "data.feed_deadline_s=60"  # so that a busy machine does not decode twice
STOPS = 5
VALIDATION = ["validation.every=4", "validation.samples=16"]  # three times two batches
FOREVER = 1_000_000  # steps of a run that is told to stop


def steps_of(run, begin=0):
    return [row for row in rows(run, begin) if "loss" in row]


class SharedDecoding(ProcessTest):
    def setUp(self):
        super().setUp()
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.make_data(count=16)
        model = self.folder / "model.toml"
        text = model.read_text().replace("num_kv_heads = 1", "num_kv_heads = 2")
        model.write_text(text.replace("num_heads = 2", "num_heads = 4", 1))  # of vision
        self.write_run(steps=12)

    def environment(self):
        return super().environment() | {"TMPDIR": str(self.temporary)}

    def sockets(self):
        """Folders of lanes' sockets, of this test's runs."""
        return list(self.temporary.glob("entrain-*"))

    def program(self, *settings):
        values = [part for setting in settings for part in ("--set", setting)]
        return ["-m", "entrain", "train", "run.toml", *values]

    def patches(self, run):
        """Of every step, how many were decoded by all ranks together."""
        return [row["decoded"]["patches"] for row in steps_of(self.folder / run)]

    def validated(self, run):
        return validated_patches(self.folder / run)

    def expect_equal(self, run, other):
        self.assertEqual(history(self.folder / run), history(self.folder / other))
        self.assertTrue(self.weights(run) == self.weights(other), "weights differ")

    def test_ranks_of_a_lane_decode_once(self):
        self.train_threads("output=threads", *VALIDATION, *DEGREES)
        self.assertEqual(len(self.validated("threads")), 3)
        self.assertGreater(min(self.validated("threads")), 0)
        for skip in ("stop", "skip-step"):
            checks = f"faults.on_bad_sample={skip}"
            output = self.expect_trained(
                4, f"output={skip}", checks, PATIENT, *VALIDATION, *DEGREES
            )
            self.assertNotIn("rank 0 is lost", output)
            self.expect_equal(skip, "threads")
            self.assertEqual(self.patches(skip), self.patches("threads"))
            self.assertEqual(self.validated(skip), self.validated("threads"))
            for row in steps_of(self.folder / skip):
                self.assertEqual(
                    row.get("shared"), 0.5
                )  # all that the second rank of each lane reads
        self.expect_trained(4, "output=alone", "data.share_decoding=false", *VALIDATION, *DEGREES)
        self.expect_equal("alone", "threads")
        self.assertEqual(self.patches("alone"), [2 * count for count in self.patches("threads")])
        self.assertEqual(
            self.validated("alone"), [2 * count for count in self.validated("threads")]
        )
        self.assertFalse(any("shared" in row for row in rows(self.folder / "alone")))
        self.assertEqual(self.sockets(), [])

    def test_every_host_of_a_lane_decodes_once(self):
        degrees = ["plan.tensor_parallel.llm=2", "plan.tensor_parallel.vision=4"]
        self.train_threads("output=threads", *degrees)
        # Of the four ranks that read images the second agent has one, which decodes for itself.
        agents = self.start_agents(2, 3, *self.program("output=run", PATIENT, *degrees))
        codes, outputs = self.finish_agents(agents)
        self.assertEqual(codes, [0, 0], outputs)
        self.expect_equal("run", "threads")
        self.assertEqual(self.patches("run"), [2 * count for count in self.patches("threads")])
        self.assertEqual(self.sockets(), [])

    def start_endless(self, *settings):
        self.write_run(steps=FOREVER, global_batch=16)
        settings = [*settings, "execution.trace_step=-1", *VALIDATION, *DEGREES]
        [agent] = self.start_agents(1, 4, *self.program(*settings))
        self.wait_for_rows([agent], 3)
        return agent

    def is_fed_again(self, begin):
        """Of rows from a byte on; the first steps may have been sent before."""
        later = steps_of(self.folder / "run", begin)[3:]
        return any(row.get("shared") == 0.5 for row in later)

    def test_a_first_rank_that_stands_still_delays_the_others_and_changes_nothing(self):
        agent = self.start_endless("data.feed_deadline_s=0.3")
        self.assertEqual(len(self.sockets()), 4)  # for each of two lanes training, validation
        for folder in self.sockets():
            self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        ranks = ranks_of(agent.pid)
        for _ in range(STOPS):
            os.kill(ranks[0], signal.SIGSTOP)
            time.sleep(1)
            os.kill(ranks[0], signal.SIGCONT)
            begin = whole_lines(self.folder / "run")
            self.wait_until([agent], lambda begin=begin: self.is_fed_again(begin))
        os.kill(ranks[0], signal.SIGTERM)
        _, outputs = self.finish_agents([agent])
        self.assertIn("exitcode  : 75", outputs[0])
        self.assertGreaterEqual(outputs[0].count("feed rank 0 is lost: silent for 0.3 s"), STOPS)
        self.assertGreaterEqual(outputs[0].count("fed by rank 0"), STOPS)
        self.assertEqual(self.sockets(), [])
        steps = len(steps_of(self.folder / "run"))
        changes = [f"steps={FOREVER}", "execution.trace_step=-1", "output=threads"]
        changes += [*VALIDATION, *DEGREES]
        values = [part for setting in changes for part in ("--set", setting)]
        threads = self.start([self.entrain, "train", "run.toml", *values])
        self.addCleanup(self.end_agent, threads)
        self.wait_for_rows([threads], steps + 1, run="threads", seconds=600)
        os.kill(threads.pid, signal.SIGTERM)
        self.finish_agents([threads])
        alike = [history(self.folder / run)[:steps] for run in ("run", "threads")]
        self.assertEqual(alike[0], alike[1])

    def test_a_first_rank_that_is_killed_ends_the_run_and_leaves_no_socket(self):
        agent = self.start_endless()
        os.kill(ranks_of(agent.pid)[0], signal.SIGKILL)
        codes, outputs = self.finish_agents([agent])
        self.assertNotEqual(codes, [0], outputs)
        self.assertIn("lost rank 0", outputs[0])
        self.assertEqual(self.sockets(), [])

    def test_without_a_folder_for_sockets_each_rank_decodes(self):
        deep = self.temporary / ("deep-" + 100 * "x")
        deep.mkdir()
        self.temporary = deep
        self.train_threads("output=threads", *DEGREES)
        output = self.expect_trained(4, "output=run", *DEGREES)
        self.assertIn("rank 0: other ranks of the lane decode for themselves", output)
        self.expect_equal("run", "threads")
        self.assertEqual(self.sockets(), [])


if __name__ == "__main__":
    process_fixture.main()
