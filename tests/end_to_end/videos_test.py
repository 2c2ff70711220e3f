"""Files of video: what the index says of them, which frames training reads, and what is refused."""

import base64
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import cli_fixture
import formats
from cli_fixture import CliTest, write_members

VIDEO = """
temporal_patch_size = 2
[vision.video]
sampling = "{}"
"""


class VideoTest(CliTest):
    def setUp(self):
        super().setUp()
        try:
            import videos
        except ImportError as missing:
            self.skipTest(f"{missing.name} is not installed")
        self.videos = videos
        named = mock.patch.dict(os.environ, ENTRAIN_PYTHON=sys.executable)
        named.start()
        self.addCleanup(named.stop)

    def rows(self, index):
        return formats.sizes_of(self.folder / index)

    def index(self, *data, output="train.csv", more=()):
        self.expect_success("index", *data, "-o", output, "--force", *more)
        return self.rows(output)


def text(**more):
    return json.dumps({"text": "red", **more}).encode()


def write_shard(path, clips):
    members = []
    for clip in clips:
        members += [(f"{clip.name}.{clip.extension}", clip.content), (f"{clip.name}.json", text())]
    write_members(path, members)
    return path.name


def write_records(folder, clips):
    """Clips as files of their own, and every other one inside the JSON."""
    (folder / "clips").mkdir(exist_ok=True)
    records = []
    for number, clip in enumerate(clips):
        file = f"{clip.name}.{clip.extension}"
        (folder / "clips" / file).write_bytes(clip.content)
        inside = {"base64": base64.b64encode(clip.content).decode()}
        records.append({"id": clip.name, "text": "red", "video": inside if number % 2 else file})
    (folder / "records.json").write_text(json.dumps(records))
    return ["records.json", "--media", "clips"]


def write_parquet(folder, clips):
    import pyarrow
    import pyarrow.parquet

    column = [[{"bytes": clip.content, "path": None}] for clip in clips]
    table = pyarrow.table({"videos": column, "text": ["red"] * len(clips)})
    pyarrow.parquet.write_table(table, folder / "table.parquet", row_group_size=4)
    return ["table.parquet"]


def frame_members(clip, name, video=0):
    """Every frame as a PNG."""
    from PIL import Image

    for number, pixels in enumerate(clip.frames()):
        png = io.BytesIO()
        Image.fromarray(pixels).save(png, "png")
        yield f"{name}.{video}.{number:04}.png", png.getvalue()


def write_frames(path, clips):
    """At the files' rates."""
    members = []
    for clip in clips:
        members += frame_members(clip, clip.name)
        members.append((f"{clip.name}.json", text(fps=clip.fps())))
    write_members(path, members)
    return path.name


def write_pairs(path, clips, as_files):
    """Samples of two videos, of which those numbered in `as_files` are files."""
    members = []
    for number, pair in enumerate(zip(clips[::2], clips[1::2])):
        for video, clip in enumerate(pair):
            if video in as_files:
                members.append((f"p{number}.{video}.{clip.extension}", clip.content))
            else:
                members += frame_members(clip, f"p{number}", video)
        members.append((f"p{number}.json", text(fps=[clip.fps() for clip in pair])))
    write_members(path, members)
    return path.name


