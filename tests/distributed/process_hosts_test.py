"""Ranks on two hosts: the network between them whole, cut for a while, or for long."""

import os
import signal
import sys
import time
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))
import network_hosts
import process_fixture
from process_fixture import ProcessTest, history, is_running, ranks_of, rows

SKIPPED = 77  # ctest's word for it


class Hosts(ProcessTest):
    def setUp(self):
        super().setUp()
        self.make_data()
        self.network = network_hosts.TwoHosts()
        self.addCleanup(self.network.close)

    def launch(self, processes, *settings, restarts=0, rejoin=False):
        values = [part for setting in settings for part in ("--set", setting)]
        program = ["-m", "entrain", "train", "run.toml", *values]
        return self.start_agents(
            2, processes, *program, restarts=restarts, rejoin=rejoin, hosts=self.network.hosts
        )

    def expect_as_whole(self):
        self.assertEqual(history(self.folder / "run"), history(self.folder / "whole"))
        self.assertTrue(self.weights("run") == self.weights("whole"), "weights differ")

    def test_runs_are_bitwise_those_of_threads(self):
        """Edges across the cable, then replicas; hosts found by their names."""
        for llm, replicas, processes in ((3, 1, 2), (1, 2, 2)):
            self.write_run(steps=4, llm=llm, replicas=replicas)
            self.train_threads("output=whole")
            codes, outputs = self.finish_agents(self.launch(processes))
            self.assertEqual(codes, [0, 0], outputs)
            self.expect_as_whole()
            for folder in ("run", "whole"):
                os.rename(self.folder / folder, self.folder / f"{folder}-{llm}")

    def test_a_short_cut_is_waited_out(self):
        """No longer than the deadline: TCP sends again what was lost, and nothing is different."""
        self.write_run(steps=400, llm=3)
        self.train_threads("output=whole")
        agents = self.launch(2)
        self.wait_for_rows(agents, 3)
        self.network.hosts[1].plug("down")
        time.sleep(1)  # for the step that was under way
        stood = len(rows(self.folder / "run"))
        time.sleep(2)
        self.assertEqual(len(rows(self.folder / "run")), stood, "the cut did not hold the run")
        self.assertLess(stood, 400, "the run had ended before the cable was pulled")
        self.network.hosts[1].plug("up")
        codes, outputs = self.finish_agents(agents)
        self.assertEqual(codes, [0, 0], outputs)
        self.expect_as_whole()

    def cut_until_all_ranks_are_gone(self, agents):
        """Seconds that it took."""
        ranks = [pid for agent in agents for pid in ranks_of(agent.pid).values()]
        self.network.hosts[1].plug("down")
        cut = time.monotonic()
        while any(map(is_running, ranks)):
            self.assertLess(time.monotonic() - cut, 60, "ranks hang without a network")
            time.sleep(0.02)
        return time.monotonic() - cut

    def test_a_long_cut_stops_both_hosts_at_the_deadline(self):
        """Also the host without the store, which answers its ranks no more."""
        self.write_run(steps=100_000, llm=3)
        agents = self.launch(2, "execution.deadline_seconds=5")
        self.wait_for_rows(agents, 3)
        seconds = self.cut_until_all_ranks_are_gone(agents)
        codes, outputs = self.finish_agents(agents)
        self.assertEqual(codes, [1, 1], outputs)
        for output in outputs:
            self.assertIn("within 5 s", output)
        for rank in range(4):
            log = (self.folder / "run" / "logs" / f"rank-{rank}.log").read_text()
            self.assertRegex(log, "within 5 s|stopped because another rank failed")
        print(f"all ranks of both hosts gone {seconds:.1f} s after the cut, deadline 5 s")

    def expect_to_go_on(self, act, **options):
        """A run with restarts meets `act`: it ends as the one that met nothing."""
        self.write_run(steps=200)
        self.train_threads("output=whole")
        settings = ["checkpoint.every_steps=5", "execution.deadline_seconds=5"]
        agents = self.launch(1, *settings, restarts=3, **options)
        self.wait_for_rows(agents, 9)
        self.wait_until(agents, lambda: (self.folder / "run/checkpoints/latest").exists())
        act(agents)
        codes, outputs = self.finish_agents(agents)
        self.assertEqual(codes, [0, 0], outputs)
        self.assertTrue(any("resumed at step" in output for output in outputs), outputs)
        self.expect_as_whole()

    def kill_rank_1(self, agents):
        by_rank = {rank: pid for agent in agents for rank, pid in ranks_of(agent.pid).items()}
        os.kill(by_rank[1], signal.SIGKILL)

    def cut_for_long(self, agents):
        stopped = self.cut_until_all_ranks_are_gone(agents)
        time.sleep(5)
        count = len(rows(self.folder / "run"))
        self.network.hosts[1].plug("up")
        mended = time.monotonic()
        self.wait_for_rows(agents, count + 1)
        again = time.monotonic() - mended
        print(f"stopped {stopped:.1f} s after the cut, training again {again:.1f} s after its end")

    def lose_a_host(self, agents):
        """Without a word, as power does; the same command is given on the host that replaces it."""
        here, there = (list(ranks_of(agent.pid).values()) for agent in agents)
        self.network.hosts[1].plug("down")
        lost = time.monotonic()
        for pid in [*there, agents[1].pid]:
            os.kill(pid, signal.SIGKILL)
        while any(map(is_running, here)):
            self.assertLess(time.monotonic() - lost, 60, "ranks wait for a host that is gone")
            time.sleep(0.02)
        print(f"the other host's ranks gone {time.monotonic() - lost:.1f} s after the loss")
        agents[1].communicate()
        self.network.hosts[1].plug("up")
        agents[1] = self.start(agents[1].args)
        self.addCleanup(self.end_agent, agents[1])

    @mock.patch.dict(os.environ, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
    def test_a_host_that_is_replaced_joins_the_run(self):
        """torch 2.13 tells newcomers of a later round no address without that variable."""
        self.expect_to_go_on(self.lose_a_host, rejoin=True)

    def test_agents_that_meet_anew_go_on_after_a_kill(self):
        self.expect_to_go_on(self.kill_rank_1, rejoin=True)

    def test_agents_by_node_rank_go_on_after_a_kill(self):
        self.expect_to_go_on(self.kill_rank_1)

    def test_agents_that_meet_anew_go_on_after_a_long_cut(self):
        self.expect_to_go_on(self.cut_for_long, rejoin=True)

    def test_agents_by_node_rank_go_on_after_a_long_cut(self):
        self.expect_to_go_on(self.cut_for_long)


if __name__ == "__main__":
    if missing := network_hosts.why_not():
        print(f"skipped: {missing}")
        sys.exit(SKIPPED)
    process_fixture.main()
