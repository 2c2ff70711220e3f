"""Index and decode rates of every format of images, sound and video, beside peers that do the same.

The real images and recordings of some shards are encoded in every format; clips are views that move
over the largest images. Each format is a shard of its own, and every program reads it with one thread:

- index: `entrain index`, beside Pillow, soundfile, PyAV or torchcodec reading what says the size;
- decode: `entrain_media`, which reads the samples of an index as training does and makes a checksum of
  all pixels and sounds, beside the same in Python. Checksums have to be equal to Pillow's and PyAV's.

Rates are of processor time, of all processes. That of the program includes its start and, for video,
that of its Python process; the peers are imported already. soundfile, webdataset and torchcodec may be
missing: their columns are then empty.

Example:
    python benchmarks/media.py --images vlm-small/train-*.tar --sounds audio-small/train-*.tar
"""

import io
import statistics
import sys
import tempfile
import time
import zlib
from pathlib import Path

import launch
import machine
import numpy
import PIL
from machine import processor_seconds, table
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "end_to_end"))
import av
import cli_fixture
import formats

IMAGES = {
    "PNG": ("png", {}),
    "JPEG": ("jpg", {"quality": 90}),
    "WebP": ("webp", {"quality": 90}),
    "GIF": ("gif", {}),
}
SOUNDS = {
    "WAV": ("wav", "WAV", "PCM_16"),
    "FLAC": ("flac", "FLAC", "PCM_16"),
    "MP3": ("mp3", "MP3", "MPEG_LAYER_III"),
    "Ogg Vorbis": ("ogg", "OGG", "VORBIS"),
    "Ogg Opus": ("opus", "OGG", "OPUS"),
}
VIDEOS = {
    "H.264, MP4": ("mp4", "libx264", {"g": "50", "preset": "veryfast"}),
    "VP9, WebM": ("webm", "libvpx-vp9", {"g": "50", "deadline": "realtime", "cpu-used": "8"}),
    "MPEG-4, AVI": ("avi", "mpeg4", {"g": "50"}),
}
FRAME = (480, 270)
SOUND_SECONDS = 20


def imported(name):
    try:
        return __import__(name, fromlist=["x"])
    except (ImportError, OSError, RuntimeError):
        return None


soundfile = imported("soundfile")
webdataset = imported("webdataset")
torchcodec = imported("torchcodec.decoders")


