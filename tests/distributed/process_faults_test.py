"""Ranks and launchers that are killed, stopped and cut off: the run goes on as if nothing had been.

ENTRAIN_KILLS sets how many faults the test makes (default 24; `make check`: 8), ENTRAIN_KILL_SEED
their seed.
"""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import network_hosts
import process_fixture
from process_fixture import ProcessTest, history, is_running, ranks_of, rows

PROCESSES = 4
STEPS = 900
SAMPLES = 12
DEADLINE = 8
STOPPED = 75

# Kind of fault → its share of all.
KINDS = {
    "SIGKILL to a rank": 30,
    "SIGKILL to torchrun": 16,
    "SIGTERM to a rank": 14,
    "SIGTERM to all ranks": 14,
    "SIGTERM to torchrun": 10,
    "SIGSTOP to a rank, then SIGCONT": 6,
    "SIGSTOP to a rank for good": 4,
    "network gone": 6,
}
ON_TWO_HOSTS = "network gone"


def drawn_kinds(count, chance):
    """`count` kinds in random order: each by its share, and at least once where there is room."""
    kinds = [kind for kind, share in KINDS.items() for _ in range(max(1, share * count // 100))]
    while len(kinds) < count:
        kinds.append(next(iter(KINDS)))
    chance.shuffle(kinds)
    return kinds[:count]


class Faults(ProcessTest):
    def setUp(self):
        super().setUp()
        self.make_data(count=SAMPLES)

    def launch(self, run, *settings, restarts):
        values = [f"output={run}", *settings]
        program = ["-m", "entrain", "train", "run.toml"]
        program += [part for value in values for part in ("--set", value)]
        log = (self.folder / f"{run}.log").open("w")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            self.torchrun(PROCESSES, *program, restarts=restarts),
            cwd=self.folder,
            env=self.environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        for pid in ranks_of(process.pid).values():
            os.kill(pid, signal.SIGKILL)
        if process.poll() is None:
            process.kill()
        process.wait()

    def wait_for(self, process, holds, seconds=300):
        """Until the condition holds; false when the run ended before."""
        end = time.monotonic() + seconds
        while process.poll() is None:
            if holds():
                return True
            self.assertLess(time.monotonic(), end, "nothing happens")
            time.sleep(0.01)
        return False

    def size(self, run):
        path = run / "metrics.jsonl"
        return path.stat().st_size if path.exists() else 0

    def wait_until_it_trains(self, launchers, run, count):
        """All ranks are there and rows come; false when the run ended before."""

        def ranks():
            return [pid for launcher in launchers for pid in ranks_of(launcher.pid).values()]

        if not self.wait_for(launchers[0], lambda: len(ranks()) == count):
            return False
        before = self.size(run)
        # A resumed run cuts the file before its first row.
        return self.wait_for(launchers[0], lambda: self.size(run) != before)

    def strike(self, kind, process, chance):
        """Does it; returns when, or None where the run has ended."""
        ranks = ranks_of(process.pid)
        if len(ranks) < PROCESSES or process.poll() is not None:
            return None
        one = ranks[chance.randrange(PROCESSES)]
        struck = time.monotonic()
        if kind == "SIGKILL to a rank":
            os.kill(one, signal.SIGKILL)
        elif kind == "SIGTERM to a rank":
            os.kill(one, signal.SIGTERM)
        elif kind == "SIGTERM to all ranks":
            for pid in ranks.values():
                os.kill(pid, signal.SIGTERM)
        elif kind == "SIGTERM to torchrun":
            process.terminate()
            process.wait(timeout=60)
        elif kind == "SIGKILL to torchrun":
            process.kill()
            process.wait()
        elif kind == "SIGSTOP to a rank for good":
            os.kill(one, signal.SIGSTOP)
        else:
            os.kill(one, signal.SIGSTOP)
            time.sleep(1 + chance.random() * (DEADLINE / 2 - 1))
            os.kill(one, signal.SIGCONT)
            return struck
        if process.poll() is None:  # torchrun starts all ranks again
            self.wait_for(
                process, lambda: not set(ranks.values()) & set(ranks_of(process.pid).values())
            )
        return struck

    def torchrun_faults(self, kinds, settings, chance, results):
        """Runs until every fault of `kinds` has struck; each that ends is the whole run."""
        left = list(kinds)
        number = 0
        while left:
            number += 1
            run = self.folder / f"run-{number}"
            process = self.launch(run.name, *settings, restarts=1000)
            ended = False
            while not ended:
                struck = None
                if left:
                    kind = left[-1]
                    early = kind == "SIGKILL to a rank" and chance.random() < 0.25
                    trains = self.wait_for(
                        process, lambda p=process: len(ranks_of(p.pid)) == PROCESSES
                    ) and (early or self.wait_until_it_trains([process], run, PROCESSES))
                    if trains:
                        time.sleep(chance.random() * 1.0)
                        struck = self.strike(kind, process, chance)
                if struck is None:
                    process.wait(timeout=600)
                    ended = True
                    continue
                left.pop()
                if process.poll() is not None:  # the same command, at once
                    process = self.launch(run.name, *settings, restarts=1000)
                if self.wait_until_it_trains([process], run, PROCESSES):
                    results.append((kind, time.monotonic() - struck))
                else:
                    results.append((kind, None))
            log = (self.folder / f"{run.name}.log").read_text()
            self.assertEqual(process.returncode, 0, log[-5000:])
            self.expect_as_whole(run)
        return number

    def network_faults(self, count, settings, chance, results):
        """Two hosts of two ranks each; the cable is out until all ranks are gone."""
        network = network_hosts.TwoHosts()
        self.addCleanup(network.close)
        run = self.folder / "run-hosts"
        values = [f"output={run.name}", *settings, "execution.deadline_seconds=5"]
        program = ["-m", "entrain", "train", "run.toml"]
        program += [part for value in values for part in ("--set", value)]
        agents = self.start_agents(2, 2, *program, restarts=1000, rejoin=True, hosts=network.hosts)
        for _ in range(count):
            if not self.wait_until_it_trains(agents, run, PROCESSES):
                break
            time.sleep(chance.random())
            ranks = [pid for agent in agents for pid in ranks_of(agent.pid).values()]
            network.hosts[1].plug("down")
            cut = time.monotonic()
            while any(map(is_running, ranks)):
                self.assertLess(time.monotonic() - cut, 60, "ranks hang without a network")
                time.sleep(0.02)
            network.hosts[1].plug("up")
            self.wait_until_it_trains(agents, run, PROCESSES)
            results.append((ON_TWO_HOSTS, time.monotonic() - cut))
        codes, outputs = self.finish_agents(agents, timeout=600)
        self.assertEqual(codes, [0, 0], outputs)
        self.expect_as_whole(run)

    def expect_as_whole(self, run):
        self.assertEqual(history(run), history(self.folder / "whole"))
        self.assertTrue(self.weights(run.name) == self.weights("whole"), "weights differ")
        self.expect_success("checkpoint", "verify", run.name)
        self.assertEqual(list(run.glob("run.lock*")), [])
        drawn = [name for row in rows(run) if "batch" in row for name in row["batch"]]
        for first in range(0, len(drawn) - SAMPLES + 1, SAMPLES):
            self.assertEqual(len(set(drawn[first : first + SAMPLES])), SAMPLES, "not each once")

    def test_kills_and_stops_leave_the_run_as_it_would_have_been(self):
        wanted = int(os.environ.get("ENTRAIN_KILLS", "24"))
        seed = int(os.environ.get("ENTRAIN_KILL_SEED", "11"))
        chance = random.Random(seed)
        self.write_run(steps=STEPS, llm=1, replicas=2, global_batch=4)
        settings = ["checkpoint.every_steps=7", "execution.log_samples=true"]
        settings += ["validation.every=100", f"execution.deadline_seconds={DEADLINE}"]
        self.train_threads("output=whole", *settings)
        kinds = drawn_kinds(wanted, chance)
        cuts = kinds.count(ON_TWO_HOSTS)
        missing = network_hosts.why_not()
        results = []
        begin = time.monotonic()
        others = [kind for kind in kinds if kind != ON_TWO_HOSTS]
        runs = self.torchrun_faults(others, settings, chance, results)
        if missing:
            print(f"{ON_TWO_HOSTS}: left out, {missing}")
        elif cuts:
            self.network_faults(cuts, settings, chance, results)
        self.assertEqual(len(results), wanted - (cuts if missing else 0))
        print(
            f"{len(results)} faults in {time.monotonic() - begin:.0f} s, {runs} runs, seed {seed}"
        )
        print(f"{'kind':34} {'count':>5}  training again after (median, longest)")
        for kind in KINDS:
            seconds = sorted(took for name, took in results if name == kind and took)
            count = sum(name == kind for name, _ in results)
            times = f"{seconds[len(seconds) // 2]:5.1f} s, {seconds[-1]:5.1f} s" if seconds else "-"
            print(f"{kind:34} {count:>5}  {times}")

    def test_torchrun_killed_takes_its_ranks_along_and_the_next_run_waits_for_them(self):
        self.write_run(steps=100_000, llm=1, replicas=2)
        settings = ["checkpoint.every_steps=1"]
        process = self.launch("run", *settings, restarts=0)
        run = self.folder / "run"
        self.assertTrue(self.wait_for(process, lambda: len(rows(run)) > 3))
        old = list(ranks_of(process.pid).values())
        process.kill()
        process.wait()
        killed = time.monotonic()
        again = self.launch("run", *settings, restarts=0)
        while any(map(is_running, old)):
            self.assertLess(time.monotonic() - killed, 10, "ranks go on without their launcher")
            time.sleep(0.02)
        print(f"ranks gone {time.monotonic() - killed:.1f} s after torchrun")
        reached = len(rows(run))
        self.assertTrue(self.wait_until_it_trains([again], run, PROCESSES))
        self.assertTrue(self.wait_for(again, lambda: len(rows(run)) > reached + 3))
        steps = [row["step"] for row in rows(run) if "loss" in row]
        self.assertEqual(steps, list(range(len(steps))), "rows are lost or twice")
        log = (self.folder / "run.log").read_text()
        self.assertIn("resumed at step", log)
        self.end(again)

    def test_a_restart_does_not_overwrite_again(self):
        self.write_run(steps=300, llm=1, replicas=2)
        self.train_threads("output=run", "steps=3")
        self.train_threads("output=whole")
        settings = ["checkpoint.every_steps=1", "checkpoint.resume=never"]
        process = self.launch("run", *settings, restarts=3)
        run = self.folder / "run"
        self.assertTrue(self.wait_for(process, lambda: len(rows(run)) > 20))
        os.kill(ranks_of(process.pid)[1], signal.SIGKILL)
        process.wait(timeout=120)
        log = (self.folder / "run.log").read_text()
        self.assertEqual(process.returncode, 0, log[-3000:])
        self.assertIn("resumed at step", log)
        self.assertEqual([path.name for path in run.glob("earlier-*")], ["earlier-1"])
        self.assertEqual(len(rows(run / "earlier-1")), 4)
        self.assertEqual(history(run), history(self.folder / "whole"))
        self.assertTrue(list(run.glob("dumps/failure-1/rank-*.json")), "the failure is not kept")
        diagnosis = self.run_program("doctor", "run").stdout
        self.assertIn("died: rank 1 left no dump", diagnosis)
        self.assertIn("from run/dumps/failure-1", diagnosis)

    def test_ranks_that_are_stopped_exit_with_75(self):
        self.write_run(steps=100_000, llm=1, replicas=2)
        process = self.launch("run", restarts=0)
        run = self.folder / "run"
        self.assertTrue(self.wait_for(process, lambda: len(rows(run)) > 3))
        for pid in ranks_of(process.pid).values():
            os.kill(pid, signal.SIGTERM)
        process.wait(timeout=60)
        log = (self.folder / "run.log").read_text()
        self.assertEqual(process.returncode, 1, "torchrun's own code")
        codes = re.findall(r"exitcode  : (\S+)", log)
        self.assertEqual(codes, [str(STOPPED)] * PROCESSES, log[-3000:])
        self.assertIn("the same command continues from there", log)
        self.assertTrue((run / "checkpoints/latest").exists())

    def test_a_signal_while_python_starts_is_taken(self):
        self.write_run(steps=100_000, llm=1, replicas=2)
        process = self.launch("run", restarts=0)
        self.assertTrue(self.wait_for(process, lambda: len(ranks_of(process.pid)) == PROCESSES))
        ranks = ranks_of(process.pid)
        time.sleep(0.5)
        for pid in ranks.values():
            os.kill(pid, signal.SIGTERM)
        sent = time.monotonic()
        process.wait(timeout=30)
        self.assertLess(time.monotonic() - sent, 10)
        log = (self.folder / "run.log").read_text()
        self.assertRegex(log, r"exitcode  : (143|-15)", log[-3000:])
        self.assertEqual(rows(self.folder / "run"), [])

    def test_a_lost_rank_ends_the_wait_for_its_part_of_a_checkpoint(self):
        """Two ranks: nobody else is there who could notice, and the deadline is far."""
        self.write_run(steps=100_000, llm=1, replicas=1)
        settings = ["checkpoint.every_steps=1", "execution.deadline_seconds=300"]
        values = ["output=run", *settings]
        program = ["-m", "entrain", "train", "run.toml"]
        program += [part for value in values for part in ("--set", value)]
        process = self.start(self.torchrun(2, *program))
        self.addCleanup(self.end_agent, process)
        run = self.folder / "run"
        worst = 0.0
        self.wait_until([process], lambda: len(rows(run)) > 3)
        ranks = ranks_of(process.pid)
        os.kill(ranks[1], signal.SIGKILL)
        killed = time.monotonic()
        while is_running(ranks[0]):
            self.assertLess(time.monotonic() - killed, 20, "rank 0 waits for a rank that is gone")
            time.sleep(0.02)
        worst = max(worst, time.monotonic() - killed)
        output = process.communicate(timeout=60)[0]
        self.assertIn("lost rank 1", output)
        self.assertNotIn("frame #", output)
        print(f"rank 0 gone {worst:.1f} s after rank 1")

    def test_a_rank_that_hangs_stops_all_within_the_deadline(self):
        self.write_run(steps=100_000, llm=1, replicas=2)
        process = self.launch("run", "execution.deadline_seconds=8", restarts=0)
        run = self.folder / "run"
        self.assertTrue(self.wait_for(process, lambda: len(rows(run)) > 3))
        ranks = ranks_of(process.pid)
        os.kill(ranks[1], signal.SIGSTOP)
        stopped = time.monotonic()
        others = {pid for rank, pid in ranks.items() if rank != 1}
        self.wait_for(process, lambda: not others & set(ranks_of(process.pid).values()))
        self.assertLess(time.monotonic() - stopped, 20)
        logs = [(run / "logs" / f"rank-{rank}.log").read_text() for rank in (0, 2, 3)]
        # Who of those that wait in turn comes first is chance; all know at whom the chain ends.
        self.assertRegex(logs[0], r"no .* within 8 s; .*rank 1 is not known to wait")
        diagnosis = self.run_program("doctor", "run")
        self.assertIn("stuck: rank 1 left no dump", diagnosis.stdout)
        for log in logs:  # who waits in turn may reach its deadline before it hears of another
            self.assertRegex(log, "within 8|stopped because another rank failed")


if __name__ == "__main__":
    process_fixture.main()
