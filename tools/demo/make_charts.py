"""Draws small charts with closed questions and writes them as WebDataset shards.

Read first: `main`, then `make_sample`, which draws one sample of any kind from its own random
stream. The charts are bar, line and pie charts whose areas span over an order of magnitude; about
70 % of the samples hold one image, 15 % two to four, and 15 % text alone. Every answer is one
short word or digit, and the answers of a kind are drawn evenly, so guessing blindly scores low.

Example:
    python tools/demo/make_charts.py --output charts --train 4000 --validation 400 --seed 1
"""

import argparse
import io
import json
import math
import os
import random
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

PALETTE = {
    "red": (214, 39, 40),
    "green": (44, 160, 44),
    "blue": (31, 90, 200),
    "orange": (255, 140, 0),
    "purple": (140, 60, 190),
}
CHART_TYPES = ("bar", "line", "pie")
TITLES = ("Sales", "Rain", "Visits", "Votes", "Trips", "Goals", "Books", "Power")
MIN_PARTS, MAX_PARTS = 2, 4  # bars of a bar chart, slices of a pie
MIN_SIDE, MAX_SIDE = 48, 176  # pixels, of a square image; other shapes keep the same area
MAX_ASPECT = 1.5  # longer side over shorter side
TEXT_FRACTION, MULTI_FRACTION = 0.15, 0.15
INK, GRID = (40, 40, 40), (205, 205, 205)

COLOUR_OF = {
    "red": ("blood", "a ruby", "a tomato", "a strawberry", "a fire truck"),
    "green": ("grass", "a leaf", "a frog", "a pea", "spinach"),
    "blue": ("the sea", "a sapphire", "the clear sky", "a whale", "denim"),
    "orange": ("a carrot", "a pumpkin", "a basketball", "a tangerine", "an apricot"),
    "purple": ("a plum", "an aubergine", "lavender", "an amethyst", "a violet"),
}
WORDS = (
    "apple", "bread", "chair", "dance", "eagle", "flute", "grape", "house", "igloo", "juice",
    "knife", "lemon", "mouse", "night", "ocean", "piano", "queen", "river", "snake", "table",
    "uncle", "voice", "water", "yacht", "zebra",
)  # fmt: skip


@dataclass
class Chart:
    """What one image shows: the facts every question is answered from."""

    chart_type: str  # one of CHART_TYPES
    colours: list[str]  # of the bars or slices in drawing order; of the line, one entry
    values: list[float]  # heights in (0, 1], slice fractions, or the line's points in (0, 1]


@dataclass
class Sample:
    """One question with its answer and its images, in the order the question counts them."""

    kind: str
    question: str
    answer: str
    images: list[Image.Image] = field(default_factory=list)


def make_chart(rng, chart_type, num_parts=None, main_colour=None):
    """Draws a chart's facts at random; the arguments given are kept.

    The largest bar or slice stands clear of the second, so "the tallest" has one answer.
    `main_colour` is the colour of that part, or of the line, which trends up or down.
    """
    main_colour = main_colour or rng.choice(list(PALETTE))
    if chart_type == "line":
        num_points = rng.randint(4, 7)
        low, high = rng.uniform(0.1, 0.25), rng.uniform(0.75, 1.0)
        steps = [low + (high - low) * i / (num_points - 1) for i in range(num_points)]
        values = [min(1.0, max(0.05, step + rng.uniform(-0.08, 0.08))) for step in steps]
        return Chart("line", [main_colour], values if rng.random() < 0.5 else values[::-1])
    num_parts = num_parts or rng.randint(MIN_PARTS, MAX_PARTS)
    colours = [colour for colour in PALETTE if colour != main_colour]
    colours = rng.sample(colours, num_parts - 1)
    tallest = rng.uniform(0.8, 1.0)
    values = [tallest * rng.uniform(0.2, 0.6) for _ in colours]
    place = rng.randrange(num_parts)
    colours.insert(place, main_colour)
    values.insert(place, tallest)
    if chart_type == "pie":
        total = sum(values)
        values = [value / total for value in values]
    return Chart(chart_type, colours, values)


def draw_size(rng):
    """Returns a width and height in pixels whose area is log-uniform over the allowed range."""
    side = math.exp(rng.uniform(math.log(MIN_SIDE), math.log(MAX_SIDE)))
    stretch = math.sqrt(math.exp(rng.uniform(-1.0, 1.0) * math.log(MAX_ASPECT)))
    return round(side * stretch), round(side / stretch)


