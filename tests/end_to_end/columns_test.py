"""Data whose columns, keys and members have other names: `--columns`, and folders that Energon prepared."""

import json
import shutil
import unittest
from pathlib import Path

import cli_fixture
import formats
from cli_fixture import CliTest

try:
    import pyarrow
    import pyarrow.parquet
except ImportError as error:
    raise unittest.SkipTest(f"{error.name} is missing") from error

NAMES = ["--columns", "question=query", "--columns", "answer=label", "--columns", "image=pictures"]


class Columns(CliTest):
    def setUp(self):
        super().setUp()
        self.make_data(count=24)
        self.samples = formats.read_shards([self.folder / "train-000000.tar"])
        self.expected = formats.sizes_of(self.folder / "train.csv")

    def write_table(self, name, **columns):
        table = formats.table_of(self.samples).rename_columns(
            ["pictures", "audio", "query", "label"]
        )
        for key, values in columns.items():
            table = table.append_column(key, pyarrow.array(values))
        if name.endswith(".parquet"):
            pyarrow.parquet.write_table(table, self.folder / name, row_group_size=10)
        else:
            with pyarrow.ipc.new_file(self.folder / name, table.schema) as writer:
                writer.write_table(table, max_chunksize=7)
        return name

    def write_records(self):
        formats.write_llava(self.samples, self.folder)
        records = []
        for name, media, text in self.samples:
            images = [file for _, file, _ in media]
            record = {"query": text["question"], "label": [text["answer"], "x"], "id": name}
            records.append(record | ({"pictures": images} if images else {}))
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (self.folder / "records.jsonl").write_text(lines)
        return "records.jsonl"

    def write_shard(self):
        members = []
        for name, media, text in self.samples:
            members += [(f"{file.rsplit('.', 1)[0]}.jpg", content) for _, file, content in media]
            words = {"query": text["question"], "label": text["answer"]}
            members.append((f"{name}.json", json.dumps(words).encode()))
            members.append((f"{name}.mask.png", b"none of the sample's"))
        cli_fixture.write_members(self.folder / "shard.tar", members)
        names = ["question=query", "answer=label", "image=.jpg,.0.jpg", "image=.1.jpg"]
        return [part for name in names for part in ("--columns", name)]

    def index(self, output, *arguments):
        return self.expect_success("index", *arguments, "-o", output, "-m", "model.toml")

    def losses(self, index):
        settings = [f"data.train={index}", f"data.validation={index}", f"output={index}-run"]
        changes = [part for value in settings for part in ("--set", value)]
        self.expect_success("train", "run.toml", *changes)
        lines = (self.folder / f"{index}-run" / "metrics.jsonl").read_text().splitlines()
        return [(row["step"], row["loss"]) for row in map(json.loads, lines) if "loss" in row]

    def test_every_format_reads_the_columns_that_are_named_when_indexed_and_when_trained(self):
        self.write_run(steps=3)
        losses = self.losses("train.csv") if self.has_engine() else None
        self.index("parquet.csv", self.write_table("t.parquet"), *NAMES)
        self.index("arrow.csv", self.write_table("u.arrow"), *NAMES)
        self.index("records.csv", self.write_records(), *NAMES, "--media", "files")
        self.index("shard.csv", "shard.tar", *self.write_shard())
        for name in ("parquet", "arrow", "records", "shard"):
            with self.subTest(name):
                self.assertEqual(formats.sizes_of(self.folder / f"{name}.csv"), self.expected)
                if losses:
                    self.assertEqual(self.losses(f"{name}.csv"), losses)
        # Merged, each row still says what its file calls them; the merged index is verified.
        self.index("both.csv", "a=parquet.csv", "b=records.csv", "c=train.csv", "--verify")
        self.assertEqual(formats.sizes_of(self.folder / "both.csv"), 3 * self.expected)
        if losses:
            self.losses("both.csv")

    def test_a_table_without_a_column_is_not_damaged(self):
        table = formats.table_of(self.samples)
        lacking = table.rename_columns(["pictures", "audio", "query", "lable"])
        pyarrow.parquet.write_table(lacking, self.folder / "lacking.parquet")
        with pyarrow.ipc.new_file(self.folder / "lacking.arrow", lacking.schema) as writer:
            writer.write_table(lacking)
        sound = self.write_table("sound.parquet")
        there = "the file has pictures, audio, query, lable"
        for name in ("lacking.parquet", "lacking.arrow"):
            call = ["index", name, sound, "-o", "x.csv", "--damaged", "leave-out"]
            words = [name, "no column 'label'", there]
            self.expect_failure(2, words, *call, *NAMES)
            self.expect_failure(2, [name, "no column of text", there], *call)
        self.assertFalse((self.folder / "x.csv").exists())

    def test_unknown_columns_are_refused_with_those_that_there_are(self):
        self.write_table("t.parquet")
        self.write_records()
        self.write_shard()
        shard = ["index", "shard.tar", "-o", "x.csv", "--columns", "image=.png2"]
        self.expect_failure(2, ["no sample has '.png2'", "0.jpg, 1.jpg, jpg, json"], *shard)
        call = ["index", "t.parquet", "-o", "x.csv", "--columns"]
        there = "the file has pictures, audio, query, label"
        self.expect_failure(2, ["no column 'lable'", there], *call, "answer=lable")
        self.expect_failure(2, ["no column 'picture'", there], *call, "image=picture")
        self.expect_failure(2, ["'anwser'", "question, answer"], *call, "anwser=label")
        call[1] = "records.jsonl"
        self.expect_failure(2, ["no record has 'picture'", "pictures"], *call, "image=picture")
        words = ["nothing in 'lable'", "there are query, label"]
        self.expect_failure(2, words, *call, "answer=lable")

    def test_columns_of_bytes_that_are_not_read_are_named(self):
        self.write_table("t.parquet", back=[b"x"] * 24)
        said = self.index("x.csv", "t.parquet", *NAMES)
        self.assertIn("column 'back' holds bytes and is not read", said.stdout + said.stderr)
        # A table whose audio is known, and then one of which no medium is.
        said = self.index("y.csv", "t.parquet", *NAMES[:4])
        self.assertIn("column 'pictures' holds bytes", said.stdout + said.stderr)
        table = pyarrow.parquet.read_table(self.folder / "t.parquet").drop_columns(["audio"])
        pyarrow.parquet.write_table(table, self.folder / "u.parquet")
        words = ["column 'pictures' holds bytes", "--columns image=pictures"]
        self.expect_failure(2, words, "index", "u.parquet", "-o", "z.csv", *NAMES[:4])
        # Several columns are one list; `image=` says that there are none.
        media = [content for _, media, _ in self.samples for _, _, content in media]
        self.write_table("t.parquet", back=[media[0]] * 24)
        self.index("two.csv", "t.parquet", *NAMES, "--columns", "image=back")
        counts = [int(row["n_images"]) for row in formats.sizes_of(self.folder / "two.csv")]
        self.assertEqual(counts, [int(row["n_images"]) + 1 for row in self.expected])
        self.index("none.csv", "t.parquet", *NAMES[:4], "--columns", "image=")
        self.assertEqual(
            {row["n_images"] for row in formats.sizes_of(self.folder / "none.csv")}, {"0"}
        )

    def test_of_a_list_of_answers_the_first_counts(self):
        answers = [[text["answer"], "another"] for _, _, text in self.samples]
        self.write_table("t.parquet", answers=answers)
        names = [*NAMES[:2], "--columns", "answer=answers", *NAMES[4:]]
        self.index("x.csv", "t.parquet", *names)
        self.assertEqual(formats.sizes_of(self.folder / "x.csv"), self.expected)
        self.write_table("t.parquet", answers=[[]] * 24)
        words = ["row 0", "'answer' is a list", "this is empty"]
        self.expect_failure(2, words, "index", "t.parquet", "-o", "y.csv", *names)

    def test_media_are_read_from_columns_of_every_type(self):
        contents = [content for _, media, _ in self.samples for _, _, content in media]
        one = [None if i % 5 == 3 else contents[i % len(contents)] for i in range(40)]
        several = [None if i % 7 == 2 else contents[: i % 3] for i in range(40)]
        structs = [content and {"bytes": content, "path": "x.png"} for content in one]
        plain, wide = pyarrow.binary(), pyarrow.large_binary()
        struct = pyarrow.struct([("path", pyarrow.string()), ("bytes", wide)])
        columns = {
            "plain": (one, plain),
            "wide": (one, wide),
            "struct": (structs, struct),
            "list": (several, pyarrow.list_(plain)),
            "wide-list": (several, pyarrow.large_list(wide)),
            "dictionary": (one, pyarrow.dictionary(pyarrow.int32(), plain)),
            "view": (one, pyarrow.binary_view()),
        }
        rest = {"question": ["q"] * 40, "answer": ["a"] * 40}
        expected = {
            "one": [int(content is not None) for content in one],
            "several": [len(found or []) for found in several],
        }
        for name, (values, kind) in columns.items():
            table = pyarrow.table({"image": pyarrow.array(values, kind), **rest})
            for compression in (None, "lz4"):
                options = pyarrow.ipc.IpcWriteOptions(compression=compression)
                file = self.folder / f"{name}-{compression}.arrow"
                with pyarrow.ipc.new_stream(file, table.schema, options=options) as writer:
                    writer.write_table(table.slice(1), max_chunksize=16)
                with self.subTest(file.name):
                    self.index("x.csv", file.name, "--force", "--verify")
                    rows = formats.sizes_of(self.folder / "x.csv")
                    counts = expected["several" if "list" in name else "one"]
                    self.assertEqual([int(row["n_images"]) for row in rows], counts[1:])

    def test_rows_that_are_damaged_leave_the_others(self):
        image = cli_fixture.png(20, 30)
        values = [[None] if row in (3, 11) else [image, image[:-row]] for row in range(24)]
        values = [[image] if row and row % 2 else value for row, value in enumerate(values)]
        values[3] = [None]
        pictures = pyarrow.array(values, pyarrow.list_(pyarrow.binary()))
        content = {"pictures": pictures, "query": ["q"] * 24, "label": ["a"] * 24}
        pyarrow.parquet.write_table(pyarrow.table(content), self.folder / "t.parquet")
        said = self.index("x.csv", "t.parquet", "--damaged", "leave-out", "--json", *NAMES)
        left_out = {row["id"]: row["reason"] for row in json.loads(said.stdout)["left_out_samples"]}
        self.assertEqual(set(left_out), {f"t/{row}" for row in (*range(0, 24, 2), 3)})
        self.assertIn("'pictures' has an empty entry", left_out["t/3"])
        self.assertIn("row 8, image 1", left_out["t/8"])


