"""Data sets as people have them: what is refused, left out, ignored and said, and never in silence."""

import gzip
import json
import os
import random
import struct

import cli_fixture
from cli_fixture import CliTest, png, sample, write_members, write_shard

AUDIO = """
[audio]
num_layers = 1
hidden = 32
num_heads = 2
intermediate = 64
"""


def wav(frames=1600):
    """A mono WAV of silence at 16 kHz."""
    data = b"\0\0" * frames
    form = struct.pack("<HHIIHH", 1, 1, 16000, 32000, 2, 16)
    content = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", len(data))
    return b"RIFF" + struct.pack("<I", len(content) + len(data)) + content + data


def text(answer="red"):
    return json.dumps({"question": "what?", "answer": answer}).encode()


TILING = """
table_side = 4
resize_filter = "lanczos"
[vision.tiling]
kind = "best_canvas"
max_tiles = 6
"""

CANVASES = """
table_side = 4
[vision.tiling]
kind = "any_resolution"
canvases = [[1, 2], [2, 1], [2, 2]]
feature_tiles = 1
"""

VIDEO = """
temporal_patch_size = 2
[vision.video]
sampling = "stride"
"""


class TilesAndVideos(CliTest):
    def write_model(self, more, merge=2):
        """The tiny model with `more` keys of its vision encoder."""
        model = cli_fixture.MODEL.replace("[llm]", more + "[llm]")
        model = model.replace("merge_size = 2", f"merge_size = {merge}")
        (self.folder / "model.toml").write_text(model)

    def write_videos(self, document, frames=5, extension="0.{:04}.png"):
        members = []
        for i in range(10):
            for frame in range(frames + i % 3):
                colour = (20 * frame, 3 * i, 9)
                members.append(
                    (f"v{i}.{extension.format(frame)}", png(32, 16 + 16 * (i % 2), colour))
                )
            members.append((f"v{i}.json", json.dumps({"text": "red", **document}).encode()))
        write_members(self.folder / "videos-0.tar", members)

    def index(self, shard):
        command = ["index", shard, "-o", "train.csv", "--model", "model.toml", "--json", "--force"]
        return json.loads(self.expect_success(*command).stdout)

    def test_tiles_are_segments_that_train(self):
        self.make_data()
        self.write_model("table_side = 4\n")
        squares = self.index("train-000000.tar")["llm_tokens"]["total"]
        for tiling, merge in (TILING, 2), (CANVASES, 1):
            self.write_model(tiling, merge)
            self.assertGreater(self.index("train-000000.tar")["llm_tokens"]["total"], squares)
            if self.has_engine():
                self.write_run(vision=2)
                self.expect_success("train", "run.toml", "--overwrite")

    def test_videos_of_frames_train(self):
        self.write_model(VIDEO)
        self.write_videos({"fps": 4})
        self.index("videos-0.tar")
        if self.has_engine():
            self.write_run(vision=2)
            self.expect_success("train", "run.toml")
            self.write_model("")
            self.expect_failure(
                2, ["videos/v0", "cannot read videos"], "train", "run.toml", "--overwrite"
            )

    def test_videos_that_lack_something_are_refused(self):
        def refused(words):
            self.expect_failure(2, words, "index", "videos-0.tar", "-o", "v.csv")
            self.assertFalse((self.folder / "v.csv").exists())

        self.write_videos({})
        refused(["v0.json", "no 'fps'"])
        self.write_videos({"fps": -1})
        refused(["v0.json", "fps: -1 given"])
        self.write_videos({"fps": 2}, extension="0.1{}.png")
        refused(["v0.0.10.png", "not numbered 0 to 4"])
        self.write_videos({"fps": 2}, frames=1, extension="{}.wmv")
        refused(["v0.0.wmv", "video must be MP4", "ffmpeg -i x.wmv x.mp4"])

    def test_tiling_that_cannot_be_is_refused(self):
        self.make_data()
        for change, words in [
            (("max_tiles", "most_tiles"), ["vision.tiling.most_tiles", "unknown key"]),
            (("best_canvas", "spiral"), ["'spiral' given", "best_canvas"]),
            (("max_tiles = 6", "max_tiles = 5000"), ["vision.tiling.max_tiles: 5000", "1 to 1023"]),
            (("table_side = 4\n", ""), ["vision.tiling", "table_side"]),
        ]:
            self.write_model(TILING.replace(*change))
            self.expect_failure(
                2, words, "index", "train-000000.tar", "-o", "i.csv", "--model", "model.toml"
            )


