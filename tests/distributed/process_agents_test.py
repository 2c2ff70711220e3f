"""Ranks that are processes of two torchrun agents, as two hosts have them: one folder, one machine."""

import os
import signal
import time

import process_fixture
from process_fixture import ProcessTest, history, ranks_of


class Agents(ProcessTest):
    def setUp(self):
        super().setUp()
        self.make_data()

    def test_two_agents_are_bitwise_threads(self):
        """As two hosts have them: 2 agents, 2 ranks each, one folder; replicas and lanes across."""
        for llm, replicas in ((3, 1), (1, 2)):
            self.write_run(steps=4, llm=llm, replicas=replicas)
            anew = "checkpoint.resume=never"  # the folders hold the pair before
            self.train_threads("output=threads", anew)
            program = ["-m", "entrain", "train", "run.toml", "--set", "output=processes"]
            program += ["--set", anew]
            codes, outputs = self.finish_agents(self.start_agents(2, 2, *program))
            self.assertEqual(codes, [0, 0], outputs)
            self.assertIn("3/4", outputs[0])
            self.assertNotIn("3/4", outputs[1])
            threads, processes = (self.folder / name for name in ("threads", "processes"))
            self.assertGreater(len(history(threads)), 4)
            self.assertEqual(history(processes), history(threads))
            self.assertTrue(self.weights("processes") == self.weights("threads"), "weights differ")

    def test_a_rank_killed_under_one_agent_ends_both(self):
        self.write_run(steps=100_000, llm=3)
        agents = self.start_agents(2, 2, "-m", "entrain", "train", "run.toml")
        self.wait_for_rows(agents, 3)
        os.kill(ranks_of(agents[1].pid)[2], signal.SIGKILL)
        killed = time.monotonic()
        codes, outputs = self.finish_agents(agents)
        self.assertLess(time.monotonic() - killed, 60)
        self.assertTrue(all(codes), outputs)
        self.assertIn("lost rank 2", outputs[0])
        self.assertIn("exitcode  : -9", outputs[1])
        for rank in (0, 1):
            log = (self.folder / "run" / "logs" / f"rank-{rank}.log").read_text()
            self.assertIn("lost rank 2", log)

    def test_agents_that_meet_anew_go_on_from_the_checkpoint(self):
        """One rank an agent: the killed one's counts a restart, the other's sees none of its own."""
        self.write_run(steps=200)
        self.train_threads("output=whole")
        program = ["-m", "entrain", "train", "run.toml", "--set", "checkpoint.every_steps=5"]
        agents = self.start_agents(2, 1, *program, restarts=3, rejoin=True)
        self.wait_for_rows(agents, 9)
        self.wait_until(agents, lambda: (self.folder / "run/checkpoints/latest").exists())
        by_rank = {rank: pid for agent in agents for rank, pid in ranks_of(agent.pid).items()}
        os.kill(by_rank[1], signal.SIGKILL)
        codes, outputs = self.finish_agents(agents)
        self.assertEqual(codes, [0, 0], outputs)
        self.assertTrue(any("resumed at step" in output for output in outputs), outputs)
        self.assertEqual(history(self.folder / "run"), history(self.folder / "whole"))
        self.assertTrue(self.weights("run") == self.weights("whole"), "weights differ")


if __name__ == "__main__":
    process_fixture.main()