def draw_bars(draw, chart, box, font):
    """Draws the bars inside `box`, with a letter below each where it fits."""
    left, top, right, bottom = box
    slot = (right - left) / len(chart.values)
    labelled = font is not None and slot >= font.size
    floor = bottom - (font.size + 3 if labelled else 0)
    for level in (0.25, 0.5, 0.75, 1.0):
        y = floor - level * (floor - top)
        draw.line((left, y, right, y), fill=GRID)
    for i, (colour, value) in enumerate(zip(chart.colours, chart.values, strict=True)):
        start, end = left + (i + 0.15) * slot, left + (i + 0.85) * slot
        draw.rectangle((start, floor - value * (floor - top), end, floor), fill=PALETTE[colour])
        if labelled:
            draw.text(((start + end) / 2, floor + 2), "ABCDEFGH"[i], INK, font, anchor="mt")
    draw.line((left, floor, right, floor), fill=INK)
    draw.line((left, top, left, floor), fill=INK)


def draw_line(draw, chart, box, font):
    """Draws the line inside `box`, with the first and last point numbered where it fits."""
    left, top, right, bottom = box
    floor = bottom - (font.size + 3 if font is not None else 0)
    for level in (0.25, 0.5, 0.75, 1.0):
        y = floor - level * (floor - top)
        draw.line((left, y, right, y), fill=GRID)
    step = (right - left) / (len(chart.values) - 1)
    points = [(left + i * step, floor - v * (floor - top)) for i, v in enumerate(chart.values)]
    width = max(2, round(min(right - left, floor - top) / 10))
    draw.line(points, fill=PALETTE[chart.colours[0]], width=width, joint="curve")
    draw.line((left, floor, right, floor), fill=INK)
    draw.line((left, top, left, floor), fill=INK)
    if font is not None:
        draw.text((left, floor + 2), "1", INK, font, anchor="mt")
        draw.text((right, floor + 2), str(len(points)), INK, font, anchor="mt")


def draw_pie(draw, chart, box, font):
    """Draws the slices inside `box`, with each one's percentage where it fits."""
    left, top, right, bottom = box
    x, y, radius = (left + right) / 2, (top + bottom) / 2, min(right - left, bottom - top) / 2
    circle = (x - radius, y - radius, x + radius, y + radius)
    angle = -90.0
    for colour, value in zip(chart.colours, chart.values, strict=True):
        end = angle + 360 * value
        draw.pieslice(circle, angle, end, fill=PALETTE[colour], outline="white")
        if font is not None and value >= 0.12 and radius >= 3 * font.size:
            middle = math.radians((angle + end) / 2)
            place = (x + 0.65 * radius * math.cos(middle), y + 0.65 * radius * math.sin(middle))
            draw.text(place, f"{100 * value:.0f}", "white", font, anchor="mm")
        angle = end