class Energon(CliTest):
    """Against a folder that the real tool prepared (tests/golden/energon/make_energon.py)."""

    def setUp(self):
        super().setUp()
        golden = Path(self.root) / "tests" / "golden" / "energon"
        shutil.copytree(golden, self.folder / "vqa", ignore=shutil.ignore_patterns("*.py"))

    def write_yaml(self, text):
        (self.folder / "vqa/.nv-meta/dataset.yaml").write_text(text)

    def rows(self, *arguments):
        self.expect_success("index", "vqa", "-o", "x.csv", "--force", *arguments)
        return formats.sizes_of(self.folder / "x.csv")

    def test_field_maps_are_read_and_excluded_shards_are_not(self):
        rows = self.rows("--verify")
        sizes = [row["image_sizes"] for row in rows]
        self.assertEqual(sizes, ["31x20", "32x20", "33x20", "34x20", "35x20", "20x36"])
        self.assertEqual(
            {(row["prompt_chars"], row["response_chars"]) for row in rows}, {("2", "2")}
        )
        split = self.folder / "vqa/.nv-meta/split.yaml"
        split.write_text(split.read_text().replace("exclude: []", "exclude:\n- shard_1.tar"))
        split.write_text(
            split.read_text().replace("- shard_{0..1}.tar", "- shard_0.tar\n  - shard_1.tar")
        )
        self.assertEqual(len(self.rows()), 3)

    def test_media_metadata_are_trusted_on_request(self):
        shard = self.folder / "vqa/shard_0.tar"
        content = bytearray(shard.read_bytes())
        at = content.index(b"\xff\xd8\xff")
        content[at : at + 3] = b"no!"  # the first image cannot be opened
        shard.write_bytes(content)
        self.expect_failure(2, ["0000.jpg"], "index", "vqa", "-o", "y.csv")
        sizes = [row["image_sizes"] for row in self.rows("--trust-metadata")]
        # Sizes as stored: nothing says that the last image is turned.
        self.assertEqual(sizes, ["31x20", "32x20", "33x20", "34x20", "35x20", "36x20"])
        both = ["--trust-metadata", "--verify"]
        self.expect_failure(2, ["--trust-metadata"], "index", "vqa", "-o", "y.csv", *both)
        (self.folder / "vqa/.nv-meta/index.sqlite").write_bytes(b"SQLite? no")
        words = ["index.sqlite", "prepare-media"]
        self.expect_failure(2, words, "index", "vqa", "-o", "y.csv", "--trust-metadata")
        (self.folder / "vqa/.nv-meta/index.sqlite").unlink()
        self.expect_failure(2, words, "index", "vqa", "-o", "y.csv", "--trust-metadata")

    def test_training_refuses_an_image_turned_behind_the_metadata(self):
        if not self.has_engine():
            self.skipTest("built without the engine")
        # Only the last image is turned by its EXIF block.
        data = ["index", "vqa", "-o", "train.csv", "--model", "model.toml", "--trust-metadata"]
        self.expect_success(*data)
        self.write_run(steps=1, global_batch=6)
        words = ["shard_1", "20x36 pixels, the index says 36x20"]
        self.expect_failure(2, words, "train", "run.toml")
        self.expect_success(*data[:-1], "--force")
        self.expect_success("train", "run.toml")

    def test_what_cannot_be_expressed_is_refused_and_columns_are_the_way_out(self):
        self.write_yaml("sample_type: {__module__: megatron.energon, __class__: ImageSample}\n")
        call = ["index", "vqa", "-o", "y.csv"]
        self.expect_failure(2, ["'ImageSample' cannot be expressed", "--columns"], *call)
        names = ["image=.jpg", "caption=.json[answers][1]"]
        rows = self.rows(*(part for name in names for part in ("--columns", name)))
        self.assertEqual({row["response_chars"] for row in rows}, {"5"})


if __name__ == "__main__":
    cli_fixture.main()
