"""Indexes of anyone's rows: columns, files, chats, sizes, what is refused, saving."""

import importlib.util
import io
import json
import os
import tempfile
import unittest
from pathlib import Path

import entrain
from entrain import Index

MODEL = Path(__file__).resolve().parents[2] / "configs/models/qwen2.5-vl-llama-1b.toml"
NAN = float("nan")


def needs(*modules):
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"{', '.join(missing)} not installed")


def of(rows, **columns):
    return Index.from_rows(rows, progress=False, **columns)


def llava(name, asked, answer, **more):
    turns = [{"from": "human", "value": asked}, {"from": "gpt", "value": answer}]
    return {"id": name, "conversations": turns, **more}


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def expect(self, words, call, kind=ValueError):
        with self.assertRaises(kind) as caught:
            call()
        for word in words:
            self.assertIn(word, str(caught.exception))
        return str(caught.exception)


class Named(Case):
    def test_columns_have_to_be_in_some_row(self):
        rows = [{"img": [], "q": "a b", "a": "c"}, {"extra": 1, "q": "a", "a": "c"}]
        for named in ({"images": "imgs"}, {"prompt": "question"}, {"id": "name"}):
            words = [f"no sample has a column '{next(iter(named.values()))}'", "img, q, a, extra"]
            given = {"prompt": "q", "response": "a"} | named
            self.expect(words, lambda given=given: of(rows, **given))
            self.expect(words, lambda given=given: of(iter(rows), **given))
        self.expect(["'images'"], lambda: of(rows, images="images", prompt="q"))
        self.assertEqual(len(of(rows, images="img", prompt="q", response="a")), 2)

    def test_columns_are_known_before_images_are_read(self):
        rows = [{"img": "absent.png", "q": "a"}] * 2
        self.expect(["'qq'"], lambda: of(rows, images="img", prompt="qq"))

    def test_counts_serve_instead_of_their_column(self):
        row = of([{"q_tokens": 3, "a_tokens": 4}], prompt="q", response="a").rows[0]
        self.assertEqual(row["prompt_tokens_estimate"], "3")
        self.assertEqual(row["response_tokens_estimate"], "4")

    def test_columns_may_be_none(self):
        rows = [{"id": "a", "image": "absent.png", "prompt": "b"}, {"id": "a", "prompt": "c"}]
        self.expect(["'image'", "images='image'", "images=''"], lambda: of(rows))
        self.expect(["'a' is there twice", "id=''"], lambda: of(rows, images=""))
        index = of(rows, images="", id="")
        self.assertEqual(index.ids, ["0", "1"])
        self.assertEqual(index.rows[0]["n_images"], "0")