def render(rng, chart):
    """Draws `chart` as an RGB image of random size; small images go without text."""
    width, height = draw_size(rng)
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    margin = max(3, min(width, height) // 16)
    top = margin
    font = None
    if min(width, height) >= 72:
        font = ImageFont.load_default(size=max(9, min(width, height) // 12))
        draw.text((width / 2, margin), rng.choice(TITLES), INK, font, anchor="mt")
        top += font.size + 2
    box = (margin, top, width - 1 - margin, height - 1 - margin)
    {"bar": draw_bars, "line": draw_line, "pie": draw_pie}[chart.chart_type](draw, chart, box, font)
    return image


def make_single_sample(rng):
    """Asks about one chart."""
    kinds = ("chart_type", "bar_count", "tallest_bar", "largest_slice", "line_colour")
    kind = rng.choices(kinds, weights=(30, 15, 20, 20, 15))[0]
    colour = rng.choice(list(PALETTE))
    num_parts = rng.randint(MIN_PARTS, MAX_PARTS)
    chart_type = {"chart_type": rng.choice(CHART_TYPES), "bar_count": "bar",
                  "tallest_bar": "bar", "largest_slice": "pie"}.get(kind, "line")  # fmt: skip
    question, answer = {
        "chart_type": ("what chart is this?", chart_type),
        "bar_count": ("how many bars?", str(num_parts)),
        "tallest_bar": ("tallest bar colour?", colour),
        "largest_slice": ("largest slice colour?", colour),
        "line_colour": ("line colour?", colour),
    }[kind]
    chart = make_chart(rng, chart_type, num_parts, colour)
    return Sample(kind, question, answer, [render(rng, chart)])


def make_multi_sample(rng):
    """Asks about two to four charts, or compares two."""
    kind = rng.choices(("any_chart", "more_bars"), weights=(2, 1))[0]
    if kind == "more_bars":
        counts = rng.sample((MIN_PARTS, MAX_PARTS), 2)
        charts = [make_chart(rng, "bar", count) for count in counts]
        question = "which chart has more bars?"
        answer = "first" if counts[0] > counts[1] else "second"
    else:
        wanted = rng.choice(CHART_TYPES)
        others = [chart_type for chart_type in CHART_TYPES if chart_type != wanted]
        types = [rng.choice(others) for _ in range(rng.randint(2, 4))]
        answer = rng.choice(("yes", "no"))
        if answer == "yes":
            types[rng.randrange(len(types))] = wanted
        charts = [make_chart(rng, chart_type) for chart_type in types]
        question = f"any {wanted} chart?"
    return Sample(kind, question, answer, [render(rng, chart) for chart in charts])


def make_text_sample(rng):
    """Asks something that needs no image."""
    kind = rng.choice(("text_sum", "text_colour", "text_letter"))
    if kind == "text_sum":
        total = rng.randint(1, 6)
        first = rng.randint(0, total)
        question, answer = f"what is {first} plus {total - first}?", str(total)
    elif kind == "text_colour":
        answer = rng.choice(list(COLOUR_OF))
        question = f"what colour is {rng.choice(COLOUR_OF[answer])}?"
    else:
        word = rng.choice(WORDS)
        question, answer = f"first letter of {word}?", word[0]
    return Sample(kind, question, answer)


def make_sample(seed, split, index):
    """Draws sample `index` of a split; equal arguments give equal samples, whatever the order."""
    rng = random.Random(f"{seed}/{split}/{index}")
    share = rng.random()
    if share < TEXT_FRACTION:
        return make_text_sample(rng)
    if share < TEXT_FRACTION + MULTI_FRACTION:
        return make_multi_sample(rng)
    return make_single_sample(rng)


def add_member(archive, name, content):
    """Appends one file to a tar archive, with nothing in its header that differs between runs."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def write_sample(archive, name, sample):
    """Writes a sample's members next to each other: its images in order, then its JSON."""
    for i, image in enumerate(sample.images):
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        suffix = f".{i}.png" if len(sample.images) > 1 else ".png"
        add_member(archive, name + suffix, buffer.getvalue())
    text = {"source": "charts", "kind": sample.kind, "question": sample.question,
            "answer": sample.answer}  # fmt: skip
    add_member(archive, name + ".json", json.dumps(text).encode())


def write_split(directory, split, num_samples, seed, samples_per_shard):
    """Writes one split as `<split>-000000.tar`, ...; a shard appears only once it is complete.

    Raises ValueError where the directory holds shards of the split that this run would not
    replace, since a reader would mix the two sets.
    """
    num_shards = math.ceil(num_samples / samples_per_shard)
    names = [f"{split}-{shard:06d}.tar" for shard in range(num_shards)]
    stale = sorted({path.name for path in directory.glob(f"{split}-*.tar")} - set(names))
    if stale:
        raise ValueError(f"{directory} holds shards of another run, such as {stale[0]}")
    for shard, name in enumerate(names):
        first = shard * samples_per_shard
        partial = directory / (name + ".partial")
        with tarfile.open(partial, "w", format=tarfile.USTAR_FORMAT) as archive:
            for index in range(first, min(first + samples_per_shard, num_samples)):
                sample = make_sample(seed, split, index)
                write_sample(archive, f"{split}-{index:06d}", sample)
                if sys.stderr.isatty() and (index % 50 == 49 or index + 1 == num_samples):
                    print(f"\r{split}: {index + 1}/{num_samples}", end="", file=sys.stderr)
        os.replace(partial, directory / name)
    if sys.stderr.isatty() and num_samples:
        print(file=sys.stderr)


def count(text):
    """Parses a number of samples, zero or more."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative; 0 or more is allowed")
    return value


def parse_arguments():
    """Parses the command line; the module's docstring is the help text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="directory for the shards")
    parser.add_argument("--train", type=count, required=True, help="number of training samples")
    parser.add_argument("--validation", type=count, required=True, help="number of unseen samples")
    parser.add_argument("--seed", type=int, required=True, help="equal seeds give equal shards")
    parser.add_argument("--samples-per-shard", type=count, default=500, help="default %(default)s")
    arguments = parser.parse_args()
    if arguments.samples_per_shard == 0:
        parser.error("--samples-per-shard must be at least 1")
    return arguments


def main():
    """Writes both splits; returns 0, or 2 where the arguments are at fault, or 3 on a failure."""
    arguments = parse_arguments()
    try:
        arguments.output.mkdir(parents=True, exist_ok=True)
        for split, num_samples in (("train", arguments.train), ("val", arguments.validation)):
            write_split(arguments.output, split, num_samples, arguments.seed,
                        arguments.samples_per_shard)  # fmt: skip
    except ValueError as error:
        print(f"make_charts: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"make_charts: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
