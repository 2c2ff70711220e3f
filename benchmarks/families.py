"""Writes size manifests of generated families: heavy tails, correlations, segments, mixtures.

A sample's sizes of media and text are Pareto, cut off at LIMIT tokens and joined by a normal copula:
`index` is the tail index (the smaller, the heavier), `correlation` that of the copula's normals.
Media are divided into images or clips of uneven sizes. A manifest depends on family, seed and
number of samples alone. Odd seeds are for learning (choosing defaults, looking for weaknesses),
even seeds for reporting: a figure of an even seed is published and never tuned on.

Oversized samples are of 5 or 20 mean slots in LLM tokens, where a slot has SAMPLES_PER_SLOT mean
samples (512 samples in 4 replicas of 32 slots); every block of BLOCK samples has one.

Examples:
    python benchmarks/families.py --list
    python benchmarks/families.py --output data/families --seeds 1-4
    python benchmarks/families.py --output data/families --simulate build/core/entrain/cli/entrain
"""

import argparse
import csv
import json
import math
import random
import statistics
from dataclasses import dataclass
from pathlib import Path

import launch

COLUMNS = (
    "sample_id",
    "n_images",
    "image_sizes",
    "audio_seconds",
    "prompt_chars",
    "response_chars",
)
COLUMNS += ("prompt_tokens_estimate", "response_tokens_estimate")
PIXELS_PER_TOKEN = 28 * 28  # of the LLM, by Qwen2.5-VL's merger
CLIP_TOKENS_PER_SECOND = 50  # of a Whisper encoder
LEAST_TOKENS = {"image": 96, "audio": 96, "text": 64}  # where the Pareto distributions begin
LIMIT = 8192  # most tokens of media, and of text; of each encoder's where there are two
SMALLEST_SIDE = 56  # pixels of an image
SHORTEST_CLIP = 0.5  # seconds
CHARS_PER_TOKEN = 4
SAMPLES_PER_SLOT = 4
BLOCK = 512
VISION_MODEL = "qwen2.5-vl-llama-1b"
BOTH_MODEL = "qwen2.5-vl-audio-llama-1b"
NORMAL = statistics.NormalDist()


@dataclass(frozen=True)
class Family:
    """One way to draw samples. `media` names the encoders; with two, their sizes are correlated."""

    media: tuple = ("image",)
    media_index: float = 3.0
    text_index: float = 3.0
    correlation: float = 0.0  # of media and text; of the two media where there are two
    segments: tuple = (1, 1)  # fewest and most images or clips, log-uniform between them
    text_only: float = 0.0  # share of the samples
    oversized: int = 0  # mean slots that one sample of BLOCK has; 0: no such sample
    oversized_segments: int = 0  # images of that sample; 0: it is text only

    @property
    def model(self):
        """Name of the model file in configs/models that has its encoders."""
        return BOTH_MODEL if "audio" in self.media else VISION_MODEL

    @property
    def description(self):
        """One line for a page of results."""
        names = {"image": "pixels", "audio": "seconds of audio"}
        sizes = " and ".join(names[medium] for medium in self.media)
        parts = [f"{sizes} Pareto {self.media_index:g}, text Pareto {self.text_index:g}"]
        pair = " of the encoders" if len(self.media) > 1 else ""
        correlation = f"correlation{pair} {self.correlation:+g}"
        parts.append(correlation if self.correlation else "uncorrelated")
        least, most = self.segments
        segments = f"{least}" if least == most else f"{least}–{most}"
        kind = "image" if self.media == ("image",) else "segment"
        each = " of each encoder" if len(self.media) > 1 else ""
        parts.append(f"{segments} {kind}{'s' if most > 1 else ''}{each}")
        if self.text_only:
            parts.append(f"{100 * self.text_only:.0f} % text-only")
        if self.oversized:
            what = f"{self.oversized_segments} images" if self.oversized_segments else "text only"
            parts.append(f"1 of {BLOCK} samples of {self.oversized} mean slots, {what}")
        return ", ".join(parts)


