"""Files of video of many codecs, containers and shapes, made with PyAV."""

import io
from dataclasses import dataclass
from fractions import Fraction

import av
import numpy

# Container, extension, codec, options. B-frames, open groups of pictures, frames that are not shown.
ENCODINGS = [
    ("mp4", "mp4", "libx264", {}),
    ("mp4", "mp4", "libx264", {"g": "6", "bf": "3"}),
    ("mp4", "mp4", "libx264", {"g": "6", "x264-params": "open-gop=1:bframes=3"}),
    ("mp4", "mp4", "mpeg4", {"g": "7", "bf": "2"}),
    ("mov", "mov", "libx264", {"g": "9"}),
    ("matroska", "mkv", "libx264", {"g": "5"}),
    ("webm", "webm", "libvpx-vp9", {"g": "6"}),
    ("webm", "webm", "libvpx-vp9", {"auto-alt-ref": "1", "lag-in-frames": "16"}),
    ("webm", "webm", "libvpx", {"g": "7", "auto-alt-ref": "1", "lag-in-frames": "10"}),
    ("avi", "avi", "mpeg4", {"bf": "2"}),
    ("avi", "avi", "mjpeg", {}),
    ("gif", "gif", "gif", {}),
]
# Not for every shape: of 34 x 50 pixels the encoder ends the process.
HEVC = ("mp4", "mp4", "libx265", {"x265-params": "log-level=none:keyint=6:open-gop=1"})
SHAPES = [(16, 16, 2), (64, 48, 5), (34, 50, 23), (128, 96, 41)]  # width, height, frames
PIXELS = {"gif": "rgb8", "mjpeg": "yuvj420p"}


@dataclass
class Clip:
    name: str
    extension: str
    content: bytes

    def frames(self):
        """[frame] RGB, as PyAV decodes the file from its beginning."""
        with av.open(io.BytesIO(self.content)) as container:
            return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]

    def fps(self):
        with av.open(io.BytesIO(self.content)) as container:
            return float(container.streams.video[0].average_rate)


def picture(width, height, frame, seed=0):
    """A gradient under a square that moves."""
    columns, rows = numpy.arange(width), numpy.arange(height)[:, None]
    red = columns * 3 + frame * 5 + 0 * rows
    pixels = numpy.stack([red, rows * 4 + seed * 40 + 0 * columns, 0 * rows + red // 2], axis=2)
    x, y = frame * 3 % (width - 7), (frame + seed) * 2 % (height - 7)
    pixels[y : y + 8, x : x + 8] = 255 - 10 * frame
    return (pixels % 256).astype(numpy.uint8)


def add_silence(container, stream):
    for i in range(8):
        frame = av.AudioFrame.from_ndarray(numpy.zeros((1, 960), numpy.float32), "fltp", "mono")
        frame.sample_rate, frame.pts, frame.time_base = 48000, 960 * i, Fraction(1, 48000)
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def encode(
    *encoding,
    shape,
    seed=0,
    rate=25,
    times=None,
    audio=None,
    turned=0,
    container_options=None,
    path=None,
):
    """Bytes of a clip. `times`: of its frames in ms. `path`: where it is written meanwhile, for
    containers that are written twice."""
    name, _, codec, options = encoding
    width, height, count = shape
    target = path or io.BytesIO()
    with av.open(str(path) if path else target, "w", name, container_options or {}) as container:
        stream = container.add_stream(codec, rate=rate, options=dict(options))
        stream.width, stream.height = width, height
        stream.pix_fmt = PIXELS.get(codec, "yuv420p")
        if turned:
            stream.set_display_rotation(turned)
        if times:
            stream.codec_context.time_base = Fraction(1, 1000)
        if audio:
            sound = container.add_stream(audio, rate=48000, layout="mono")
        for i in range(count):
            frame = av.VideoFrame.from_ndarray(picture(width, height, i, seed), "rgb24")
            frame = frame.reformat(format=stream.pix_fmt)
            if times:
                frame.pts, frame.time_base = times[i], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        if audio:
            add_silence(container, sound)
    return path.read_bytes() if path else target.getvalue()


def without_beginning(content, frames):
    """The MP4 with an edit list that does not show its first frames."""
    target = io.BytesIO()
    with (
        av.open(io.BytesIO(content)) as source,
        av.open(target, "w", "mp4", {"avoid_negative_ts": "disabled"}) as container,
    ):
        stream = container.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.pts -= frames * packet.duration
                packet.dts -= frames * packet.duration
                packet.stream = stream
                container.mux(packet)
    return target.getvalue()


def every_kind():
    """Every codec, container and shape; variable rates, sound beside, an edit list, fragments."""
    clips = []

    def add(encoding, shape=(64, 48, 23), **more):
        content = encode(*encoding, shape=shape, seed=len(clips) % 5, **more)
        clips.append(Clip(f"c{len(clips):02}", encoding[1], content))

    for encoding in ENCODINGS:
        for shape in SHAPES:
            add(encoding, shape)
    add(HEVC)
    add(HEVC, SHAPES[3])
    uneven = [40 * i + 11 * (i % 3) + (700 if i > 10 else 0) for i in range(23)]
    for encoding in (ENCODINGS[1], ENCODINGS[5], ENCODINGS[6]):
        add(encoding, times=uneven)
    add(ENCODINGS[1], audio="aac")
    add(ENCODINGS[6], audio="libopus", rate=Fraction(30000, 1001))
    add(ENCODINGS[1], container_options={"movflags": "frag_keyframe+empty_moov"})
    content = without_beginning(clips[7].content, 9)
    clips.append(Clip(f"c{len(clips):02}", "mp4", content))
    return clips