class Shards(CliTest):
    def index(self, *data, model=False):
        options = ["--model", "model.toml"] if model else []
        return json.loads(
            self.expect_success("index", *data, "-o", "train.csv", "--json", *options).stdout
        )

    def rows(self):
        lines = (self.folder / "train.csv").read_text().splitlines()
        return [line.split(",")[0] for line in lines[1:]]

    def test_a_folder_packed_with_tar_is_read_and_trained(self):
        """As `tar cf s.tar .` writes it: ./ in front, members in any order."""
        members = []
        for i in range(12):
            name, images, document = sample(i)
            members += [
                (f"./{name}.png", images[0]),
                (f"./{name}.json", json.dumps(document).encode()),
            ]
        random.Random(1).shuffle(members)
        write_members(
            self.folder / "train-0.tar", [*members, ("./.DS_Store", b"x"), ("./README", b"x")]
        )
        summary = self.index("train-0.tar")
        self.assertEqual(summary["rows"], 12)
        self.assertEqual(summary["images"]["total"], 12)
        self.assertGreater(summary["scattered"], 0)
        self.assertEqual(summary["ignored_members"], {"hidden files": 1, "no extension": 1})
        if self.has_engine():
            self.write_run()
            self.expect_success("train", "run.toml")

    def test_names_with_dots_and_numbers_as_answers(self):
        members = [("photo.v2.png", png(16, 16)), ("photo.v2.json", text(answer=3))]
        write_members(self.folder / "t-0.tar", members)
        self.assertEqual(self.index("t-0.tar")["images"]["total"], 1)
        self.assertEqual(self.rows(), ["t/photo"])
        write_members(
            self.folder / "u-0.tar",
            [("a.1.json", text()), ("a.2.json", text()), ("b.json", text())],
        )
        self.expect_failure(2, ["a.1.json", "rename them"], "index", "u-0.tar", "-o", "u.csv")
        write_members(self.folder / "v-0.tar", [("a.json", text(answer=[3]))])
        self.expect_failure(
            2, ["a.json", "'answer'", "is a list"], "index", "v-0.tar", "-o", "v.csv"
        )

    def test_braces_stand_for_many_shards(self):
        for i in range(3):
            write_shard(self.folder / f"train-{i:06}.tar", [sample(i)])
        self.assertEqual(self.index("train-{000000..000002}.tar")["rows"], 3)
        self.expect_failure(
            2, ["train-000003.tar", "4 names"], "index", "train-{000000..000003}.tar", "-o", "x.csv"
        )

    def test_what_is_no_file_is_refused(self):
        os.mkfifo(self.folder / "pipe.tar")
        words = ["pipe.tar", "is not a file"]
        self.expect_failure(2, words, "index", "pipe.tar", "-o", "x.csv")
        (self.folder / "folder.tar").mkdir()
        self.expect_failure(2, ["folder.tar"], "index", "folder.tar", "-o", "x.csv")

    def test_a_compressed_shard_is_for_studies_alone(self):
        write_shard(self.folder / "train-0.tar", [sample(i) for i in range(12)])
        plain = (self.folder / "train-0.tar").read_bytes()
        (self.folder / "train-0.tar.gz").write_bytes(gzip.compress(plain))
        result = self.expect_success("index", "train-0.tar.gz", "-o", "train.csv")
        self.assertIn("1 shard, compressed", result.stderr)
        study = ["cost", "-i", "train.csv", "-m", "model.toml", "-o", "costs.csv"]
        self.expect_success(*study, "--profile", "analytic:a40")
        if self.has_engine():
            self.write_run()
            words = ["train-0.tar.gz", "gunzip", "compressed"]
            self.expect_failure(2, words, "train", "run.toml")
        (self.folder / "t.tar.zst").write_bytes(b"x")
        self.expect_failure(2, ["t.tar.zst", "neither"], "index", "t.tar.zst", "-o", "x.csv")

    def test_damage_stops_or_is_left_out_and_listed(self):
        whole = png(64, 64)
        members = []
        for i in range(14):
            image = whole[: len(whole) // 2] if i < 12 else whole
            members += [(f"s{i:02}.png", image), (f"s{i:02}.json", text())]
        members += [("w.wav", wav()[:-100]), ("w.json", text())]
        write_members(self.folder / "train-0.tar", members)
        index = ["index", "train-0.tar", "-o", "train.csv"]
        words = ["train-0.tar", "s00.png", "damaged PNG", "--damaged leave-out"]
        self.expect_failure(2, words, *index)
        self.assertFalse((self.folder / "train.csv").exists())
        summary = json.loads(self.expect_success(*index, "--damaged", "leave-out", "--json").stdout)
        self.assertEqual((summary["rows"], summary["left_out"]), (2, 13))
        left_out = {entry["id"]: entry["reason"] for entry in summary["left_out_samples"]}
        self.assertEqual(len(left_out), 13)
        self.assertIn("damaged PNG", left_out["train/s11"])
        self.assertIn("damaged WAV", left_out["train/w"])
        result = self.expect_success(*index, "--damaged", "leave-out")
        self.assertIn("13 samples were left out, more than the 2 that stayed", result.stderr)
        output = result.stdout
        self.assertIn("left out 13", output)
        self.assertIn("'train/s09'", output)
        self.assertNotIn("'train/s10'", output)
        self.assertIn("and 3 more", output)


class Modalities(CliTest):
    """A model that sees and samples that sound; a model that hears and samples with pictures."""

    def setUp(self):
        super().setUp()
        samples = [sample(i) for i in range(12)]
        write_shard(self.folder / "seen-0.tar", samples)
        write_members(
            self.folder / "heard-0.tar",
            [
                member
                for i in range(12)
                for member in ((f"h{i}.json", text()), *([(f"h{i}.wav", wav())] if i < 5 else []))
            ],
        )
        for name in ("seen", "heard"):
            self.expect_success("index", f"{name}-0.tar", "-o", f"{name}.csv")
        vision, _, llm = (self.folder / "model.toml").read_text().partition("[llm]")
        (self.folder / "hears.toml").write_text(
            vision.partition("[vision]")[0] + AUDIO + "[llm]" + llm
        )

    def studies(self, index, model):
        study = ["-i", index, "-m", model, "-p", "analytic:a40"]
        drawn = [*study, "-b", "4"]
        placed = [*drawn, "--lanes", "2", "--num-slots", "2"]
        return {
            "index": ["index", index, "-o", "again.csv", "-m", model],
            "cost": ["cost", *study, "-o", "costs.csv"],
            "plan": ["plan", *drawn, "--lanes", "2", "-o", "plan.json"],
            "b-min": ["b-min", *drawn, "--devices", "2"],
            "assign": ["assign", *placed, "--policy", "lpt-2d"],
            "simulate": ["simulate", *placed, "--policy", "lpt-2d", "--steps", "1"],
            "explain": ["explain", *placed],
            "report": ["report", index, "--model", model, "--json"],
        }

    def test_every_command_refuses_what_the_model_has_no_encoder_for(self):
        for index, model, medium, words in (
            ("heard.csv", "model.toml", "audio", ["5 of 12 samples", "audio clips", "'heard/h0'"]),
            ("seen.csv", "hears.toml", "image", ["12 of 12 samples", "images", "'seen/s000'"]),
        ):
            for name, arguments in self.studies(index, model).items():
                with self.subTest(name, index=index):
                    option = f"--ignore-modality {medium}"
                    self.expect_failure(2, [*words, option], *arguments)
                    result = self.run_program(*arguments, "--ignore-modality", medium)
                    self.assertIn("of 12 samples are ignored", result.stderr)
                    self.assertIn(result.returncode, (0, 4), result.stderr)

    def test_training_and_judging_refuse_it_too(self):
        if not self.has_engine():
            self.skipTest("built without the engine")
        self.write_run()
        run = [
            "train",
            "run.toml",
            "--set",
            "data.train=heard.csv",
            "--set",
            "data.validation=heard.csv",
        ]
        key = 'data.ignore_modality = ["audio"]'
        self.expect_failure(2, ["5 of 12 samples", key], *run)
        self.expect_failure(2, ["5 of 12 samples", key], *run, "--dry-run")
        result = self.expect_success(*run, "--set", 'data.ignore_modality=["audio"]')
        self.assertIn("5 audio clips of 5 of 12 samples are ignored", result.stderr)
        judged = self.expect_success("eval", "run")
        self.assertIn("5 audio clips of 5 of 12 samples are ignored", judged.stderr)
        self.expect_success("index", "seen-0.tar", "heard-0.tar", "-o", "train.csv")
        self.expect_failure(2, [key], "train", "run.toml", "--set", "output=other")
        self.expect_success(
            "train",
            "run.toml",
            "--set",
            "output=seen",
            "--set",
            "data.train=seen.csv",
            "--set",
            "data.validation=seen.csv",
        )
        self.expect_failure(2, ["--ignore-modality audio"], "eval", "seen", "--index", "heard.csv")
        self.expect_success("eval", "seen", "--index", "heard.csv", "--ignore-modality", "audio")

    def test_the_option_stands_anywhere_and_takes_a_list(self):
        rest = ["-o", "both.csv", "-m", "model.toml"]
        self.expect_success("index", "--ignore-modality", "audio", "heard.csv", "seen.csv", *rest)
        sees, _, llm = (self.folder / "model.toml").read_text().partition("[llm]")
        reads = sees.partition("[vision]")[0] + "[llm]" + llm
        (self.folder / "reads.toml").write_text(reads)
        study = ["cost", "-i", "both.csv", "-m", "reads.toml", "-o", "costs.csv"]
        study += ["-p", "analytic:a40"]
        self.expect_failure(2, ["no encoder"], *study)
        result = self.run_program(*study, "--ignore-modality", "audio,image")
        self.assertEqual(result.stderr.count("of 24 samples are ignored"), 2, result.stderr)

    def test_a_medium_that_the_model_takes_cannot_be_ignored(self):
        arguments = self.studies("seen.csv", "model.toml")["cost"]
        self.expect_failure(2, ["encoder 'vision'"], *arguments, "--ignore-modality", "image")
        self.expect_failure(2, ["--ignore-modality"], *arguments, "--ignore-modality", "smell")


class Draws(CliTest):
    """Which samples a run and a study see, and how often."""

    def setUp(self):
        super().setUp()
        self.make_data(count=13)
        self.write_run()

    def train(self, *settings):
        values = [part for setting in settings for part in ("--set", setting)]
        return self.expect_success("train", "run.toml", *values)

    def steps(self, run):
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if "loss" in row]

    def test_studies_say_when_samples_repeat(self):
        study = ["-i", "train.csv", "-m", "model.toml", "-p", "analytic:a40", "--lanes", "2"]
        for batch, words in (
            ("8", ["13 samples, fewer than four global batches of 8", "of the first batch's 8"]),
            ("16", ["of the first batch's 16 samples are repeats", "`entrain train` refuses"]),
        ):
            for command in (["assign"], ["simulate", "--steps", "1"], ["plan", "-o", "p.json"]):
                policy = [] if command[0] == "plan" else ["--policy", "lpt-2d"]
                result = self.expect_success(*command, *study, "-b", batch, *policy)
                for word in words:
                    self.assertIn(word, result.stderr)
        result = self.expect_success("assign", *study, "-b", "3", "--policy", "lpt-2d")
        self.assertNotIn("repeats", result.stderr)

    def test_epochs_say_what_they_leave_out(self):
        if not self.has_engine():
            self.skipTest("built without the engine")
        output = self.train("epochs=3")
        said = output.stdout + output.stderr
        self.assertIn("an epoch has 1 step and leaves out 5 samples", said)
        self.assertIn("3 epochs are 3 steps", said)
        self.assertEqual(len(self.steps("run")), 3)
        config = json.loads((self.folder / "run" / "config.json").read_text())
        self.assertEqual(config["epochs"], 3)
        both = ["--set", "epochs=1", "--set", "steps=1"]
        self.expect_failure(2, ["steps", "epochs"], "train", "run.toml", *both)

    def test_a_kept_last_batch_is_trained_and_resumed(self):
        if not self.has_engine():
            self.skipTest("built without the engine")
        kept = ["data.last_batch=keep", "execution.log_samples=true", "checkpoint.every_steps=1"]
        said = self.train(*kept, "epochs=2", "output=whole").stdout
        self.assertIn("an epoch has 2 steps, the last one of 5 samples", said)
        rows = self.steps("whole")
        self.assertEqual([len(row["batch"]) for row in rows], [8, 5, 8, 5])
        for epoch in (rows[:2], rows[2:]):
            self.assertEqual(len({i for row in epoch for i in row["batch"]}), 13)

    MIXTURE = """
"train/s00*" = 3
"train/s01?" = {weight = [[0, 1], [3, 5]]}
"""

    def test_a_mixture_is_drawn_resumed_and_studied_alike(self):
        (self.folder / "mixture.toml").write_text(self.MIXTURE)
        study = ["-i", "train.csv", "-m", "model.toml", "-p", "analytic:a40", "--lanes", 2]
        study += ["-b", 8, "--seed", 0, "--mixture", "mixture.toml", "--policy", "lpt-2d"]
        result = self.expect_success("assign", *study, "--step", 4, "--json")
        slots = [replica["modules"]["llm"] for replica in json.loads(result.stdout)["replicas"]]
        drawn = sorted(name for replica in slots for slot in replica for name in slot)
        refused = [*study[:-4], "no.toml", "--policy", "lpt-2d"]
        self.expect_failure(2, ["no.toml"], "assign", *refused)
        (self.folder / "mixture.toml").write_text('"train/s00*" = 1')
        self.expect_failure(2, ["no part for sample 'train/s010'"], "assign", *study)
        if not self.has_engine():
            self.skipTest("built without the engine")
        with (self.folder / "run.toml").open("a") as file:
            file.write(self.MIXTURE.replace('\n"', '\n[data.mixture]\n"', 1))
        log = ["execution.log_samples=true", "checkpoint.every_steps=1"]
        said = self.train(*log, "steps=6", "output=whole").stdout
        self.assertIn('of "train/s01?" (3 samples', said)
        rows = self.steps("whole")
        self.assertEqual(sorted(rows[4]["batch"]), drawn)
        shares = [sum("s01" in name for name in row["batch"]) for row in rows]
        self.assertEqual(shares[:3], [2, 2, 2])
        self.assertEqual(sum(shares[3:]), 15)
        self.assertIn("~2", "".join(rows[5]["batch"]))  # 5 draws from 3 samples
        halves = [*log, "steps=6", "output=halves"]
        drill = [*halves, "execution.fault_drill=[0, 0, 3]"]
        stopped = self.run_program(
            "train", "run.toml", *(part for value in drill for part in ("--set", value))
        )
        self.assertNotEqual(stopped.returncode, 0)
        self.assertEqual(len(self.steps("halves")), 3)
        self.train(*halves)
        losses = [(row["step"], row["loss"]) for row in rows]
        self.assertEqual([(r["step"], r["loss"]) for r in self.steps("halves")], losses)

    def test_an_index_draws_what_it_holds(self):
        call = ["index", "train-000000.tar", "-o", "again.csv", "-m", "model.toml"]
        said = self.expect_success(*call, "--stats", "--plot", "sizes.svg").stdout
        for words in ("pixels of an image (13)", "LLM tokens of a sample (13)", "█"):
            self.assertIn(words, said)
        drawing = (self.folder / "sizes.svg").read_text()
        self.assertIn("pixels of an image (13)", drawing)
        (self.folder / "sizes.svg").write_text("mine")
        self.expect_failure(2, ["--plot", "sizes.svg"], *call, "--plot", "sizes.svg")

    def test_a_mixture_that_ends_is_refused_beyond(self):
        if not self.has_engine():
            self.skipTest("built without the engine")
        with (self.folder / "run.toml").open("a") as file:
            file.write('[data.mixture]\n"*" = {epochs = 2}\n')
        self.train("steps=3")
        words = ["steps = 4", "ends after 3"]
        self.expect_failure(2, words, "train", "run.toml", "--set", "steps=4")
        words = ["epochs", "mixture"]
        self.expect_failure(2, words, "train", "run.toml", "--set", "epochs=1")

    def test_validation_that_was_trained_on_is_said(self):
        if not self.has_engine():
            self.skipTest("built without the engine")
        words = "13 of the 13 validation samples are training samples too ('train/s000'"
        self.assertIn(words, self.train().stderr)
        self.assertIn(words, self.expect_success("eval", "run").stderr)
        split = ["data.validation=", "data.validation_fraction=0.2", "output=split"]
        self.assertNotIn("training samples too", self.train(*split).stderr)


if __name__ == "__main__":
    cli_fixture.main()