TWO = ("image", "audio")
FAMILIES = {
    "pixels-1.1": Family(media_index=1.1),
    "pixels-1.5": Family(media_index=1.5),
    "pixels-3": Family(media_index=3.0),
    "text-1.1": Family(text_index=1.1),
    "text-1.5": Family(text_index=1.5),
    "both-1.1": Family(media_index=1.1, text_index=1.1),
    "both-1.5-opposed": Family(media_index=1.5, text_index=1.5, correlation=-0.9),
    "both-1.5-together": Family(media_index=1.5, text_index=1.5, correlation=0.9),
    "both-2-opposed": Family(media_index=2.0, text_index=2.0, correlation=-0.5),
    "both-2-together": Family(media_index=2.0, text_index=2.0, correlation=0.5),
    "segments-8": Family(media_index=1.5, text_index=2.0, segments=(1, 8)),
    "segments-64": Family(media_index=1.1, text_index=2.0, segments=(1, 64)),
    "all-64-segments": Family(media_index=1.5, text_index=2.0, segments=(64, 64)),
    "text-only-30": Family(media_index=1.5, text_index=1.5, segments=(1, 4), text_only=0.3),
    "text-only-60": Family(media_index=1.5, text_index=1.5, segments=(1, 4), text_only=0.6),
    "text-only-90": Family(media_index=1.5, text_index=1.5, segments=(1, 4), text_only=0.9),
    "oversized-5": Family(oversized=5),
    "oversized-20": Family(oversized=20),
    "oversized-20-images": Family(segments=(1, 2), oversized=20, oversized_segments=64),
    "two-encoders": Family(TWO, 1.5, 1.5, correlation=0.0, segments=(1, 4)),
    "two-encoders-opposed": Family(TWO, 1.5, 2.0, correlation=-0.9, segments=(1, 8)),
    "two-encoders-text-50": Family(TWO, 1.5, 1.5, correlation=0.5, text_only=0.5),
}


def pareto(uniform, least, index, limit=LIMIT):
    """The quantile of a Pareto distribution from `least` on, cut off at `limit`."""
    below_limit = 1.0 - (least / limit) ** index
    return least * (1.0 - uniform * below_limit) ** (-1.0 / index)


def correlated_uniforms(generator, correlation):
    """Two uniforms whose normal quantiles have the correlation."""
    first, other = generator.gauss(0.0, 1.0), generator.gauss(0.0, 1.0)
    second = correlation * first + math.sqrt(1.0 - correlation**2) * other
    return NORMAL.cdf(first), NORMAL.cdf(second)


def num_segments(generator, least, most):
    """Log-uniform, both ends included."""
    return min(most, int(math.exp(generator.uniform(math.log(least), math.log(most + 1)))))


def divided(generator, total, parts):
    """`total` in uneven parts: broken at uniform places."""
    breaks = sorted(generator.random() for _ in range(parts - 1))
    return [total * (b - a) for a, b in zip([0.0, *breaks], [*breaks, 1.0], strict=True)]


def image_sizes(generator, tokens, count):
    """Width and height of each image; the sides differ by a factor of two at most."""
    sizes = []
    for part in divided(generator, tokens * PIXELS_PER_TOKEN, count):
        ratio = math.exp(generator.uniform(-math.log(2), math.log(2)) / 2)
        sides = (math.sqrt(part) * ratio, math.sqrt(part) / ratio)
        sizes.append(tuple(max(SMALLEST_SIDE, round(side)) for side in sides))
    return sizes


def clip_seconds(generator, tokens, count):
    """Seconds of each clip."""
    parts = divided(generator, tokens / CLIP_TOKENS_PER_SECOND, count)
    return [max(SHORTEST_CLIP, round(part, 3)) for part in parts]


def llm_tokens(sample):
    """About what the LLM reads of a sample: images, clips and text."""
    pixels = sum(width * height for width, height in sample["images"])
    clips = sum(sample["clips"]) * CLIP_TOKENS_PER_SECOND
    return pixels / PIXELS_PER_TOKEN + clips + sample["text"]


def ordinary(family, generator, text_only):
    """A sample that is not oversized, by numbers: images, clips, text tokens."""
    media, other = correlated_uniforms(generator, family.correlation)
    two = len(family.media) > 1
    uniforms = {family.media[0]: media, "text": generator.random() if two else other}
    if two:
        uniforms[family.media[1]] = other
    text = pareto(uniforms["text"], LEAST_TOKENS["text"], family.text_index)
    sample = {"images": [], "clips": [], "text": round(text)}
    for medium in () if text_only else family.media:
        tokens = pareto(uniforms[medium], LEAST_TOKENS[medium], family.media_index)
        count = num_segments(generator, *family.segments)
        if medium == "image":
            sample["images"] = image_sizes(generator, tokens, count)
        else:
            sample["clips"] = clip_seconds(generator, tokens, count)
    return sample


def oversized(family, generator, mean_tokens):
    """The sample of several mean slots, as ordinary()."""
    tokens = family.oversized * SAMPLES_PER_SLOT * mean_tokens
    if not family.oversized_segments:
        return {"images": [], "clips": [], "text": round(tokens)}
    text = LEAST_TOKENS["text"]
    images = image_sizes(generator, tokens - text, family.oversized_segments)
    return {"images": images, "clips": [], "text": text}