class Files(Case):
    def test_of_rows_are_read_as_rows(self):
        rows = [{"id": "a", "prompt_tokens": 3, "images": ["30x50"]}, {"id": "ü", "prompt": "abcd"}]
        expected = of(rows).rows
        lines = self.folder / "train.jsonl"
        lines.write_text("\n".join([json.dumps(rows[0]), "", json.dumps(rows[1])]) + "\n")
        array = self.folder / "train.json"
        array.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
        for path in (lines, str(lines), array):
            self.assertEqual(Index.of(path).rows, expected)
        self.assertEqual(entrain.costs(lines, MODEL).tokens[1], 1)

    @needs("pyarrow")
    def test_of_parquet_are_read_as_rows(self):
        import pyarrow
        from pyarrow import parquet

        rows = [{"id": "a", "images": ["30x50", "3x5"], "prompt": "x"},
                {"id": "b", "images": None, "prompt": "y"}]  # fmt: skip
        parquet.write_table(pyarrow.Table.from_pylist(rows), self.folder / "t.parquet")
        self.assertEqual(Index.of(self.folder / "t.parquet").rows, of(rows).rows)

    @needs("pandas", "pyarrow")
    def test_of_pandas_hold_arrays_and_nan(self):
        import pandas

        rows = [
            llava("a", "<image>\nwhat?", "this", image=["30x50"], response_tokens=4),
            llava("b", "why?", "so", image=None, response_tokens=None),
        ]
        pandas.DataFrame(rows).to_parquet(self.folder / "t.parquet")
        table = pandas.read_parquet(self.folder / "t.parquet")
        found = Index.of(table, images="image", messages="conversations").rows
        self.assertEqual(found, of(rows, images="image", messages="conversations").rows)
        self.assertEqual([row["response_tokens_estimate"] for row in found], ["4", "1"])

    def test_that_cannot_be_read_are_refused_at_once(self):
        def file(name, text):
            (self.folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
            return self.folder / name

        self.expect(["x.jsonl:2: no JSON"], lambda: Index.of(file("x.jsonl", '{"prompt": "a"}\n{')))
        self.expect(["x.json", "list of objects"], lambda: Index.of(file("x.json", "{}")))
        self.expect(
            ["row 1", "int"], lambda: Index.of(file("y.json", '[{"prompt": "a"}, 3]')), TypeError
        )
        self.expect(["z.jsonl", "no such file"], lambda: Index.of(self.folder / "z.jsonl"))
        line = json.dumps({"prompt": "a, b" * 1000})
        message = self.expect(["no index (CSV)", "sample_id"], lambda: Index.of(file("rows", line)))
        self.assertLess(len(message), 400)
        self.expect(["x.png", "sample_id"], lambda: Index.of(file("x.png", b"\x89PNG\r\n\x1a\n\0")))
        self.expect(["from_shards"], lambda: Index.of(file("x.tar.gz", "")))
        self.expect(["from_shards", "folder"], lambda: Index.of(self.folder))
        header = "sample_id,n_images,image_sizes"
        self.expect(
            ["x.csv:1", "prompt_chars, response_chars", "prompt_tokens_estimate"],
            lambda: Index.of(file("x.csv", header + "\na,0,\n")),
        )
        own = file("own.csv", "image,q\na.png,why\n")
        self.expect(["own.csv", "images", "pandas.read_csv"], lambda: Index.of(own, images="image"))


class Chats(Case):
    def test_of_from_and_value_are_counted_without_marks(self):
        rows = [
            llava("a", "<image>\nwhat is this?", "a cat", image="30x50"),
            llava("b", "12345678", "four"),
            llava("c", "<image><image>", "two", image=["3x5", "6x7"]),
        ]
        found = of(rows, images="image", messages="conversations").rows
        self.assertEqual([row["n_images"] for row in found], ["1", "0", "2"])
        self.assertEqual([row["prompt_chars"] for row in found], ["13", "8", "0"])
        self.assertEqual([row["prompt_tokens_estimate"] for row in found], ["4", "2", "0"])
        self.assertEqual([row["response_tokens_estimate"] for row in found], ["2", "1", "1"])

    def test_of_from_and_value_are_rendered_by_the_template(self):
        class Tokenizer:
            chat_template = "yes"
            parts = False

            def __call__(self, text):
                return text.split()

            def apply_chat_template(self, messages, tokenize):
                words = []
                for message in messages:
                    content = message["content"]
                    if self.parts:
                        content = " ".join(part["text"] for part in content)
                    words += [message["role"], *content.split()]
                return words if tokenize else " ".join(words)

        rows = [llava("a", "<image>\none two", "three", image="3x5")]
        for parts in (False, True):
            tokenizer = Tokenizer()
            tokenizer.parts = parts
            found = of(rows, images="image", messages="conversations", tokenizer=tokenizer).rows[0]
            self.assertEqual(found["prompt_tokens_estimate"], "4")  # user one two assistant
            self.assertEqual(found["response_tokens_estimate"], "1")

    def test_have_the_media_of_the_sample(self):
        marked = [llava("a", "<image>\nwhat?", "that")]
        self.expect(
            ["'a'", "1 places for image", "has 0"], lambda: of(marked, messages="conversations")
        )
        parts = [{"type": "image"}, {"type": "text", "text": "what?"}]
        chat = [{"role": "user", "content": parts}, {"role": "assistant", "content": "that"}]
        self.expect(["1 places for image"], lambda: of([{"messages": chat}]))
        found = of([{"messages": chat, "images": ["3x5"]}]).rows[0]
        self.assertEqual((found["n_images"], found["prompt_chars"]), ("1", "5"))

    def test_of_other_forms_are_refused(self):
        for turns, words in (
            ([{"speaker": "human", "text": "a"}], ["'0'", "from and value", "speaker"]),
            ([{"from": "narrator", "value": "a"}], ["'0'", "narrator", "allowed", "human"]),
            ([{"from": "human", "value": 3}], ["value", "a number"]),
            ([], ["one turn or more"]),
            ("a", ["type str"]),
        ):
            self.expect(words, lambda turns=turns: of([{"messages": turns}]))


class Sizes(Case):
    def test_may_be_absent(self):
        rows = [{"images": value, "prompt": "a"} for value in (None, NAN, "", [], [None], [NAN])]
        self.assertEqual([row["n_images"] for row in of(rows).rows], ["0"] * 6)
        self.assertEqual(of([{"messages": NAN, "prompt": NAN}]).rows[0]["prompt_chars"], "0")

    def test_may_be_lists_as_json_has_them(self):
        rows = [{"images": [640, 480]}, {"images": [[640, 480.0], [3, 5]]}]
        sizes = [row["image_sizes"] for row in of(rows).rows]
        self.assertEqual(sizes, ["640x480", "640x480;3x5"])

    def test_may_be_of_numpy(self):
        import numpy

        rows = [{"images": numpy.array([[3, 5], [6, 7]]), "prompt_tokens": numpy.int64(4)}]
        found = of(rows).rows[0]
        self.assertEqual((found["image_sizes"], found["prompt_tokens_estimate"]), ("3x5;6x7", "4"))

    @needs("PIL")
    def test_of_paths_are_relative_to_a_folder(self):
        from PIL import Image

        (self.folder / "images").mkdir()
        Image.new("RGB", (30, 50)).save(self.folder / "images" / "a.png")
        lines = self.folder / "train.jsonl"
        lines.write_text(json.dumps({"images": ["images/a.png"]}))
        self.assertEqual(Index.of(lines).rows[0]["image_sizes"], "30x50")
        lines.write_text(json.dumps({"images": [{"path": "a.png"}, "a.png"]}))
        found = Index.of(lines, images_folder=self.folder / "images")
        self.assertEqual(found.rows[0]["image_sizes"], "30x50;30x50")
        self.expect(["'0'", "image 1 of 2", "a.png", "No such file"], lambda: Index.of(lines))

    @needs("PIL")
    def test_of_images_are_turned_upright_by_exif(self):
        from PIL import Image

        for orientation in range(1, 9):
            exif = Image.Exif()
            exif[0x0112] = orientation
            images = []
            for form in ("jpeg", "png", "webp"):
                encoded = io.BytesIO()
                Image.new("RGB", (3, 5)).save(encoded, form, exif=exif)
                images += [encoded.getvalue(), Image.open(encoded)]
            sizes = of([{"id": "x", "images": images}]).rows[0]["image_sizes"]
            self.assertEqual(set(sizes.split(";")), {"3x5" if orientation < 5 else "5x3"})

    @needs("PIL")
    def test_of_images_that_cannot_be_read_say_which(self):
        from PIL import Image

        encoded = io.BytesIO()
        Image.new("RGB", (3, 5)).save(encoded, "png")
        rows = [{"id": "x", "images": [encoded.getvalue(), b"no image"]}]
        message = self.expect(["'x'", "image 2 of 2", "8 bytes"], lambda: of(rows))
        self.assertNotIn("BytesIO", message)

    def test_and_numbers_out_of_range_are_refused_at_once(self):
        for row, words in (
            ({"images": [(0, 4)]}, ["image 1 of 1", "width: 0 given"]),
            ({"images": [(4, 2.5)]}, ["height: 2.5 given"]),
            ({"images": [(4, 5, 3)]}, ["width, height"]),
            ({"images": 7}, ["images", "int"]),
            ({"response_tokens": -4}, ["response_tokens: -4 given"]),
            ({"response_tokens": 4.7}, ["response_tokens: 4.7 given", "whole"]),
            ({"response_tokens": float("inf")}, ["response_tokens: inf given"]),
            ({"prompt_tokens": "many"}, ["prompt_tokens: 'many' given"]),
            ({"audio_seconds": [1.5, 0]}, ["audio_seconds: 0 given"]),
            ({"audio_seconds": [NAN]}, ["audio_seconds: nan given"]),
        ):
            self.expect(["sample 's'", *words], lambda row=row: of([{"id": "s", **row}]))
        row = of([{"response_tokens": 4.0, "prompt_tokens": "12"}]).rows[0]
        self.assertEqual(row["response_tokens_estimate"], "4")
        self.assertEqual(row["prompt_tokens_estimate"], "12")


class Saved(Case):
    def test_indexes_are_read_again(self):
        index = of([{"id": "a", "images": ["30x50"], "response_tokens": 4}, {"prompt": "why"}])
        path = self.folder / "new" / "sizes.csv"
        index.save(path)
        again = Index.of(path)
        for name in ("sample_id", "image_sizes", "response_tokens_estimate", "prompt_chars"):
            self.assertEqual([r[name] for r in again.rows], [r[name] for r in index.rows])
        of([{"prompt": "b"}]).save(path)
        self.assertEqual(len(Index.of(path)), 1)
        self.assertEqual(os.listdir(path.parent), ["sizes.csv"])

    def test_indexes_replace_indexes_alone(self):
        path = self.folder / "precious.csv"
        path.write_text("name,value\n")
        self.expect(["precious.csv", "not an index"], lambda: of([{"prompt": "a"}]).save(path))
        self.assertEqual(path.read_text(), "name,value\n")
        of([{"prompt": "a"}]).save(path, force=True)
        self.assertEqual(len(Index.of(path)), 1)


if __name__ == "__main__":
    unittest.main()
