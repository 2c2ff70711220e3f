"""One data set in every format that `entrain index` reads: for tests and benchmarks/formats.py."""

import base64
import io
import json
import subprocess
import tarfile
import zlib
from collections import defaultdict
from pathlib import Path

MEDIA = {"png": "image", "jpg": "image", "jpeg": "image", "wav": "audio", "flac": "audio"}


def read_shards(shards, count=None):
    """Samples of shards: (name, [(kind, file name, bytes)], {"question", "answer"}), the first `count` of them."""
    samples = []
    for shard in shards:
        members = defaultdict(list)
        with tarfile.open(shard) as archive:
            for member in archive:
                name, extension = member.name.split(".", 1)
                members[name].append((extension, archive.extractfile(member).read()))
        for name, parts in members.items():
            text = next(json.loads(content) for extension, content in parts if extension == "json")
            media = [
                (MEDIA[extension.rsplit(".", 1)[-1]], f"{name}.{extension}", content)
                for extension, content in sorted(parts)
                if extension != "json"
            ]
            samples.append((name, media, words_of(text)))
            if len(samples) == count:
                return samples
    return samples


def words_of(text):
    """What of a sample's JSON has no loss, and what has."""
    question, answer = (
        text.get("question", ""),
        text.get("answer", text.get("caption", text.get("text", ""))),
    )
    return {"question": question, "answer": answer}


def files_of(media, kind):
    return [name for of, name, _ in media if of == kind]


def write_llava(samples, folder):
    """A list of conversations beside a folder of files, as LLaVA has it."""
    records = []
    for name, media, text in samples:
        for _, file, content in media:
            (folder / "files").mkdir(exist_ok=True)
            (folder / "files" / file).write_bytes(content)
        asked = "".join(f"<{kind}>\n" for kind, _, _ in media) + text["question"]
        record = {
            "id": name,
            "conversations": [
                {"from": "human", "value": asked},
                {"from": "gpt", "value": text["answer"]},
            ],
        }
        if images := files_of(media, "image"):
            record["image"] = images[0] if len(images) == 1 else images
        if clips := files_of(media, "audio"):
            record["audio"] = clips
        records.append(record)
    (folder / "llava.json").write_text(json.dumps(records, indent=1))
    return ["llava.json", "--media", "files"]


def write_messages(samples, folder):
    """JSON Lines of OpenAI's messages, the media inside as base64."""
    lines = []
    for _, media, text in samples:
        parts = []
        for kind, _, content in media:
            encoded = base64.b64encode(content).decode()
            if kind == "image":
                url = {"url": f"data:image/png;base64,{encoded}"}
                parts.append({"type": "image_url", "image_url": url})
            else:
                sound = {"data": encoded, "format": "wav"}
                parts.append({"type": "input_audio", "input_audio": sound})
        parts.append({"type": "text", "text": text["question"]})
        messages = [
            {"role": "user", "content": parts},
            {"role": "assistant", "content": text["answer"]},
        ]
        lines.append(json.dumps({"messages": messages}) + "\n")
    (folder / "messages.jsonl").write_text("".join(lines))
    return ["messages.jsonl"]


def table_of(samples):
    import pyarrow

    medium = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    columns = {
        f"{kind}s": pyarrow.array(
            [
                [{"bytes": content, "path": name} for of, name, content in media if of == kind]
                for _, media, _ in samples
            ],
            pyarrow.list_(medium),
        )
        for kind in ("image", "audio")
    }
    for key in ("question", "answer"):
        columns[key] = [text[key] for _, _, text in samples]
    return pyarrow.table(columns)


def write_parquet(samples, folder):
    """A table with bytes of images and clips, in row groups of 100, as `datasets` writes it."""
    import pyarrow.parquet

    table = table_of(samples)
    pyarrow.parquet.write_table(table, folder / "table.parquet", row_group_size=100)
    return ["table.parquet"]


def write_arrow(samples, folder):
    """An Arrow stream, as save_to_disk() of `datasets` writes it."""
    import pyarrow

    table = table_of(samples)
    path = folder / "data-00000-of-00001.arrow"
    with pyarrow.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    return [path.name]


FORMATS = {
    "LLaVA JSON and files": write_llava,
    "messages with base64": write_messages,
    "Parquet": write_parquet,
    "Arrow": write_arrow,
}


def sizes_of(index):
    """Rows of an index without ids and places, for comparison."""
    import csv

    with Path(index).open(newline="") as file:
        rows = list(csv.DictReader(file))
    places = ("sample_id", "shard", "offset", "bytes", "media_folder", "data_columns")
    return [{key: value for key, value in row.items() if key not in places} for row in rows]


def media_program(entrain):
    """entrain_media of the build that the program is of."""
    return Path(entrain).resolve().parents[2] / "tests" / "entrain_media"


def decoded(entrain, index):
    """A line a sample: sizes and checksums of the pixels and sounds that training decodes."""
    command = [media_program(entrain), Path(index).name]
    result = subprocess.run(
        command, cwd=Path(index).parent, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    return result.stdout.splitlines()


def decoded_by_pillow(samples):
    """The same of samples of images, by Pillow. Transparent ones are put on white."""
    from PIL import Image, ImageOps

    lines = []
    for _, media, _ in samples:
        images = []
        for _, _, content in media:
            image = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
            if image.has_transparency_data:
                white = Image.new("RGBA", image.size, "white")
                image = Image.alpha_composite(white, image.convert("RGBA"))
            pixels = image.convert("RGB").tobytes()
            images.append(f"{image.width}x{image.height}:{zlib.crc32(pixels):08x}")
        lines.append(" ".join(images))
    return lines
