"""The same samples in every format: the same index, pixels, sounds, and losses to the last bit."""

import json
import os
from unittest import mock

import cli_fixture
import formats
from cli_fixture import CliTest
from data_test import wav

TEXT = {"question": "what?", "answer": "silence"}


class Formats(CliTest):
    def setUp(self):
        super().setUp()
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            self.skipTest("pyarrow is not installed")
        self.make_data(count=24)
        self.samples = formats.read_shards([self.folder / "train-000000.tar"])

    def write(self, name):
        return formats.FORMATS[name](self.samples, self.folder)

    def index(self, name, **options):
        data = self.write(name)
        more = [part for key, value in options.items() for part in (f"--{key}", value)]
        return self.run_program("index", *data, "-o", f"{name}.csv", "-m", "model.toml", *more)

    def losses(self, index, run):
        settings = [f"data.train={index}", f"data.validation={index}", f"output={run}"]
        changes = [part for value in settings for part in ("--set", value)]
        self.expect_success("train", "run.toml", *changes)
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [(row["step"], row["loss"]) for row in map(json.loads, lines) if "loss" in row]

    def test_every_format_gives_the_same_index_and_the_same_losses(self):
        expected = formats.sizes_of(self.folder / "train.csv")
        self.write_run(steps=4)
        losses = self.losses("train.csv", "run-tar") if self.has_engine() else None
        for name in formats.FORMATS:
            with self.subTest(name):
                result = self.index(name)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(formats.sizes_of(self.folder / f"{name}.csv"), expected)
                if losses:
                    run = f"run-{name.split()[0]}"
                    self.assertEqual(self.losses(f"{name}.csv", run), losses)

    def test_every_format_gives_the_same_pixels_and_sounds(self):
        expected = formats.decoded(self.entrain, self.folder / "train.csv")
        self.assertEqual(expected, formats.decoded_by_pillow(self.samples))
        sounds = ["1600", "2000"]
        self.samples += [
            (f"sound{frames}", [("audio", f"sound{frames}.wav", wav(int(frames)))], TEXT)
            for frames in sounds
        ]
        found = {}
        for name in formats.FORMATS:
            result = self.run_program("index", *self.write(name), "-o", "x.csv", "--force")
            self.assertEqual(result.returncode, 0, result.stderr)
            found[name] = formats.decoded(self.entrain, self.folder / "x.csv")
            with self.subTest(name):
                self.assertEqual(found[name][: len(expected)], expected)
        clips = {tuple(lines[len(expected) :]) for lines in found.values()}
        self.assertEqual(len(clips), 1)
        self.assertEqual([line.split("/")[1].split(":")[0] for line in clips.pop()], sounds)

    def test_a_damaged_medium_is_left_out_in_every_format(self):
        name, media, text = self.samples[3]
        self.samples[3] = (
            name,
            [(kind, file, content[:50]) for kind, file, content in media],
            text,
        )
        for name in formats.FORMATS:
            with self.subTest(name):
                self.assertEqual(self.index(name).returncode, 2)
                self.assertFalse((self.folder / f"{name}.csv").exists())
                result = self.index(name, damaged="leave-out")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(len(formats.sizes_of(self.folder / f"{name}.csv")), 23)
                self.assertIn("left out", result.stdout)

    def test_tables_that_cannot_be_read_are_refused(self):
        import pyarrow
        import pyarrow.parquet

        parquet = self.folder / "x.parquet"
        parquet.write_bytes(b"PAR1 and nothing else PAR1")
        self.expect_failure(2, ["x.parquet", "damaged"], "index", "x.parquet", "-o", "x.csv")
        pyarrow.parquet.write_table(pyarrow.table({"words": ["a"]}), parquet)
        words = ["x.parquet", "no column of text", "words"]
        self.expect_failure(2, words, "index", "x.parquet", "-o", "x.csv")
        table = pyarrow.table({"image": [{"path": "none.png"}], "text": ["a"]})
        pyarrow.parquet.write_table(table, parquet)
        words = ["x.parquet', row 0, image 0", "none.png"]
        self.expect_failure(2, words, "index", "x.parquet", "-o", "x.csv")
        # A truncated one, at any length.
        formats.write_parquet(self.samples, self.folder)
        whole = (self.folder / "table.parquet").read_bytes()
        for length in (0, 7, len(whole) // 2, len(whole) - 1):
            parquet.write_bytes(whole[:length])
            self.expect_failure(2, ["x.parquet"], "index", "x.parquet", "-o", "x.csv")

    def test_without_pyarrow_the_way_out_is_named(self):
        formats.write_parquet(self.samples, self.folder)
        lame = self.python_without("pyarrow", "entrain.tables")
        with mock.patch.dict(os.environ, ENTRAIN_PYTHON=lame):
            words = ["pip install pyarrow", "ENTRAIN_PYTHON"]
            self.expect_failure(
                3, words, "index", "table.parquet", "-o", "x.csv", "--damaged", "leave-out"
            )


if __name__ == "__main__":
    cli_fixture.main()