class Index(VideoTest):
    def test_every_kind_of_file_has_the_frames_that_decoding_yields(self):
        clips = self.videos.every_kind()
        self.assertGreaterEqual(len(clips), 50)
        expected = []
        for clip in clips:
            frames = clip.frames()
            height, width, _ = frames[0].shape
            expected.append((str(len(frames)), f"{width}x{height}", len(frames) / clip.fps()))
        found = [
            self.index(*write_records(self.folder, clips)),
            self.index(*write_records(self.folder, clips), more=["--verify"]),
            self.index(*write_parquet(self.folder, clips)),
        ]
        for rows in found:
            sizes = [
                (row["video_frames"], row["video_size"], float(row["video_seconds"]))
                for row in rows
            ]
            self.assertEqual(sizes, expected)
        # A GIF of a shard is an image; the index itself is verified too.
        is_kept = [clip.extension != "gif" for clip in clips]
        clips = [clip for clip in clips if clip.extension != "gif"]
        rows = self.index(write_shard(self.folder / "clips-0.tar", clips))
        self.assertEqual(self.index("train.csv", output="again.csv", more=["--verify"]), rows)
        self.assertEqual(rows, [row for row, kept in zip(found[0], is_kept) if kept])

    def test_a_file_is_measured_as_it_is_shown(self):
        clips = [
            self.videos.Clip(f"r{turned}", "mp4", self.turned(turned)) for turned in (90, 180, -90)
        ]
        rows = self.index(write_shard(self.folder / "clips-0.tar", clips))
        self.assertEqual([row["video_size"] for row in rows], ["48x64", "64x48", "48x64"])
        clips = [self.videos.Clip("r45", "mp4", self.turned(45))]
        write_shard(self.folder / "clips-0.tar", clips)
        words = ["r45.mp4", "turned by 45 degrees"]
        self.expect_failure(2, words, "index", "clips-0.tar", "-o", "x.csv")

    def turned(self, degrees):
        return self.videos.encode(*self.videos.ENCODINGS[0], shape=(64, 48, 5), turned=degrees)

    def test_headers_that_lie_change_nothing(self):
        clip = self.videos.every_kind()[0]
        for box, place in (b"mvhd", 16), (b"mdhd", 16), (b"tkhd", 20), (b"tkhd", 76):
            lying = bytearray(clip.content)
            at = lying.index(box) + 4 + place
            lying[at : at + 4] = (1000000).to_bytes(4)
            clips = [clip, self.videos.Clip("lying", "mp4", bytes(lying))]
            honest, found = self.index(write_shard(self.folder / "clips-0.tar", clips))
            self.assertEqual(found["video_frames"], honest["video_frames"])
            self.assertEqual(found["video_size"], honest["video_size"])

    def test_damaged_files_are_refused_by_name_or_left_out(self):
        videos = self.videos
        shape = (64, 48, 23)
        first = self.folder / "first.mp4"
        options = {"movflags": "faststart"}
        moov_first = videos.encode(
            *videos.ENCODINGS[1], shape=shape, container_options=options, path=first
        )
        self.assertLess(moov_first.index(b"moov"), moov_first.index(b"mdat"))
        whole = [
            (encoding[1], videos.encode(*encoding, shape=shape))
            for encoding in (videos.ENCODINGS[i] for i in (1, 4, 5, 6, 9))
        ]
        whole += [("mp4", moov_first), ("gif", videos.encode(*videos.ENCODINGS[11], shape=shape))]
        damaged = [("empty", "mp4", b""), ("words", "mp4", b"no video at all")]
        for number, (extension, content) in enumerate(whole):
            for name, end in ("half", len(content) // 2), ("end", -1), ("most", -200):
                damaged.append((f"{name}{number}", extension, content[:end]))
        damaged.append(("sound", "mp4", self.sound_alone()))
        middle = bytearray(whole[0][1])
        at = middle.index(b"mdat") + 4
        middle[at : at + 900] = b"\xff" * 900
        damaged.append(("frames", "mp4", bytes(middle)))
        fine = videos.Clip("fine", "mp4", whole[0][1])
        clips = [videos.Clip(*each) for each in damaged]
        for clip in clips:
            with self.subTest(clip.name):
                data = write_records(self.folder, [clip])
                words = [f"'clips/{clip.name}.{clip.extension}'"]
                self.expect_failure(2, words, "index", *data, "-o", "x.csv")
        data = write_records(self.folder, [*clips, fine])
        result = self.expect_success(
            "index", *data, "-o", "x.csv", "--damaged", "leave-out", "--json"
        )
        left_out = json.loads(result.stdout)["left_out_samples"]
        self.assertEqual(
            [row["id"].split("/")[-1] for row in left_out], [clip.name for clip in clips]
        )
        self.assertEqual(len(self.rows("x.csv")), 1)

    def sound_alone(self):
        target = io.BytesIO()
        with self.videos.av.open(target, "w", "mp4") as container:
            self.videos.add_silence(
                container, container.add_stream("aac", rate=48000, layout="mono")
            )
        return target.getvalue()

    def test_without_pyav_the_way_out_is_named(self):
        clip = self.videos.every_kind()[0]
        write_shard(self.folder / "clips-0.tar", [clip])
        lame = self.python_without("av", "entrain.videos")
        with mock.patch.dict(os.environ, ENTRAIN_PYTHON=lame):
            words = ["pip install av", "ENTRAIN_PYTHON"]
            self.expect_failure(3, words, "index", "clips-0.tar", "-o", "x.csv")


class Frames(VideoTest):
    """The process alone: frames in any order are those of decoding from the beginning."""

    def ask(self, requests):
        """Answers of `python -m entrain.videos`: documents, and bytes of frames."""
        packages = Path(self.entrain).parents[2] / "python"
        process = subprocess.run(
            [sys.executable, "-m", "entrain.videos"],
            input=requests,
            capture_output=True,
            env=os.environ | {"PYTHONPATH": str(packages)},
            check=True,
        )
        output, answers = io.BytesIO(process.stdout), []
        while line := output.readline():
            document = json.loads(line)
            pixels = 3 * document.get("width", 0) * document.get("height", 0)
            answers.append((document, output.read(0 if "fps" in document else pixels)))
        return answers

    def test_frames_are_those_of_decoding_from_the_beginning(self):
        for clip in self.videos.every_kind():
            with self.subTest(clip.name):
                frames = clip.frames()
                count = len(frames)
                asked = [*range(0, count, 4), count - 1, 0, 0, count // 2, count // 3, 1]
                requests = json.dumps({"open": len(clip.content)}).encode() + b"\n" + clip.content
                for first in range(0, len(asked), 2):
                    pair = {"frames": asked[first : first + 2], "of": count}
                    requests += json.dumps(pair).encode() + b"\n"
                opened, *answers = self.ask(requests)
                self.assertEqual(opened[0], {})
                self.assertEqual(len(answers), len(asked))
                for index, (document, pixels) in zip(asked, answers):
                    self.assertNotIn("error", document)
                    self.assertTrue(pixels == frames[index].tobytes(), f"frame {index} differs")

    def test_turned_frames_are_upright(self):
        content = self.videos.encode(*self.videos.ENCODINGS[0], shape=(64, 48, 5), turned=90)
        with self.videos.av.open(io.BytesIO(content)) as container:
            frame = next(container.decode(video=0)).to_ndarray(format="rgb24")
        requests = json.dumps({"open": len(content)}).encode() + b"\n" + content
        requests += json.dumps({"frames": [0], "of": 5}).encode() + b"\n"
        document, pixels = self.ask(requests)[1]
        self.assertEqual(document, {"width": 48, "height": 64})
        # Counter-clockwise: the last column is the first row.
        self.assertEqual(pixels, frame.transpose(1, 0, 2)[::-1].tobytes())

    def test_another_file_than_the_indexed_one_is_refused(self):
        clip = self.videos.every_kind()[2]
        requests = json.dumps({"open": len(clip.content)}).encode() + b"\n" + clip.content
        requests += b'{"frames": [0], "of": 99}\n'
        self.assertIn("the index says 99", self.ask(requests)[1][0]["error"])


class Training(VideoTest):
    def clips(self):
        encodings = [self.videos.ENCODINGS[i] for i in (1, 0, 6, 9, 3)]
        shapes = [(32, 16, 9), (48, 32, 14), (32, 32, 23)]
        return [
            self.videos.Clip(
                f"v{i}",
                encodings[i % 5][1],
                self.videos.encode(*encodings[i % 5], shape=shapes[i % 3], seed=i, rate=8 + i),
            )
            for i in range(10)
        ]

    def losses(self, data, name, *changes):
        self.expect_success("index", *data, "-o", f"{name}.csv", "--model", "model.toml", "--force")
        self.write_run(vision=2, steps=3)
        settings = [f"data.train={name}.csv", f"data.validation={name}.csv", f"output={name}"]
        changes = [part for value in [*settings, *changes] for part in ("--set", value)]
        self.expect_success("train", "run.toml", "--overwrite", *changes)
        lines = (self.folder / name / "metrics.jsonl").read_text().splitlines()
        return [(row["step"], row["loss"]) for row in map(json.loads, lines) if "loss" in row]

    def test_files_train_as_their_frames_do(self):
        if not self.has_engine():
            self.skipTest("built without the engine")
        clips = self.clips()
        for sampling in ("stride", "spread"):
            model = cli_fixture.MODEL.replace("[llm]", VIDEO.format(sampling) + "[llm]")
            (self.folder / "model.toml").write_text(model)
            frames = write_frames(self.folder / "frames-0.tar", clips)
            expected = self.losses([frames], "frames")
            self.assertEqual(len(expected), 3)
            for name, data in [
                ("files", [write_shard(self.folder / "clips-0.tar", clips)]),
                ("records", write_records(self.folder, clips)),
                ("table", write_parquet(self.folder, clips)),
            ]:
                with self.subTest(f"{sampling}, {name}"):
                    self.assertEqual(self.losses(data, name), expected)
                    self.assertEqual(self.rows(f"{name}.csv"), self.rows("frames.csv"))

    def test_samples_may_have_videos_of_both_kinds(self):
        if not self.has_engine():
            self.skipTest("built without the engine")
        model = cli_fixture.MODEL.replace("[llm]", VIDEO.format("stride") + "[llm]")
        (self.folder / "model.toml").write_text(model)
        clips = self.clips() + self.clips()
        expected = None
        for as_files in (), (0, 1), (0,), (1,):
            shard = write_pairs(self.folder / "pairs-0.tar", clips, as_files)
            losses = self.losses([shard], "pairs", f"data.decode_threads={1 + len(as_files)}")
            self.assertEqual(losses, expected or losses)
            expected = losses

    def test_a_file_that_changed_is_noticed(self):
        if not self.has_engine():
            self.skipTest("built without the engine")
        model = cli_fixture.MODEL.replace("[llm]", VIDEO.format("stride") + "[llm]")
        (self.folder / "model.toml").write_text(model)
        clips = self.clips()
        self.losses(write_records(self.folder, clips), "records")
        (self.folder / "clips" / "v2.webm").write_bytes(clips[7].content[:-40])
        words = ["records/v2", "video 0", "it is cut"]
        settings = ["--set", "data.train=records.csv", "--set", "data.validation=records.csv"]
        self.expect_failure(2, words, "train", "run.toml", "--overwrite", *settings)


if __name__ == "__main__":
    cli_fixture.main()
