"""`entrain top` on folders of runs and on a terminal, and the figures that [metrics] exports."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import cli_fixture
from cli_fixture import CliTest


def row(step, **changes):
    figures = {"step": step, "steps": 6, "loss": 5.0 - step, "step_s": 0.2, "gap_s": 0.05}
    figures |= {"predicted_step_s": 0.1, "lower_bound_s": 0.05, "samples": 4, "llm_tokens": 100}
    figures |= {"bubble": 0.25, "data_wait_s": 0.0}
    lane = {"busy_s": 0.1, "predicted_busy_s": 0.05, "processor_s": 0.1}
    figures["lanes"] = [lane | {"replica": 0, "lane": n} for n in range(2)]
    return json.dumps(figures | changes) + "\n"


class RunFolder(CliTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.folder / "run"
        self.run_folder.mkdir()
        self.metrics = self.run_folder / "metrics.jsonl"
        (self.run_folder / "config.json").write_text('{"steps": 6, "data": {"feed": []}}')
        (self.run_folder / "plan.json").write_text('{"lanes": [[["vision", 0]], [["llm", 0]]]}')

    def write_rows(self, count, **changes):
        self.metrics.write_text("".join(row(step, **changes) for step in range(count)))


class Once(RunFolder):
    def test_page_has_the_runs_figures(self):
        self.write_rows(4)
        page = self.expect_success("top", "run").stdout
        for words in (
            *["ended early", "the run ended after step 4 of 6", "4 of 6", "0:01 elapsed"],
            *["2.0000  first 5.0000", "200 ms a step", "predicted 100 ms, measured is 2.00"],
            *["bound 50 ms, measured is 4.00", "500 LLM tokens/s", "0:1  llm 0", "50 % busy"],
        ):
            self.assertIn(words, page)
        self.assertNotIn("\x1b", page)
        self.assertLessEqual(max(map(len, page.splitlines())), 80)

    def test_json_has_the_same_figures(self):
        self.write_rows(6)
        figures = json.loads(self.expect_success("top", "run", "--once", "--json").stdout)
        self.assertEqual((figures["state"], figures["step"], figures["steps"]), ("finished", 6, 6))
        self.assertEqual(figures["step_s"], 0.2)
        self.assertEqual([lane["busy"] for lane in figures["lanes"]], [0.5, 0.5])
        self.assertEqual(figures["warnings"], [])
        self.expect_failure(2, ["--json", "--once"], "top", "run", "--json")

    def test_cut_line_is_left_out(self):
        self.write_rows(3)
        with self.metrics.open("a") as file:
            file.write(row(3)[:40])
        page = self.expect_success("top", "run", "--once").stdout
        self.assertIn("3 of 6", page)
        self.assertIn("cut off", page)

    def test_bad_input_is_refused_by_name(self):
        self.expect_failure(2, ["none", "no folder"], "top", "none", "--once")
        self.expect_failure(2, ["not a run folder"], "top", ".", "--once")
        self.expect_failure(2, ["metrics.jsonl", "not finished"], "top", "run", "--once")
        self.metrics.write_text("")
        self.expect_failure(2, ["metrics.jsonl", "not finished"], "top", "run", "--once")
        self.metrics.write_text(row(0) + "step,loss\n" + row(1))
        self.expect_failure(2, ["metrics.jsonl line 2", "not valid JSON"], "top", "run")
        self.metrics.write_text(row(0) + '{"iteration": 1, "train_loss": 2}\n')
        self.expect_failure(2, ["metrics.jsonl line 2", "another program"], "top", "run")
        self.metrics.write_text(row(0, loss="low"))
        self.expect_failure(2, ["metrics.jsonl line 1", "loss"], "top", "run")
        self.write_rows(1)
        (self.run_folder / "plan.json").write_text("{")
        self.expect_failure(2, ["plan.json", "not valid JSON"], "top", "run")
        self.expect_failure(2, ["--every"], "top", "run", "--every", "0")

    def test_texts_of_the_run_cannot_steer_the_terminal(self):
        self.metrics.write_text(
            row(0) + json.dumps({"step": 1, "skipped": "nan", "detail": "\x1b[2Jx\x9bm"}) + "\n"
        )
        page = self.expect_success("top", "run").stdout
        self.assertIn("1 step was skipped", page)
        self.assertFalse(re.search("[\x1b\x9b]", page))


class OnATerminal(RunFolder):
    unread = b""  # output of the program that was started last

    def start(self, *arguments, **environment):
        self.unread = b""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        process = subprocess.Popen(
            [self.entrain, "top", "run", "--every", "0.1", *arguments],
            cwd=self.folder,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={k: v for k, v in os.environ.items() if k != "NO_COLOR"} | environment,
        )
        os.close(follower)
        self.addCleanup(os.close, leader)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, leader

    def read_until(self, leader, words, seconds=20):
        """The output up to these words; what follows is for the next call."""
        text = self.unread
        end = time.monotonic() + seconds
        while words.encode() not in text:
            ready, _, _ = select.select([leader], [], [], max(0, end - time.monotonic()))
            self.assertTrue(ready, f"no '{words}' in:\n{text.decode(errors='replace')}")
            try:
                text += os.read(leader, 1 << 16)
            except OSError:  # the program has ended
                self.fail(f"no '{words}' in:\n{text.decode(errors='replace')}")
        end = text.index(words.encode()) + len(words.encode())
        self.unread = text[end:]
        return text[:end].decode()

    def test_page_follows_the_run_and_ends_with_it(self):
        process, leader = self.start()
        self.read_until(leader, "the run has not finished a step yet")
        self.write_rows(2)
        self.assertIn("\x1b[36m", self.read_until(leader, "2 of 6  █"))
        with self.metrics.open("a") as file:
            file.write(row(2) + row(3)[:50])
        self.read_until(leader, "3 of 6  █")
        with self.metrics.open("a") as file:
            file.write(row(3)[50:] + row(4) + row(5))
        text = self.read_until(leader, "\x1b[?1049l")
        self.read_until(leader, "6 of 6")  # the page stays after the end
        self.assertIn("\x1b[?25h", text)
        self.assertEqual(process.wait(timeout=20), 0)

    def test_signals_clean_up(self):
        self.write_rows(2)
        for number, code in ((signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)):
            process, leader = self.start()
            self.read_until(leader, "2 of 6")
            process.send_signal(number)
            self.assertIn("\x1b[?7h\x1b[?25h", self.read_until(leader, "\x1b[?1049l"))
            self.assertEqual(process.wait(timeout=20), code)

    def test_no_color_is_respected(self):
        self.write_rows(6)
        process, leader = self.start(NO_COLOR="1")
        text = self.read_until(leader, "\x1b[?1049l") + self.read_until(leader, "6 of 6")
        self.assertEqual(process.wait(timeout=20), 0)
        self.assertNotRegex(text, "\x1b\\[[0-9;]*m")

    def test_error_leaves_the_terminal_clean(self):
        self.write_rows(2)
        process, leader = self.start()
        self.read_until(leader, "2 of 6")
        with self.metrics.open("a") as file:
            file.write("nonsense\n")
        self.read_until(leader, "\x1b[?1049l")
        self.read_until(leader, "line 3")
        self.assertEqual(process.wait(timeout=20), 2)


class Exports(CliTest):
    def setUp(self):
        super().setUp()
        if not self.has_engine():
            self.skipTest("built without the engine")
        self.make_data()
        self.write_run(steps=2)

    def train(self, *more):
        wanted = ["metrics.tensorboard=true", "metrics.prometheus=out/run.prom", *more]
        settings = [part for setting in wanted for part in ("--set", setting)]
        self.expect_success("train", "run.toml", *settings)

    def rows(self):
        text = (self.folder / "run" / "metrics.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def test_prometheus_file_has_the_last_steps_figures(self):
        self.train()
        text = (self.folder / "out" / "run.prom").read_text()
        figures = dict(re.findall(r"^(entrain_\w+\{.*\}) (\S+)$", text, re.MULTILINE))
        last = [r for r in self.rows() if "loss" in r][-1]
        self.assertEqual(float(figures['entrain_step{run="run"}']), 2)
        for name, value in (
            ("loss", last["loss"]),
            ("step_seconds", last["step_s"]),
            ("grad_norm", last["grad_norm"]),
            ("llm_tokens_per_second", last["llm_tokens"] / last["step_s"]),
            ("validation_loss", self.rows()[-1]["validation_loss"]),
        ):
            self.assertAlmostEqual(float(figures[f'entrain_{name}{{run="run"}}']), value, msg=name)
        lane = 'entrain_lane_busy_seconds{run="run",replica="0",lane="1"}'
        self.assertAlmostEqual(float(figures[lane]), last["lanes"][1]["busy_s"])
        names = {name.split("{")[0] for name in figures}
        for kind in ("HELP", "TYPE"):
            self.assertEqual(set(re.findall(rf"^# {kind} (\w+) ", text, re.MULTILINE)), names)

    def test_prometheus_file_replaces_no_other(self):
        (self.folder / "notes.txt").write_text("precious")
        for path in ("notes.txt", "run.toml", "train.csv", "."):
            setting = f"metrics.prometheus={path}"
            arguments = ["train", "run.toml", "--dry-run", "--set", setting]
            self.expect_failure(2, ["metrics.prometheus", path], *arguments)
        self.assertEqual((self.folder / "notes.txt").read_text(), "precious")

    def test_tensorboard_reads_every_step_once(self):
        try:
            from tensorboard.backend.event_processing import event_file_loader
        except ImportError:
            self.skipTest("the package tensorboard is not installed")
        self.train()
        self.train("steps=3", "checkpoint.every_steps=1")
        self.train("steps=4", "checkpoint.resume=accept")
        files = sorted((self.folder / "run" / "tensorboard").iterdir())
        self.assertEqual(len(files), 3)
        read = {}
        for file in files:
            for event in event_file_loader.LegacyEventFileLoader(str(file)).Load():
                for value in event.summary.value:
                    read.setdefault(value.tag, []).append((event.step, value.simple_value))
        rows = [r for r in self.rows() if "loss" in r]
        for tag in ("loss", "step_s", "grad_norm", "learning_rate", "bubble", "data_wait_s"):
            self.assertEqual([step for step, _ in read[tag]], [0, 1, 2, 3], tag)
            for (_, value), expected in zip(read[tag], rows, strict=True):
                self.assertAlmostEqual(value, expected[tag], places=4, msg=tag)
        self.assertEqual(len(read["llm_tokens_per_s"]), 4)
        wanted = [r for r in self.rows() if "validation_loss" in r]
        self.assertEqual([step for step, _ in read["validation_loss"]], [r["step"] for r in wanted])

    def test_top_shows_a_real_run(self):
        self.train()
        page = self.expect_success("top", "run", "--once").stdout
        for words in ("finished", "2 of 2", "validation", "0:0  vision 0", "memory"):
            self.assertIn(words, page)


if __name__ == "__main__":
    cli_fixture.main()
