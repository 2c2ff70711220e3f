"""Makes the stated mix of the two-core benchmark from a folder of single-image WebDataset shards.

Of every eight samples drawn in order, four stay as they are, two become one multi-image sample each
with up to five following samples' pictures (their texts joined), and two become text-only samples
made of the texts of up to eight following samples. Pictures and texts are those of the source; only
their grouping is new. Deterministic for a seed.

Example:
    python benchmarks/make_mix.py --source DATA/vlm-small --output data/mix --seed 1
"""

import argparse
import io
import json
import random
import tarfile
from pathlib import Path


def read_samples(folder):
    """(name, image suffix, image bytes, text dictionary) of every sample of train-*.tar."""
    samples = []
    for path in sorted(folder.glob("train-*.tar")):
        with tarfile.open(path) as shard:
            image = None
            for member in shard:
                content = shard.extractfile(member).read()
                stem, suffix = member.name.rsplit(".", 1)
                if suffix == "json":
                    samples.append((stem, *image, json.loads(content)))
                else:
                    image = (suffix, content)
    return samples


def texts_of(sample):
    """Prompt and response of a source sample."""
    text = sample[3]
    return text.get("question", ""), text.get("answer", text.get("caption", ""))


def grouped(samples, generator):
    """Yields (name, images, prompt, response); every source sample is used at most once."""
    position = 0
    number = 0
    while position + 8 < len(samples):
        kind = number % 8
        if kind < 4:
            take = 1
        elif kind < 6:
            take = generator.randint(2, 6)
        else:
            take = generator.randint(3, 8)
        group = samples[position : position + take]
        images = [] if kind >= 6 else [(sample[1], sample[2]) for sample in group]
        prompt = " ".join(filter(None, (texts_of(sample)[0] for sample in group)))
        response = texts_of(group[0])[1]
        yield f"mix-{number:05d}", images, prompt, response
        position += take
        number += 1


def write_shard(path, samples):
    """Members of a sample side by side, USTAR, modification times zero."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as shard:
        for name, images, prompt, response in samples:
            members = [(f"{name}.{i}.{suffix}", data) for i, (suffix, data) in enumerate(images)]
            text = {"source": "mix", "prompt": prompt, "response": response}
            members.append((f"{name}.json", json.dumps(text).encode()))
            for member, content in members:
                info = tarfile.TarInfo(member)
                info.size = len(content)
                shard.addfile(info, io.BytesIO(content))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, required=True, help="folder with train-*.tar")
    parser.add_argument("--output", type=Path, required=True, help="folder for the mix")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    samples = read_samples(options.source)
    generator.shuffle(samples)
    mix = list(grouped(samples, generator))
    options.output.mkdir(parents=True, exist_ok=True)
    write_shard(options.output / "train-000000.tar", mix)
    images = sum(len(sample[1]) for sample in mix)
    alone = sum(1 for sample in mix if not sample[1])
    print(f"{len(mix)} samples, {images} images, {alone} text-only")


if __name__ == "__main__":
    main()
