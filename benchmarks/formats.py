"""One data set in every format: the same index and losses, and how fast each is read.

Takes samples of real shards, writes them in every format (tests/end_to_end/formats.py), and
1. indexes each with one thread, several rounds in turn, beside what a Python program does for the
   sizes alone: webdataset or json or pyarrow with Pillow, which reads headers;
2. decodes each (`index --verify`), beside Pillow's decoding;
3. trains the same steps on each; fails unless all losses are equal to the last bit, and checksums of
   all decoded pixels and sounds are equal (`--digests`: these alone, of any shards).

Example:
    python benchmarks/formats.py SHARDS/train-*.tar --model configs/vlm-small-model.toml --output page.md
"""

import io
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import launch
import machine
from machine import processor_seconds, table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "end_to_end"))
import cli_fixture
import formats


def parse():
    parser = launch.parser(__doc__)
    parser.add_argument("shards", nargs="+", help="tar shards of real samples")
    parser.add_argument("--model", default="configs/vlm-small-model.toml")
    parser.add_argument("--samples", type=int, default=3500, help="of the shards, in each format")
    parser.add_argument("--steps", type=int, default=20, help="trained on each format")
    parser.add_argument("--rounds", type=int, default=5, help="of the timings")
    parser.add_argument("--digests", action="store_true", help="pixels and sounds alone")
    return parser.parse_args()


def call(options, folder, *arguments):
    launch.run(Path(options.entrain).resolve(), *arguments, cwd=folder)


def index(options, folder, data, name, *more):
    model = Path(options.model).resolve()
    rest = ["--model", model, "--too-long", "leave-out", "--force", "--threads", 1, *more]
    call(options, folder, "index", *data, "-o", name, *rest)


def peer_of(name, folder, decode):
    """What reads the same in Python: sizes by Pillow from each header, or all pixels."""
    import pyarrow.parquet
    import webdataset
    from PIL import Image

    def look(content):
        image = Image.open(io.BytesIO(content))
        return image.convert("RGB").load() if decode else image.size

    def shards():
        for sample in webdataset.WebDataset(str(folder / "shard.tar"), shardshuffle=False):
            for key, content in sample.items():
                if key.rsplit(".", 1)[-1] in formats.MEDIA:
                    look(content)
            json.loads(sample["json"])

    def llava():
        for record in json.loads((folder / "llava.json").read_text()):
            images = record.get("image", [])
            for path in [images] if isinstance(images, str) else images:
                with Image.open(folder / "files" / path) as image:
                    _ = image.convert("RGB").load() if decode else image.size

    def tables():
        for batch in pyarrow.parquet.ParquetFile(folder / "table.parquet").iter_batches(100):
            for row in batch.to_pylist():
                for image in row["images"]:
                    look(image["bytes"])

    return {"shards": shards, "LLaVA JSON and files": llava, "Parquet": tables}.get(name)


def write_formats(samples, folder):
    """[(name, what `index` is given)], the shards first."""
    members = []
    for name, media, text in samples:
        members += [(file, content) for _, file, content in media]
        members.append((f"{name}.json", json.dumps(text).encode()))
    cli_fixture.write_members(folder / "shard.tar", members)
    given = [("shards", ["shard.tar"])]
    return given + [(name, write(samples, folder)) for name, write in formats.FORMATS.items()]


def rates(options, folder, given, decode):
    """Images per second of processor time: [(name, ours, peer's or None)] medians of the rounds."""
    images = sum(len(media) for _, media, _ in folder.samples)
    seconds = {name: ([], []) for name, _ in given}
    more = ["--verify"] if decode else []
    for _ in range(options.rounds):
        for name, data in given:
            ours, peers = seconds[name]
            ours.append(
                processor_seconds(lambda d=data: index(options, folder.path, d, "x.csv", *more))
            )
            peer = peer_of(name, folder.path, decode)
            if peer is not None:
                peers.append(processor_seconds(peer))
    rows = []
    for name, (ours, peers) in seconds.items():
        rate = images / statistics.median(ours)
        spread = f"{images / max(ours):,.0f} … {images / min(ours):,.0f}"
        if peers:
            other = images / statistics.median(peers)
            rows.append([name, f"{rate:,.0f} ({spread})", f"{other:,.0f}", f"{rate / other:.2f}"])
        else:
            rows.append([name, f"{rate:,.0f} ({spread})", "–", "–"])
    return rows


