"""`study paper`: the quick study from nothing, stopped and continued, and what it must find."""

import csv
import json
import signal
import subprocess
import time

import cli_fixture
from cli_fixture import CliTest


class StudyTest(CliTest):
    def arguments(self, folder, *more, models=None, cluster=None):
        models = models or self.root / "configs" / "models"
        cluster = cluster or self.root / "configs" / "clusters" / "a40-64.toml"
        options = ["-o", folder, "--models", models, "--cluster", cluster, "--threads", "2"]
        return ["study", "paper", *options, *more]

    def begin(self, folder, until):
        """The quick study, stopped once a file of its folder is there: what it says."""
        command = [self.entrain, *map(str, self.arguments(folder, "--quick"))]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=self.folder
        )
        while not until.exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertRegex(said, r"stopped; \d+ of 8 parts kept; run the same command to continue")
        self.assertTrue(until.exists())
        return said

    def test_a_study_is_listed_before_it_runs(self):
        text = self.expect_success(*self.arguments("unmade", "--quick", "--list")).stdout
        self.assertRegex(text, r"^8 parts, about \d+ minutes\nmade-up-charts\.1b\n")
        self.assertFalse((self.folder / "unmade").exists())

    def test_folders_of_others_are_refused(self):
        folder = self.folder / "other"
        folder.mkdir()
        (folder / "thesis.txt").write_text("precious")
        words = ["neither a study's folder nor empty"]
        self.expect_failure(2, words, *self.arguments("other", "--quick"))
        self.assertEqual([path.name for path in folder.iterdir()], ["thesis.txt"])
        (folder / "thesis.txt").unlink()
        (folder / "study.json").write_text('{"inputs": {"quick": false}}')
        words = ["study of other inputs", "quick: true given, false kept", "models", "none kept"]
        self.expect_failure(2, words, *self.arguments("other", "--quick"))
        self.assertFalse((folder / "cells").exists())

    def test_a_damaged_part_is_named(self):
        folder = self.folder / "damaged"
        said = self.begin("damaged", folder / "manifests" / "made-up-chats.csv")
        self.assertIn("0 of 8 parts kept", said)
        (folder / "cells" / "made-up-charts.1b.json").write_text('{"kind": "sett')
        words = ["made-up-charts.1b.json"]
        self.expect_failure(2, words, *self.arguments("damaged", "--quick"))
        self.assertFalse((folder / "README.md").exists())

    def test_missing_inputs_are_named(self):
        words = ["--manifests: 'nowhere' is not a folder"]
        self.expect_failure(2, words, *self.arguments("none", "--manifests", "nowhere"))
        words = ["no-cluster.toml", "does not exist"]
        self.expect_failure(2, words, *self.arguments("none", cluster="no-cluster.toml"))
        words = ["--models: 'nowhere' is not a folder"]
        self.expect_failure(2, words, *self.arguments("none", models="nowhere"))
        (self.folder / "empty").mkdir()
        words = ["qwen2.5-vl-llama-1b.toml", "'empty' (--models)"]
        self.expect_failure(2, words, *self.arguments("none", models="empty"))
        words = ["coco_val2017_captions.csv", "librispeech_multiclip.csv", "empty"]
        self.expect_failure(2, words, *self.arguments("none", "--manifests", "empty"))
        self.assertFalse((self.folder / "none").exists())

    # Ended while it wrote its first file, a study has left no folder of its own.
    def test_a_study_begins_where_one_left_a_partial_file(self):
        folder = self.folder / "cut"
        folder.mkdir()
        (folder / "study.json.partial-7").write_text('{"inp')
        self.begin("cut", folder / "manifests" / "made-up-chats.csv")
        self.assertEqual([path.name for path in folder.glob("*partial*")], [])
        (folder / "cells" / "x.json.partial-8").write_text("half")
        (folder / "manifests" / "made-up-chats.csv").unlink()
        self.begin("cut", folder / "manifests" / "made-up-chats.csv")
        self.assertEqual(list((folder / "cells").iterdir()), [])

    # The bounds of the quick study: what the paper's theory says holds, and nobody is faster.
    def test_a_stopped_study_goes_on_and_finds_what_it_must(self):
        folder = self.folder / "quick"
        first = folder / "cells" / "made-up-charts.1b.json"
        self.begin("quick", first)
        self.assertFalse((folder / "README.md").exists())
        kept = first.stat().st_mtime_ns
        asked = self.arguments("quick", "--quick", "--json")
        result = self.expect_success(*asked, timeout=1200)
        self.assertIn("study: 1 of 8 parts kept", result.stderr)
        self.assertEqual(first.stat().st_mtime_ns, kept)
        self.assertEqual(list(folder.rglob("*partial*")), [])
        answers = {
            verdict["claim"]: (verdict["holds"], verdict["found"])
            for verdict in json.loads(result.stdout)
        }
        claims = ("One sample asks", "fresh batch", "settles by batch", "whatever policy")
        for words in (*claims, "everybody chooses"):
            chosen = [answer for claim, answer in answers.items() if words in claim]
            self.assertTrue(chosen, words)
            for holds, found in chosen:
                self.assertEqual(holds, "yes", found)
        with (folder / "rows.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            if row["step_s"]:
                self.assertGreaterEqual(float(row["step_s"]), 0.999 * float(row["lower_bound_s"]))
        planners = {(row["planner"], row["memory"]) for row in rows}
        planners = {pair for pair in planners if pair[0] != "apart"}
        self.assertEqual(len(planners), 28, "seven plans, four kinds of memory")
        with (folder / "stages.csv").open(newline="") as file:
            stages = {row["planner"]: row["split"] for row in csv.DictReader(file)}
        for planner in ("dflop", "orchmllm", "searched"):
            self.assertRegex(stages[planner], r", TP \d.*, DP \d+$")
        self.assertIn("on the same lanes", stages["orchmllm"])
        self.assertEqual(self.expect_success(*asked).stdout, result.stdout)


if __name__ == "__main__":
    cli_fixture.main()