def draw(family, generator, num_samples):
    """Samples in the manifest's order."""
    text_only = set(generator.sample(range(num_samples), round(family.text_only * num_samples)))
    samples = [ordinary(family, generator, i in text_only) for i in range(num_samples)]
    if family.oversized:
        mean = statistics.fmean(llm_tokens(sample) for sample in samples)
        for begin in range(0, num_samples, BLOCK):
            place = generator.randrange(begin, min(begin + BLOCK, num_samples))
            samples[place] = oversized(family, generator, mean)
    return samples


def row_of(name, seed, number, sample, generator):
    """A sample in the manifest's columns. A response has a tenth to a half of the text."""
    response = max(1, round(sample["text"] * generator.uniform(0.1, 0.5)))
    prompt = max(1, sample["text"] - response)
    return {
        "sample_id": f"{name}-s{seed}-{number:05d}",
        "n_images": len(sample["images"]),
        "image_sizes": ";".join(f"{width}x{height}" for width, height in sample["images"]),
        "audio_seconds": ";".join(f"{seconds:g}" for seconds in sample["clips"]),
        "prompt_chars": CHARS_PER_TOKEN * prompt,
        "response_chars": CHARS_PER_TOKEN * response,
        "prompt_tokens_estimate": prompt,
        "response_tokens_estimate": response,
    }


def write_family(name, seed, folder, num_samples=2048):
    """Writes FOLDER/NAME-sSEED.csv; returns its path and the samples that it holds."""
    generator = random.Random(f"{name}/{seed}")
    samples = draw(FAMILIES[name], generator, num_samples)
    path = Path(folder) / f"{name}-s{seed}.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for number, sample in enumerate(samples):
            writer.writerow(row_of(name, seed, number, sample, generator))
    return path, samples


def simulate(entrain, path, family, batch, policies="lpt-2d,entrain", schedules="1f1b,entrain"):
    """Rows of `entrain simulate --json` for the manifest's first step, memory free."""
    model = Path(__file__).resolve().parents[1] / "configs" / "models" / f"{family.model}.toml"
    command = [entrain, "simulate", "--index", path, "--model", model, "--profile", "analytic:a40"]
    command += ["--global-batch", batch, "--replicas", 4, "--lanes", 8, "--num-slots", 32]
    command += ["--steps", 1, "--memory", "free", "--json"]
    command += ["--policy", policies, "--schedule", schedules]
    return json.loads(launch.run(*command).stdout)["rows"]


def figures(rows):
    """`policy schedule: step time (gap to the lower bound)` of every row."""
    cells = []
    for row in rows:
        case = f"{row['policy']} {row['schedule']}"
        cells.append(f"{case}: {row['step_s']:.3f} s ({100 * row['gap']:.1f} %)")
    return "  " + ", ".join(cells)


def seeds_of(text):
    """`2,4` or `1-4`."""
    seeds = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    if not seeds:
        raise ValueError(f"{text}: no seeds")
    return seeds


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print the families and end")
    parser.add_argument("--output", type=Path, help="folder for NAME-sSEED.csv")
    parser.add_argument("--seeds", type=seeds_of, default=[1], help="such as 1-4 or 2,4 (1)")
    parser.add_argument("--families", default=",".join(FAMILIES), help="names (default: all)")
    parser.add_argument("--samples", type=int, default=2048, help="of a manifest")
    parser.add_argument("--simulate", metavar="ENTRAIN", help="also simulate one step of each")
    parser.add_argument("--batch", type=int, default=BLOCK, help="global batch of --simulate")
    options = parser.parse_args()
    options.families = options.families.split(",")
    unknown = sorted(set(options.families) - set(FAMILIES))
    if unknown:
        parser.error(f"unknown families: {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    if not options.list and options.output is None:
        parser.error("give --output FOLDER, or --list")
    return options


def main():
    options = parse_arguments()
    if options.list:
        for name in options.families:
            print(f"{name}: {FAMILIES[name].description}")
        return
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.families:
        for seed in options.seeds:
            path, samples = write_family(name, seed, options.output, options.samples)
            tokens = [llm_tokens(sample) for sample in samples]
            mean = statistics.fmean(tokens)
            print(f"{path}: about {mean:.0f} LLM tokens a sample, at most {max(tokens):.0f}")
            if options.simulate:
                print(figures(simulate(options.simulate, path, FAMILIES[name], options.batch)))


if __name__ == "__main__":
    main()