def train(options, folder, index_name, output, batch, steps, model, **settings):
    text = launch.TWO_LANES.format(steps=steps, batch=batch, model=Path(model).resolve())
    (folder / "run.toml").write_text(text)
    changes = {"data.train": index_name, "data.read_ahead_mib": 256, "output": output, **settings}
    begun = time.monotonic()
    call(options, folder, "train", "run.toml", *launch.settings(changes))
    rows = [row for row in launch.rows(folder / output) if "loss" in row]
    return rows, time.monotonic() - begun


def same_losses(options, folder, given):
    """How many steps have the same losses in all formats."""
    expected = None
    for number, (name, data) in enumerate(given):
        index(options, folder.path, data, f"{number}.csv")
        sizes = formats.sizes_of(folder.path / f"{number}.csv")
        rows, _ = train(
            options,
            folder.path,
            f"{number}.csv",
            f"run-{number}",
            32,
            options.steps,
            options.model,
        )
        found = (sizes, [row["loss"] for row in rows])
        expected = expected or found
        if found != expected:
            sys.exit(f"{name}: another index or other losses than the first format's")
    return len(expected[0]), len(expected[1]), expected[1][0], expected[1][-1]


def same_media(options, folder, given):
    """How many samples have the same pixels and sounds in all formats, and how many have Pillow's."""
    expected = None
    for number, (name, data) in enumerate(given):
        index = f"media-{number}.csv"
        call(options, folder.path, "index", *data, "-o", index, "--force")
        sizes = formats.sizes_of(folder.path / index)
        found = (sizes, formats.decoded(options.entrain, folder.path / index))
        expected = expected or found
        if found != expected:
            sys.exit(f"{name}: other sizes, pixels or sounds than the first format's")
    lines = expected[1]
    if any(kind != "image" for _, media, _ in folder.samples for kind, _, _ in media):
        return len(lines), None
    pillow = formats.decoded_by_pillow(folder.samples)
    return len(lines), sum(a == b for a, b in zip(lines, pillow, strict=True))


def media_text(count, pillow, num_formats):
    same = f"What is decoded of {count} samples has the same checksums in all {num_formats} formats"
    return (
        f"{same}." if pillow is None else f"{same}; of {pillow} they are those of Pillow's pixels."
    )


class Folder:
    def __init__(self, path, samples):
        self.path = path
        self.samples = samples


def main():
    options = parse()
    samples = formats.read_shards(options.shards, options.samples)
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(Path(name), samples)
        given = write_formats(samples, folder.path)
        media = media_text(*same_media(options, folder, given), len(given))
        if options.digests:
            machine.give(media, options.output)
            return
        count, steps, first, last = same_losses(options, folder, given)
        headers = ["format", "Entrain, images/s (least … most)", "in Python", "ratio"]
        indexed = "\n".join(table(headers, rates(options, folder, given, decode=False)))
        decoded = "\n".join(table(headers, rates(options, folder, given, decode=True)))
    page = f"""# One data set in every format

Command: `python benchmarks/formats.py SHARDS --samples {options.samples} --rounds {options.rounds}`.
{machine.describe()}. {count} real samples; rates are images a second of processor time, of all processes, medians of
{options.rounds} rounds in turn.

## The same training

Sizes and lengths in the index are equal in all {len(given)} formats, and so are the losses of {steps} steps to the last bit
(first {first:.6f}, last {last:.6f}). {media}

## Indexing

`entrain index` with one thread: headers, whether each file is there to its end, lengths of texts; the program's start and, for
tables, that of Python included. In Python: webdataset, json or pyarrow, and the size by Pillow, which reads headers alone.

{indexed}

## Decoding

`entrain index --verify`, beside the same in Python with `convert("RGB")`.

{decoded}
"""
    machine.give(page, options.output)


if __name__ == "__main__":
    main()
