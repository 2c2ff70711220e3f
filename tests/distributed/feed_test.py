"""Runs whose samples another process decodes: on this host, on another, killed, stopped, cut off."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import network_hosts
import process_fixture
from process_fixture import ProcessTest, history, rows, validated_patches, whole_lines

TIMES = 20  # kills, and stops
FOREVER = 1_000_000  # steps of a run that is told to stop


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def shares(run, begin=0):
    """Of every step, which share of its pieces a feed decoded; of rows from a byte on."""
    return [row.get("fed", 0) for row in rows(run, begin) if "loss" in row]


class Feed(ProcessTest):
    def setUp(self):
        super().setUp()
        self.make_data(count=16)
        self.write_run(steps=12)

    def set(self, *settings):
        return [part for setting in settings for part in ("--set", setting)]

    def start_feed(self, listen, *options, host=None):
        """A feed that listens; its standard output is read up to there."""
        command = [self.entrain, "feed", "run.toml", "--listen", listen, "--workers", "2", *options]
        feed = self.start(host.command(command) if host else command)
        self.addCleanup(self.end_agent, feed)
        for line in feed.stdout:
            if "listens at" in line:
                return feed
        self.fail(f"the feed ended with {feed.wait()}")

    def start_training(self, *settings, host=None):
        command = [self.entrain, "train", "run.toml", "--overwrite", *self.set(*settings)]
        run = self.start(host.command(command) if host else command)
        self.addCleanup(self.end_agent, run)
        return run

    def end_training(self, run):
        """Told to stop; its output."""
        os.kill(run.pid, signal.SIGTERM)
        codes, outputs = self.finish_agents([run])
        self.assertEqual(codes, [75], outputs)
        return outputs[0]

    def start_alone(self, *settings):
        """The same run without a feed, beside it, to compare with."""
        return self.start_training(*settings, "output=alone")

    def expect_as_not_fed(self, whole):
        """As many steps of it, to the last bit."""
        fed = [row for row in history(self.folder / "run") if "loss" in row]
        self.wait_for_rows([whole], len(fed) + 1, seconds=900, run="alone")
        if whole.poll() is None:
            os.kill(whole.pid, signal.SIGTERM)
        self.finish_agents([whole])
        alone = [row for row in history(self.folder / "alone") if "loss" in row]
        self.assertGreaterEqual(len(alone), len(fed))
        self.assertEqual(alone[: len(fed)], fed)
        self.assertEqual(max(shares(self.folder / "alone")), 0)
        return len(fed)

    def test_runs_of_threads_and_processes_are_bitwise_those_without(self):
        self.train_threads("output=whole")
        port = free_port()
        feed = self.start_feed(f"127.0.0.1:{port}")
        settings = [f'data.feed=["127.0.0.1:{port}"]']
        self.train_threads("output=run", *settings)
        self.assertEqual(history(self.folder / "run"), history(self.folder / "whole"))
        self.assertTrue(self.weights("run") == self.weights("whole"), "weights differ")
        self.assertGreater(max(shares(self.folder / "run")), 0.5)
        os.rename(self.folder / "run", self.folder / "threads")
        program = ["-m", "entrain", "train", "run.toml", *self.set(*settings)]
        code, output = self.run_command(self.torchrun(2, *program))
        self.assertEqual(code, 0, output)
        self.assertEqual(history(self.folder / "run"), history(self.folder / "whole"))
        self.assertGreater(max(shares(self.folder / "run")), 0.5)
        os.kill(feed.pid, signal.SIGTERM)
        codes, outputs = self.finish_agents([feed])
        self.assertEqual(codes, [0], outputs)
        self.assertIn("replica 0, lane 0 from step", outputs[0])

    def test_ranks_of_a_lane_are_fed_alike(self):
        model = self.folder / "model.toml"
        model.write_text(model.read_text().replace("num_kv_heads = 1", "num_kv_heads = 2"))
        degrees = ["plan.tensor_parallel.llm=2", "plan.tensor_parallel.vision=2"]
        self.train_threads("output=whole", *degrees)
        port = free_port()
        self.start_feed(f"127.0.0.1:{port}", *self.set(*degrees))
        settings = [f'data.feed=["127.0.0.1:{port}"]', *degrees]
        self.train_threads("output=run", *settings)
        self.assertEqual(history(self.folder / "run"), history(self.folder / "whole"))
        self.assertGreater(max(shares(self.folder / "run")), 0.5)
        os.rename(self.folder / "run", self.folder / "threads")
        patient = "data.feed_deadline_s=60"  # so that a busy machine does not decode twice
        program = ["-m", "entrain", "train", "run.toml", *self.set(*settings, patient)]
        code, output = self.run_command(self.torchrun(4, *program))
        self.assertEqual(code, 0, output)
        self.assertEqual(history(self.folder / "run"), history(self.folder / "whole"))
        patches = [validated_patches(self.folder / run) for run in ("run", "whole")]
        self.assertEqual(patches[0], patches[1])  # a feed decodes none, but each lane only once
        self.assertGreater(max(shares(self.folder / "run")), 0.5)

    def test_a_resumed_run_is_fed_from_where_it_was(self):
        self.train_threads("output=whole")
        port = free_port()
        self.start_feed(f"127.0.0.1:{port}")
        settings = [f'data.feed=["127.0.0.1:{port}"]', "checkpoint.every_steps=4"]
        self.train_threads("output=run", *settings)
        for row in ("step-00000012", "latest"):
            (self.folder / "run/checkpoints" / row).rename(self.folder / f"old-{row}")
        (self.folder / "run/checkpoints/latest").write_text(
            (self.folder / "old-latest").read_text().replace("12", "8")
        )
        output = self.expect_success("train", "run.toml", *self.set("output=run", *settings))
        self.assertIn("resumed at step 8", output.stdout)
        self.assertEqual(history(self.folder / "run"), history(self.folder / "whole"))

    def endless(self):
        self.write_run(steps=FOREVER, global_batch=16)
        port = free_port()
        settings = [f'data.feed=["127.0.0.1:{port}"]', "data.feed_deadline_s=0.3"]
        return f"127.0.0.1:{port}", [*settings, "execution.trace_step=-1"]

    def wait_until_fed(self, run):
        """From here on, for a step that a feed decoded."""
        begin = whole_lines(self.folder / "run")
        self.wait_until([run], lambda: max(shares(self.folder / "run", begin), default=0) > 0)

    def test_kills_of_the_feed_change_nothing(self):
        address, settings = self.endless()
        feed = self.start_feed(address)
        whole = self.start_alone(*settings[2:])
        run = self.start_training(*settings)
        for _ in range(TIMES):
            self.wait_until_fed(run)
            os.kill(feed.pid, signal.SIGKILL)
            feed.wait()
            self.assertIsNone(run.poll())
            feed = self.start_feed(address)
        self.wait_until_fed(run)
        output = self.end_training(run)
        self.assertGreaterEqual(output.count("is lost"), TIMES, output[-3000:])
        steps = self.expect_as_not_fed(whole)
        print(f"{TIMES} kills of the feed within {steps} steps")

    def test_stops_of_the_feed_change_nothing(self):
        address, settings = self.endless()
        feed = self.start_feed(address)
        whole = self.start_alone(*settings[2:])
        run = self.start_training(*settings)
        for _ in range(TIMES):
            self.wait_until_fed(run)
            os.kill(feed.pid, signal.SIGSTOP)
            stopped = len(rows(self.folder / "run"))
            time.sleep(0.5)
            self.wait_for_rows([run], stopped + 3)  # it goes on without
            os.kill(feed.pid, signal.SIGCONT)
        self.wait_until_fed(run)
        output = self.end_training(run)
        self.assertGreaterEqual(output.count("silent for 0.3 s"), TIMES, output[-3000:])
        steps = self.expect_as_not_fed(whole)
        print(f"{TIMES} stops of the feed within {steps} steps")

    def test_another_feed_takes_over(self):
        address, settings = self.endless()
        second = f"127.0.0.1:{free_port()}"
        first = self.start_feed(address)
        settings[0] = f'data.feed=["{address}", "{second}"]'
        whole = self.start_alone(*settings[2:])
        run = self.start_training(*settings)
        self.wait_until_fed(run)  # by the first: the second is not there yet, however slow both are
        self.start_feed(second)
        os.kill(first.pid, signal.SIGKILL)
        time.sleep(1)
        self.wait_until_fed(run)
        output = self.end_training(run)
        self.assertIn(f"feed {address} is lost", output)
        self.assertIn(f"fed by {second}", output)
        self.expect_as_not_fed(whole)

    def test_a_feed_of_another_run_is_refused_and_the_run_goes_on(self):
        port = free_port()
        self.start_feed(f"127.0.0.1:{port}", "--set", "seed=5")
        command = ["train", "run.toml", *self.set(f'data.feed=["127.0.0.1:{port}"]', "steps=300")]
        result = self.expect_success(*command)
        self.assertIn("it serves another run: seed 5, here 0", result.stderr)
        self.assertEqual({row["fed"] for row in rows(self.folder / "run") if "loss" in row}, {0})

    def test_ranks_without_a_feed_say_so_once(self):
        address = f"127.0.0.1:{free_port()}"
        settings = [f'data.feed=["{address}"]', "data.feed_deadline_s=0.3", "steps=100"]
        self.write_run(steps=100, global_batch=16, replicas=2)
        result = self.expect_success("train", "run.toml", *self.set(*settings))
        self.assertEqual(result.stderr.count("no feed answers"), 1, result.stderr)
        self.assertIn(f"no feed answers within 0.3 s at {address}", result.stderr)

    def test_bad_keys_and_addresses_are_refused_by_name(self):
        self.expect_success("feed", "--new-key", "feed.key")
        self.assertEqual((self.folder / "feed.key").stat().st_mode & 0o777, 0o600)
        key = (self.folder / "feed.key").read_text()
        self.expect_failure(2, ["feed.key", "--force"], "feed", "--new-key", "feed.key")
        self.assertEqual((self.folder / "feed.key").read_text(), key)
        self.expect_failure(2, ["config"], "feed")
        self.expect_failure(2, [":7000", "--new-key"], "feed", "run.toml", "--listen", ":7000")
        self.expect_failure(2, ["--listen", "nowhere"], "feed", "run.toml", "--listen", "nowhere")
        listen = ["feed", "run.toml", "--listen", "127.0.0.1:0"]
        self.expect_failure(2, ["none.key"], *listen, "--key", "none.key")
        self.expect_failure(2, ["run.toml", "chmod 600"], *listen, "--key", "run.toml")
        (self.folder / "other.key").touch(0o600)
        self.expect_failure(2, ["other.key", "no key"], *listen, "--key", "other.key")
        for settings, words in [
            (['data.feed=["host:7000"]'], ["data.feed", "data.feed_key"]),
            (['data.feed=["7000"]'], ["data.feed", "'7000'", "HOST:PORT"]),
            (['data.feed=["host:7000"]', "data.feed_key=model.toml"], ["model.toml"]),
            (["data.feed_deadline_s=0"], ["feed_deadline_s", "0.1 to 3600"]),
        ]:
            self.expect_failure(2, words, "train", "run.toml", *self.set(*settings))

    def test_another_host_feeds_and_its_cable_may_be_cut(self):
        network = network_hosts.TwoHosts()
        self.addCleanup(network.close)
        trains, decodes = network.hosts
        self.expect_success("feed", "--new-key", "feed.key")
        self.write_run(steps=FOREVER, global_batch=16)
        feed = self.start_feed(":7000", "--key", "feed.key", host=decodes)
        settings = ["execution.trace_step=-1"]
        fed = ['data.feed=["beta:7000"]', "data.feed_key=feed.key", "data.feed_deadline_s=0.5"]
        whole = self.start_alone(*settings)
        run = self.start_training(*fed, *settings, host=trains)
        self.wait_until_fed(run)
        decodes.plug("down")
        time.sleep(1)
        self.wait_for_rows([run], len(rows(self.folder / "run")) + 3)
        decodes.plug("up")
        self.wait_until_fed(run)
        output = self.end_training(run)
        self.assertIn("feed beta:7000 is lost", output)
        self.assertGreaterEqual(output.count("fed by beta:7000"), 2)
        self.expect_as_not_fed(whole)
        self.assertIsNone(feed.poll())


if __name__ == "__main__":
    if why := network_hosts.why_not():
        print(f"skipped: runs across a network ({why})")
        del Feed.test_another_host_feeds_and_its_cable_may_be_cut
    process_fixture.main()
