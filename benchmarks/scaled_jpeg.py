"""JPEGs decoded at a half, a quarter or an eighth of their size, against exact decoding.

libjpeg-turbo can leave out the high frequencies of each block (DCT scaling), which is faster. Every
image is decoded both ways, by Pillow, and then resized to a model's size; how much pixels of the
results differ, and how much faster scaled decoding with the resize is.

Example:
    python benchmarks/scaled_jpeg.py vlm-small/train-*.tar photos/*.jpg
"""

import argparse
import io
import statistics
import tarfile
import time
from pathlib import Path

import machine
import numpy
from machine import table
from PIL import Image, features

PATCH = 14
SCALES = (2, 4, 8)  # decoded at a half, a quarter, an eighth
AFTER = (1, 2, 4, 8)  # how many times smaller the resize then makes it


def read_jpegs(paths):
    for path in paths:
        if not str(path).endswith(".tar"):
            yield Path(path).read_bytes()
            continue
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.endswith((".jpg", ".jpeg")):
                    yield archive.extractfile(member).read()


def exact(content, size):
    return Image.open(io.BytesIO(content)).convert("RGB").resize(size, Image.BICUBIC)


def scaled(content, size, scale):
    """None where libjpeg does not decode at this scale."""
    image = Image.open(io.BytesIO(content))
    width, height = image.size
    image.draft("RGB", (width // scale, height // scale))
    if abs(image.width - width / scale) > 1:
        return None
    return image.resize(size, Image.BICUBIC)


def seconds(work, rounds):
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return min(times)


def compare(jpegs, scale, after, rounds):
    """A row: images, largest difference of the best and worst image, mean, share above 1, speed."""
    worst, mean, above, slow, fast = [], [], [], 0.0, 0.0
    for content in jpegs:
        image = Image.open(io.BytesIO(content))
        size = tuple(round(side / scale / after / PATCH) * PATCH for side in image.size)
        if image.mode != "RGB" or min(size) < PATCH:
            continue
        found = scaled(content, size, scale)
        if found is None:
            continue
        pixels = [numpy.asarray(each).astype(int) for each in (exact(content, size), found)]
        difference = numpy.abs(pixels[0] - pixels[1])
        worst.append(int(difference.max()))
        mean.append(difference.mean())
        above.append((difference > 1).mean())
        slow += seconds(lambda c=content, s=size: exact(c, s), rounds)
        fast += seconds(lambda c=content, s=size: scaled(c, s, scale), rounds)
    if not worst:
        return None
    return [
        f"1/{scale}",
        f"1/{scale * after}",
        str(len(worst)),
        f"{min(worst)} … {max(worst)}",
        f"{statistics.mean(mean):.2f}",
        f"{100 * statistics.mean(above):.1f} %",
        str(sum(value <= 1 for value in worst)),
        f"{slow / fast:.2f}",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", help="JPEGs, and tar shards with some")
    parser.add_argument("--every", type=int, default=1, help="take only each so many-th")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", default="", help="Markdown page to write (default: print)")
    options = parser.parse_args()
    jpegs = list(read_jpegs(options.files))[:: options.every]
    rows = [compare(jpegs, scale, after, options.rounds) for scale in SCALES for after in AFTER]
    headers = [
        "decoded at",
        "size of the result",
        "images",
        "largest difference of an image (least … most)",
        "mean",
        "values off by more than 1",
        "images within 1",
        "times as fast",
    ]
    lines = "\n".join(table(headers, [row for row in rows if row]))
    page = f"""# JPEGs decoded at a part of their size

Command: `python benchmarks/scaled_jpeg.py FILES --every {options.every} --rounds {options.rounds}`
{machine.describe()}; Pillow {Image.__version__} with libjpeg-turbo {features.version("libjpeg_turbo")}.

{len(jpegs)} JPEGs. Differences are in values of 0 to 255 after a bicubic resize to multiples of {PATCH} pixels; an image counts where the
result has at least {PATCH} pixels a side. "Times as fast": processor time of exact decoding and resize over that of scaled decoding and resize.

{lines}
"""
    machine.give(page, options.output)


if __name__ == "__main__":
    main()
