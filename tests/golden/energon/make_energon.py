"""Writes the folder beside this file anew: two shards, prepared by the real `energon prepare`.

    python tests/golden/energon/make_energon.py     # needs Pillow and megatron-energon (made with 7.4.1)

Six samples of a JPEG, a JSON with `question` and a list of `answers`, and a member that no field means. The
last image is turned by its EXIF orientation, which Energon's media metadata do not know.
"""

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).resolve().parent
FIELDS = {"image": "jpg", "context": "json[question]", "answers": "json[answers]"}


def jpeg(width, height, turned):
    exif = Image.Exif()
    if turned:
        exif[0x0112] = 6
    sink = io.BytesIO()
    Image.new("RGB", (width, height), (width, height, 9)).save(sink, "JPEG", exif=exif)
    return sink.getvalue()


def write_shard(path, numbers):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for number in numbers:
            text = {"question": f"q{number}", "answers": [f"a{number}", "other"]}
            for extension, content in (
                ("jpg", jpeg(31 + number, 20, number == 5)),
                ("json", json.dumps(text).encode()),
                ("cls", b"3"),
            ):
                member = tarfile.TarInfo(f"{number:04d}.{extension}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def main():
    for shard in range(2):
        write_shard(FOLDER / f"shard_{shard}.tar", range(3 * shard, 3 * shard + 3))
    options = ["--non-interactive", "--split-ratio", "1,0,0", "--num-workers", "1", "--no-progress"]
    options += ["--sample-type", "VQASample", "--field-map", json.dumps(FIELDS)]
    options += ["--media-metadata-by-extension", "--force-overwrite"]
    command = [sys.executable, "-m", "megatron.energon.cli.main", "prepare", str(FOLDER), *options]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