def parse():
    parser = launch.parser(__doc__)
    parser.add_argument("--images", nargs="+", required=True, help="tar shards of images")
    parser.add_argument("--sounds", nargs="+", required=True, help="tar shards of recordings")
    parser.add_argument("--num-images", type=int, default=1500)
    parser.add_argument("--num-sounds", type=int, default=40, help=f"of {SOUND_SECONDS} s")
    parser.add_argument("--num-videos", type=int, default=8, help="of --frames frames")
    parser.add_argument("--frames", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def call(options, folder, *arguments):
    launch.run(Path(options.entrain).resolve(), *arguments, cwd=folder)


def encoded_images(samples, extension, options):
    for _, media, _ in samples:
        for _, _, content in media:
            sink = io.BytesIO()
            kind = {"jpg": "jpeg"}.get(extension, extension)
            Image.open(io.BytesIO(content)).convert("RGB").save(sink, kind, **options)
            yield sink.getvalue()


def long_sounds(samples, count):
    """Recordings strung together, with their rate."""
    clips = [soundfile.read(io.BytesIO(media[0][2]), dtype="int16") for _, media, _ in samples]
    rate = clips[0][1]
    whole = numpy.concatenate([clip for clip, _ in clips])
    length = SOUND_SECONDS * rate
    return [numpy.roll(whole, -7919 * i)[:length] for i in range(count)], rate


def encoded_sounds(sounds, rate, form, coding):
    for sound in sounds:
        sink = io.BytesIO()
        soundfile.write(sink, sound, rate, format=form, subtype=coding)
        yield sink.getvalue()


def moving_views(samples, count, frames):
    """[clip][frame] pixels: views that move over the largest images, enlarged."""
    images = [
        Image.open(io.BytesIO(content)).convert("RGB")
        for _, media, _ in samples
        for _, _, content in media
    ]
    images.sort(key=lambda image: -image.width * image.height)
    width, height = FRAME
    for image in images[:count]:
        large = numpy.asarray(image.resize((width + frames, height + frames // 2), Image.BICUBIC))
        yield [large[i // 2 : i // 2 + height, i : i + width] for i in range(frames)]


def encoded_video(views, extension, codec, options):
    sink = io.BytesIO()
    name = {"webm": "webm", "avi": "avi"}.get(extension, "mp4")
    with av.open(sink, "w", name) as container:
        stream = container.add_stream(codec, rate=25, options=dict(options))
        stream.width, stream.height = FRAME
        stream.pix_fmt = "yuv420p"
        for pixels in views:
            frame = av.VideoFrame.from_ndarray(numpy.ascontiguousarray(pixels), "rgb24")
            container.mux(stream.encode(frame.reformat(format="yuv420p")))
        container.mux(stream.encode(None))
    return sink.getvalue()


def write_shard(folder, name, extension, contents):
    members = []
    for number, content in enumerate(contents):
        members += [
            (f"s{number:05}.{extension}", content),
            (f"s{number:05}.json", b'{"text": "t"}'),
        ]
    path = folder / f"{name.replace(',', '').replace(' ', '-')}-0.tar"
    cli_fixture.write_members(path, members)
    return path


def read_shard(path, extension):
    for sample in webdataset.WebDataset(str(path), shardshuffle=False):
        yield sample[extension]


# What peers do with a medium: (index, decode). decode returns a checksum, or nothing where its
# decoder is another one.


def by_pillow():
    def decode(content):
        return zlib.crc32(Image.open(io.BytesIO(content)).convert("RGB").tobytes())

    return lambda content: Image.open(io.BytesIO(content)).size, decode


def by_soundfile():
    def decode(content):
        samples, _ = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)
        return zlib.crc32(samples.mean(axis=1).tobytes())

    return lambda content: soundfile.info(io.BytesIO(content)).frames, decode


def by_torchcodec_sound():
    def decode(content):
        zlib.crc32(
            torchcodec.AudioDecoder(content).get_all_samples().data.mean(0).numpy().tobytes()
        )

    return lambda content: torchcodec.AudioDecoder(content).metadata, decode


def opened(content):
    container = av.open(io.BytesIO(content))
    container.streams.video[0].thread_count = 1
    return container


def by_pyav():
    def index(content):
        """Counts packets, and decodes as many frames as Entrain's index does without --verify."""
        with opened(content) as container:
            count = sum(packet.size > 0 for packet in container.demux(video=0))
        with opened(content) as container:
            for number, _ in enumerate(container.decode(video=0)):
                if number == 15:
                    break
        return count

    def decode(content):
        with opened(content) as container:
            frames = container.decode(video=0)
            return [zlib.crc32(frame.to_ndarray(format="rgb24").tobytes()) for frame in frames]

    return index, decode


def by_torchcodec_video():
    def decode(content):
        decoder = torchcodec.VideoDecoder(content, num_ffmpeg_threads=1, dimension_order="NHWC")
        for frame in decoder:
            zlib.crc32(frame.numpy().tobytes())

    return lambda content: len(torchcodec.VideoDecoder(content, num_ffmpeg_threads=1)), decode


def run_peer(path, extension, work):
    return [work(content) for content in read_shard(path, extension)]


def equal_checksums(lines, checksums):
    """How many samples of Entrain's have a peer's checksums."""
    ours = [[int(part.split(":")[1], 16) for part in line.split("+")] for line in lines]
    theirs = [each if isinstance(each, list) else [each] for each in checksums]
    return sum(a == b for a, b in zip(ours, theirs, strict=True))


class Rates:
    """Medians of the rounds, as rates of a unit, with the spread."""

    def __init__(self, units):
        self.units = units
        self.seconds = {}

    def add(self, key, work):
        self.seconds.setdefault(key, []).append(processor_seconds(work))

    def rate(self, key):
        return self.units / statistics.median(self.seconds[key])

    def text(self, key):
        if key not in self.seconds:
            return "–"
        times = self.seconds[key]
        return f"{self.rate(key):,.0f} ({self.units / max(times):,.0f} … {self.units / min(times):,.0f})"

    def ratio(self, key, peer):
        return f"{self.rate(key) / self.rate(peer):.2f}" if peer in self.seconds else "–"


def measure(options, folder, name, extension, contents, units, peers):
    """A row: the format, rates of index and decoding, ours over each peer's, equal samples."""
    path = write_shard(folder, name, extension, contents)
    index = path.with_suffix(".csv").name
    rates, lines, checksums = Rates(units), [], {}

    def index_it():
        call(options, folder, "index", path.name, "-o", index, "--force", "--threads", 1)

    def decode_it():
        lines.append(formats.decoded(options.entrain, folder / index))

    def decode_by(peer):
        checksums[peer] = run_peer(path, extension, peers[peer][1])

    for _ in range(options.rounds):
        rates.add(("index", ""), index_it)
        rates.add(("decode", ""), decode_it)
        for peer, (look, _) in peers.items():
            rates.add(("index", peer), lambda look=look: run_peer(path, extension, look))
            rates.add(("decode", peer), lambda peer=peer: decode_by(peer))
    cells = [name]
    for task in ("index", "decode"):
        cells.append(rates.text((task, "")))
        cells += [
            f"{rates.text((task, peer))}: {rates.ratio((task, ''), (task, peer))}" for peer in peers
        ]
    first = next(iter(peers), None)
    equal = equal_checksums(lines[0], checksums[first]) if first else 0
    return [*cells, f"{equal} of {len(lines[0])}"]


def section(title, unit, peers, rows):
    names = [f"{task}: {who}" for task in ("index", "decode") for who in ("Entrain", *peers)]
    header = ["format", *names, "equal"]
    return "\n".join([f"## {title}", "", f"{unit}.", "", *table(header, rows), ""])


def torchcodec_version():
    return f", torchcodec {imported('torchcodec').__version__}" if torchcodec else ""


def of_images(options, folder, samples):
    peers = {"Pillow": by_pillow()}
    rows = []
    for kind, (extension, settings) in IMAGES.items():
        contents = list(encoded_images(samples, extension, settings))
        rows.append(measure(options, folder, kind, extension, contents, len(contents), peers))
    return section("Images", "Images a second", peers, rows)


def of_sounds(options, folder, recordings):
    peers = {"soundfile": by_soundfile()}
    if torchcodec:
        peers["torchcodec"] = by_torchcodec_sound()
    sounds, rate = long_sounds(recordings, options.num_sounds)
    rows = []
    for kind, (extension, form, coding) in SOUNDS.items():
        contents = list(encoded_sounds(sounds, rate, form, coding))
        units = SOUND_SECONDS * len(contents)
        rows.append(measure(options, folder, kind, extension, contents, units, peers))
    return section("Sound", "Seconds of sound a second", peers, rows), rate


def of_videos(options, folder, samples):
    peers = {"PyAV": by_pyav()}
    if torchcodec:
        peers["torchcodec"] = by_torchcodec_video()
    views = list(moving_views(samples, options.num_videos, options.frames))
    rows = []
    for kind, (extension, codec, settings) in VIDEOS.items():
        contents = [encoded_video(view, extension, codec, settings) for view in views]
        units = options.frames * len(contents)
        rows.append(measure(options, folder, kind, extension, contents, units, peers))
    return section("Video", "Frames a second", peers, rows)


def main():
    options = parse()
    if soundfile is None or webdataset is None:
        sys.exit("needs soundfile and webdataset: pip install soundfile webdataset")
    load = machine.OtherLoad()
    images = formats.read_shards(options.images, options.num_images)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        image_section = of_images(options, folder, images)
        sound_section, rate = of_sounds(options, folder, formats.read_shards(options.sounds))
        video_section = of_videos(options, folder, images)
    versions = ", ".join(
        f"{module.__name__} {version}"
        for module, version in [
            (PIL, PIL.__version__),
            (soundfile, soundfile.__version__ + " with " + soundfile.__libsndfile_version__),
            (av, av.__version__),
            (webdataset, webdataset.__version__),
        ]
    )
    page = f"""# Rates of reading media, by format

Command: `python benchmarks/media.py --images … --sounds … --num-images {options.num_images} --num-sounds {options.num_sounds} --num-videos {options.num_videos} --frames {options.frames} --rounds {options.rounds}`
{machine.describe()}; {load.text()}. {versions}{torchcodec_version()}. {time.strftime("%Y-%m-%d")}

Units a second of processor time with one thread, medians of {options.rounds} rounds in turn (least … most); behind a peer's rate
Entrain's over it. "equal": samples whose checksum of pixels or sound is that of the first peer.
{len(images)} images, {options.num_sounds} sounds of {SOUND_SECONDS} s at {rate} Hz, {options.num_videos} videos of {options.frames} frames of {FRAME[0]}x{FRAME[1]}.

{image_section}
{sound_section}
{video_section}"""
    machine.give(page, options.output)


if __name__ == "__main__":
    main()
