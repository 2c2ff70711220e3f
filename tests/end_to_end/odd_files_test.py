"""Hundreds of damaged and odd files: each is read, refused or left out by name, quickly and in little memory."""

import io
import json
import os
import struct
import subprocess
import tarfile
import time
import zlib

import cli_fixture
from cli_fixture import CliTest, png, write_members
from data_test import wav

MOST_SECONDS = 1.0  # of a processor, beside Python's start where tables or videos are read
LONGEST_WAIT = 10.0  # by the clock, on a busy machine
MOST_BYTES = 500 << 20
START = 4.0  # of Python, on a busy machine

TEXT = json.dumps({"question": "what?", "answer": "it"}).encode()


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_of(width, height, rows=b"", depth=8, colour=2):
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


def pictures():
    """Whole images by their format."""
    from PIL import Image

    image = Image.effect_noise((64, 48), 60).convert("RGB")
    result = {}
    for kind in ("png", "jpeg", "webp", "gif"):
        content = io.BytesIO()
        image.save(content, kind)
        result[kind.replace("jpeg", "jpg")] = content.getvalue()
    return result


def odd_images():
    """(name, extension, bytes)."""
    whole = pictures()
    for kind, content in whole.items():
        for eighth in range(8):
            yield f"{kind} cut to {eighth}/8", kind, content[: len(content) * eighth // 8]
        yield f"{kind} without its last byte", kind, content[:-1]
        yield f"{kind} with bytes behind it", kind, content + b"\0" * 999
        yield f"{kind} of zeros", kind, b"\0" * len(content)
        for other in whole:
            yield f"{other} named {kind}", kind, whole[other]
        for place in range(4, 40, 4):
            changed = bytearray(content)
            changed[place : place + 2] = b"\xff\xff"
            yield f"{kind} changed at {place}", kind, bytes(changed)
    yield "a bomb", "png", png_of(60_000, 60_000, b"\0" * 10_000_000)
    yield "0x0", "png", png_of(0, 0)
    yield "0x5", "png", png_of(0, 5)
    yield "60,000 wide", "png", png(60_000, 1)
    yield "2^31 wide", "png", png_of(2**31 - 1, 1)
    yield "one row of a million", "png", png_of(100, 1_000_000, b"\0" * 301)
    yield "a text", "jpg", b"<html>404 Not Found</html>"
    yield "an SVG", "png", b'<svg xmlns="http://www.w3.org/2000/svg"/>'


def odd_clips():
    whole = wav(1600)
    for eighth in range(8):
        yield f"wav cut to {eighth}/8", "wav", whole[: len(whole) * eighth // 8]
    for claim in (0, 1, 3, 0x7FFFFFFF, 0xFFFFFFF0):
        place = whole.index(b"data") + 4
        content = whole[:place] + struct.pack("<I", claim) + whole[place + 4 :]
        yield f"wav claiming {claim}", "wav", content
    for name, field, value in (("rate", 24, 0), ("rate", 24, 2**31), ("channels", 22, 60_000)):
        content = bytearray(whole)
        content[field : field + 2] = struct.pack("<I", value)[:2]
        yield f"wav of {name} {value}", "wav", bytes(content)
    for kind in ("mp3", "ogg", "flac", "opus"):
        yield f"{kind} of zeros", kind, b"\0" * 5000
        yield f"{kind} with a wav", kind, whole


def odd_texts():
    deep = b'{"a":' * 100_000
    yield "deep objects", deep
    yield "deep lists", b"[" * 1_000_000
    yield "no JSON", b"{question: what}"
    yield "no UTF-8", b'{"question": "\xff", "answer": "a"}'
    yield "a NUL", b'{"question": "a\0", "answer": "a"}'
    yield "a lone surrogate", b'{"question": "\\ud800", "answer": "a"}'
    yield "a huge number", b'{"text": 1e999999}'
    yield "no text", b'{"something": "else"}'
    yield "an empty file", b""
    yield "a list", b"[1, 2]"
    yield "conversations of nothing", b'{"conversations": []}'
    yield "messages of numbers", b'{"messages": [1, 2]}'
    yield "ten million characters", b'{"text": "' + b"x" * 10_000_000 + b'"}'


def records():
    """(name, content of a JSON file)."""
    for name, text in odd_texts():
        yield f"records: {name}", text
    for value in (
        '"../../../etc/passwd"',
        '"/etc/passwd"',
        '"/dev/zero"',
        '"/proc/self/mem"',
        '"loop"',
        '"folder"',
        '"pipe"',
        '"a\\u0000b.png"',
        '"https://example.org/a.png"',
        '"data:image/png;base64,####"',
        '"data:,"',
        "17",
        "[[[[]]]]",
        '{"bytes": [1]}',
        '"' + "x" * 5000 + '"',
    ):
        yield f"a record's image {value[:40]}", f'[{{"text": "a", "image": {value}}}]'.encode()


class OddFiles(CliTest):
    def setUp(self):
        super().setUp()
        try:
            import PIL.Image  # noqa: F401
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            self.skipTest("Pillow or pyarrow is not installed")
        self.count = 0
        self.slowest = self.largest = 0

    def look(self, what, file, words=(), codes=(0, 2), allowance=0.0):
        """Runs `index` on one file: its exit code, time and memory, and what it says."""
        begun = time.monotonic()
        command = [self.entrain, "index", file, "-o", "odd.csv", "-m", "model.toml", "--force"]
        with (self.folder / "said").open("wb") as sink:
            process = subprocess.Popen(command, cwd=self.folder, stdout=sink, stderr=sink)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        said = (self.folder / "said").read_text(errors="replace")
        seconds = usage.ru_utime + usage.ru_stime
        self.assertIn(process.returncode, codes, f"{what}\n{said}")
        self.assertLess(seconds, MOST_SECONDS + allowance, what)
        self.assertLess(time.monotonic() - begun, LONGEST_WAIT + allowance, what)
        self.assertLess(usage.ru_maxrss * 1024, MOST_BYTES, what)
        if process.returncode != 0 and not words:
            name = str(file).rsplit("/", 1)[-1]
            named = name in said or f"{name.split('.')[0]}/" in said  # the file or its sample
            self.assertTrue(named, f"{what}\n{said}")
        for word in words:
            self.assertIn(word, said, what)
        self.count += 1
        self.slowest = max(self.slowest, seconds - allowance)
        self.largest = max(self.largest, usage.ru_maxrss)

    def test_each_is_read_or_refused_by_name(self):
        for media in (odd_images(), odd_clips()):
            for name, kind, content in media:
                write_members(self.folder / "odd.tar", [(f"a.{kind}", content), ("a.json", TEXT)])
                self.look(name, "odd.tar")
        for name, content in odd_texts():
            write_members(self.folder / "odd.tar", [("a.png", png(9, 9)), ("a.json", content)])
            self.look(name, "odd.tar")
        (self.folder / "folder").mkdir()
        (self.folder / "loop").symlink_to("loop")
        os.mkfifo(self.folder / "pipe")
        for name, content in records():
            (self.folder / "odd.json").write_bytes(content)
            self.look(name, "odd.json")
        print(f"{self.count} files, {self.slowest:.2f} s, {self.largest >> 10} MiB at most")
        self.assertGreater(self.count, 160)

    def test_archives_and_folders_that_are_odd(self):
        archive = self.folder / "odd.tar"
        for name in ("../a.png", "/etc/a.png", "a/../../b.png", "./a.png", "." * 90 + "a.png"):
            write_members(archive, [(name, png(9, 9)), (name[:-3] + "json", TEXT)])
            words = ["no samples"] if name.startswith(".....") else ()  # a hidden file
            self.look(name, "odd.tar", words)
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            with tarfile.open(archive, "w") as tar:
                member = tarfile.TarInfo("a.png")
                member.type = kind
                member.linkname = "a.png"
                tar.addfile(member)
            self.look(f"a member of type {kind}", "odd.tar", codes=(2,))
        (self.folder / "loop").symlink_to(self.folder / "loop")
        self.look("a loop of links", "loop", codes=(2, 3))
        (self.folder / "inside").mkdir()
        (self.folder / "inside" / "again").symlink_to(self.folder / "inside")
        self.look("a folder in itself", "inside", codes=(2,))
        (self.folder / "odd.tar.gz").write_bytes(zlib.compress(b"\0" * 50_000_000, wbits=31))
        self.look("a bomb of gzip", "odd.tar.gz")

    def test_tables_that_are_odd(self):
        import pyarrow
        import pyarrow.parquet

        path = self.folder / "odd.parquet"
        column = [{"bytes": png(9, 9), "path": None}] * 30
        pyarrow.parquet.write_table(pyarrow.table({"image": column, "text": ["a"] * 30}), path)
        whole = path.read_bytes()
        for eighth in range(8):
            path.write_bytes(whole[: len(whole) * eighth // 8])
            self.look(f"a table cut to {eighth}/8", path.name, codes=(2,), allowance=START)
        for place in range(10, len(whole), len(whole) // 8):
            path.write_bytes(whole[:place] + b"\xff" * 8 + whole[place + 8 :])
            self.look(f"a table changed at {place}", path.name, allowance=START)
        for image in ([b"x"], [None], [7], [["a", None]], [{"other": 1}]):
            pyarrow.parquet.write_table(pyarrow.table({"image": image, "text": ["a"]}), path)
            self.look(f"a table's image {image}", path.name, allowance=START)


if __name__ == "__main__":
    cli_fixture.main()
