"""Ranks that are killed and ranks that hang: the run under torchrun goes on as if nothing had been.

ENTRAIN_KILLS sets how many kills the test makes (default 30), ENTRAIN_KILL_SEED their seed.
"""

import os
import random
import signal
import statistics
import subprocess
import time

import process_fixture
from process_fixture import ProcessTest, history, ranks_of, rows

PROCESSES = 4
STEPS = 900
SAMPLES = 12


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

    def kill_one(self, process, run, chance):
        """Kills a random rank at a random moment of its life; returns what it cost, or None."""
        if not self.wait_for(process, lambda: len(ranks_of(process.pid)) == PROCESSES):
            return None
        if chance.random() < 0.75:  # once it trains; else while it starts
            before = len(rows(run))
            if not self.wait_for(process, lambda: len(rows(run)) > before):
                return None
        time.sleep(chance.random() * 1.5)
        ranks = ranks_of(process.pid)
        if len(ranks) < PROCESSES or process.poll() is not None:
            return None
        rank = chance.randrange(PROCESSES)
        reached = len(rows(run))
        os.kill(ranks[rank], signal.SIGKILL)
        killed = time.monotonic()
        old = set(ranks.values())
        self.wait_for(process, lambda: not old & set(ranks_of(process.pid).values()))
        stopped = time.monotonic() - killed
        return {"rank": rank, "rows": reached, "stopped_s": stopped, "killed": killed}

    def test_kills_leave_the_run_as_it_would_have_been(self):
        wanted = int(os.environ.get("ENTRAIN_KILLS", "30"))
        seed = int(os.environ.get("ENTRAIN_KILL_SEED", "11"))
        chance = random.Random(seed)
        self.write_run(steps=STEPS, llm=1, replicas=2, global_batch=4)
        settings = ["checkpoint.every_steps=7", "execution.log_samples=true"]
        settings.append("validation.every=100")
        self.train_threads("output=whole", *settings)
        whole = history(self.folder / "whole")
        kills = []
        runs = 0
        while len(kills) < wanted:
            runs += 1
            run = self.folder / f"run-{runs}"
            process = self.launch(run.name, *settings, restarts=10 * wanted)
            while len(kills) < wanted and process.poll() is None:
                kill = self.kill_one(process, run, chance)
                if kill is not None:
                    kills.append(kill)
            process.wait(timeout=600)
            log = (self.folder / f"{run.name}.log").read_text()
            self.assertEqual(process.returncode, 0, log[-5000:])
            self.assertEqual(history(run), whole)
            self.assertTrue(self.weights(run.name) == self.weights("whole"), "weights differ")
            self.expect_success("checkpoint", "verify", run.name)
        drawn = [name for row in rows(run) if "batch" in row for name in row["batch"]]
        for first in range(0, len(drawn) - SAMPLES + 1, SAMPLES):
            self.assertEqual(len(set(drawn[first : first + SAMPLES])), SAMPLES, "not each once")
        by_rank = [sum(kill["rank"] == rank for kill in kills) for rank in range(PROCESSES)]
        stopped = [kill["stopped_s"] for kill in kills]
        print(
            f"{len(kills)} kills (by rank {by_rank}, seed {seed}) in {runs} runs of {STEPS} steps; "
            f"all others stopped after {statistics.median(stopped):.1f} s (median), "
            f"{max(stopped):.1f} s (longest)"
        )

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
        for log in logs:  # who waits in turn may reach its deadline before it hears of another
            self.assertRegex(log, "within 8|stopped because another rank failed")


if __name__ == "__main__":
    process_fixture.main()
