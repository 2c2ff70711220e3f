"""Frames of files of video, for `entrain index`, `train` and `eval`.

A process: reads a request a line, answers with lines of JSON. One video is open at a time:

    {"open": PATH or SIZE}, then the bytes if it is a size      {}
    {"measure": whether all frames are decoded}                 {"frames", "fps", "width", "height"}
    {"frames": [indices], "of": their number by the index}      for each {"width", "height"}, then its RGB bytes

or, instead of any of these lines, {"error": TEXT} for a file that is damaged, which ends the answer.
`entrain/core/dataset/video_file.h` is the other end. docs/data.md says what a frame's number is: its place
among the times of packets where those are known to be one for a frame, else its place in decoding.
"""

import bisect
import io
import itertools
import json
import struct
import sys

# Codecs of which a packet is a frame, in containers that say each packet's time.
LISTED_CODECS = ("h264", "hevc", "vp9", "av1", "libdav1d")
LISTED_FORMATS = ("mp4", "matroska")
HEAD = 16  # frames that are always decoded to measure a video, beside the last one
MOST_PIXELS = 1 << 27  # as kMaxImagePixels
MOST_FPS = 1000


class Missing(Exception):
    """A package that this Python lacks: no fault of the data."""


class Damaged(Exception):
    """A file that cannot be read."""


def libraries():
    try:
        import av
        import numpy
    except ImportError as error:
        raise Missing(
            "files of video are read by PyAV, which this Python lacks: pip install av numpy "
            f"({sys.executable}; ENTRAIN_PYTHON names another)"
        ) from error
    return av, numpy


# Whether a file is there to its end, by what its parts claim.


def check_boxes(file, size):
    """ISO base media, as MP4 and MOV are: boxes, one after another."""
    at, kinds = 0, set()
    while at < size:
        length, kind, large = struct.unpack(">I4sQ", read_at(file, at, 16, b"\0" * 8))
        length = {0: size - at, 1: large}.get(length, length)
        end_inside(at, max(length, 8), size, f"its box '{kind.decode('latin1')}'")
        kinds.add(kind)
        at += max(length, 8)
    if b"moov" not in kinds:
        raise Damaged("it has no 'moov' box: it was cut, or never finished")


def check_elements(file, size):
    """Matroska, as MKV and WebM are: elements; those of unknown length contain the next ones."""

    def number(at, most, marked):
        first = read_at(file, at, 1)[0]
        length = 9 - first.bit_length()
        if length > most:
            raise Damaged(f"no Matroska at byte {at}")
        value = int.from_bytes(read_at(file, at, length))
        return (value if marked else value - (1 << 7 * length)), length

    at = 0
    while at < size:
        _, width = number(at, 4, True)
        length, more = number(at + width, 8, False)
        at += width + more
        if length != (1 << 7 * more) - 1:
            end_inside(at, length, size, "an element")
            at += length


def check_chunks(file, size):
    """AVI: RIFF chunks. A length of 0 or 0xFFFFFFFF is that of a stream."""
    at = 0
    while at + 8 <= size:
        kind, length = struct.unpack("<4sI", read_at(file, at, 8))
        if kind != b"RIFF" or length in (0, 0xFFFFFFFF):
            return
        end_inside(at, 8 + length, size, "its RIFF chunk")
        at += 8 + length + length % 2


def check_blocks(file, size):
    """GIF: blocks up to the trailer."""

    def colours(flags):
        return 3 << (flags & 7) + 1 if flags & 0x80 else 0

    def after_data(at):
        while length := read_at(file, at, 1)[0]:
            at += 1 + length
        return at + 1

    at = 13 + colours(read_at(file, 10, 1)[0])
    while (kind := read_at(file, at, 1)[0]) != 0x3B:
        if kind == 0x2C:
            at = after_data(at + 11 + colours(read_at(file, at + 9, 1)[0]))
        elif kind == 0x21:
            at = after_data(at + 2)
        else:
            raise Damaged(f"no block of a GIF at byte {at}")


def read_at(file, at, size, padding=b""):
    """Bytes there; those that are missing at the end from the end of `padding`."""
    file.seek(at)
    found = file.read(size)
    found += padding[len(padding) + len(found) - size :] if len(found) < size else b""
    if len(found) < size:
        raise Damaged("it is cut: it ends inside a part of it")
    return found


def end_inside(at, length, size, part):
    if at + length > size:
        raise Damaged(f"it is cut: {part} ends at byte {at + length} of a file of {size}")


def check_end(file):
    """FFmpeg's name of the file's format; the file is there to its end."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    begin = file.read(12)
    if begin[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot"):
        name, check = "mp4", check_boxes
    elif begin.startswith(b"\x1a\x45\xdf\xa3"):
        name, check = "matroska", check_elements
    elif begin.startswith(b"RIFF") and begin[8:] == b"AVI ":
        name, check = "avi", check_chunks
    elif begin.startswith((b"GIF87a", b"GIF89a")):
        name, check = "gif", check_blocks
    else:
        raise Damaged(
            "neither MP4, MOV, WebM, MKV, AVI nor GIF; `ffmpeg -i x x.mp4` converts other video"
            if size
            else "it is empty"
        )
    check(file, size)
    return name


def quarter_turns(frame):
    """Counter-clockwise, by which the frame is to be shown."""
    if frame.rotation % 90 != 0:
        raise Damaged(f"it is to be shown turned by {frame.rotation} degrees; only 90, 180 and 270")
    return frame.rotation // 90


class Video:
    """Frames of a file of video, in the order of their numbers at best."""

    def __init__(self, source):
        self.av, self.numpy = libraries()
        self.source = source  # a path or bytes
        with open(source, "rb") if isinstance(source, str) else io.BytesIO(source) as file:
            self.size = file.seek(0, io.SEEK_END)
            self.format = check_end(file)
        self.container = None
        self.held = (-1, None)  # the last frame that was asked for
        self.begin()
        self.places = None  # time → number of a frame; None: its place in decoding
        self.keys = []  # (number of the frame from which decoding may begin, where to seek), rising
        self.list_packets()
        self.begin()

    def close(self):
        if self.container is not None:
            self.container.close()

    def begin(self):
        """Opens the file, so that frame 0 is decoded next."""
        self.close()
        source = self.source if isinstance(self.source, str) else io.BytesIO(self.source)
        self.container = self.av.open(source, format=self.format, metadata_errors="replace")
        cover = self.av.stream.Disposition.attached_pic
        streams = [each for each in self.container.streams.video if not each.disposition & cover]
        if not streams:
            raise Damaged("no video in it")
        self.stream = streams[0]
        if self.stream.codec_context is None:
            raise Damaged("its codec is none that PyAV decodes")
        self.stream.thread_count = 1  # the program has a process for each thread that reads
        self.stream.codec_context.options = {"max_pixels": str(MOST_PIXELS)}
        self.at = -1  # number of the last frame decoded
        self.jumped = False
        self.decoding = self.decoded()

    def list_packets(self):
        """Numbers frames by the times of packets, where a packet is a frame."""
        codec = self.stream.codec_context.name
        if self.format not in LISTED_FORMATS or codec not in LISTED_CODECS:
            return
        if any(entry.pos + entry.size > self.size for entry in self.stream.index_entries):
            raise Damaged("it is cut: it lists frames beyond its end")
        times, keys, first = [], [], None
        for packet in self.container.demux(self.stream):
            if packet.size == 0:
                continue
            if packet.is_corrupt:
                raise Damaged(f"it is cut or damaged at byte {packet.pos}")
            if packet.pts is None or (first is None and not packet.is_keyframe):
                return
            first = packet.pts if first is None else first
            if packet.is_keyframe:
                keys.append((packet.pts, packet.pts if packet.dts is None else packet.dts))
            # What is shown before the first key frame refers to frames that are not there.
            if not packet.is_discard and packet.pts >= first:
                times.append(packet.pts)
        times.sort()
        places = {time: number for number, time in enumerate(times)}
        if len(places) == len(times):
            self.places = places
            self.keys = sorted((bisect.bisect_left(times, time), where) for time, where in keys)

    def decoded(self):
        """(number, frame) from where the container is."""
        count = itertools.count()
        for packet in self.container.demux(self.stream):
            for frame in packet.decode():
                if self.places is None:
                    yield next(count), frame
                elif frame.pts in self.places:
                    yield self.places[frame.pts], frame

    def approach(self, target):
        """Seeks where frames between the last one decoded and the target need not be decoded."""
        key, where = (0, 0)
        if self.keys:
            key, where = self.keys[
                max(bisect.bisect_right(self.keys, (target, sys.maxsize)) - 1, 0)
            ]
        if target > self.at and key <= self.at + 1:
            return
        self.begin()
        if key > 0:
            self.container.seek(where, stream=self.stream)
            self.jumped = True

    def advance(self, target):
        for number, frame in self.decoding:
            self.at = number
            if number >= target:
                return frame if number == target and not frame.is_corrupt else None
        return None

    def find(self, target):
        """The decoded frame; from the file's beginning where seeking does not find it sound."""
        self.approach(target)
        try:
            frame = self.advance(target)
        except self.av.FFmpegError:
            if not self.jumped:
                raise
            frame = None
        if frame is None and self.jumped:
            self.begin()
            frame = self.advance(target)
        if frame is None:
            raise Damaged(f"frame {target} cannot be decoded")
        return frame

    def frame(self, target):
        """[height, width, 3], 8 bits a channel."""
        if self.held[0] != target:
            frame = self.find(target)
            self.held = (target, self.upright(frame.to_ndarray(format="rgb24"), frame))
        return self.held[1]

    def upright(self, pixels, frame):
        return self.numpy.rot90(pixels, quarter_turns(frame))

    def shape(self, frame):
        sides = (frame.width, frame.height)
        return sides if quarter_turns(frame) % 2 == 0 else sides[::-1]

    def measure(self, verify):
        self.begin()
        every = verify or self.places is None
        size, count = None, 0
        for number, frame in itertools.islice(self.decoding, None if every else HEAD):
            if number != count or frame.is_corrupt:
                raise Damaged(f"frame {count} cannot be decoded")
            if size not in (None, self.shape(frame)):
                raise Damaged(f"frame {count} has another size than those before it")
            size = self.shape(frame)
            self.at = number
            count += 1
        frames = count if self.places is None else len(self.places)
        if count < (frames if every else min(frames, HEAD)) or frames == 0:
            raise Damaged(f"frame {count} cannot be decoded")
        if count < frames:
            self.find(frames - 1)
        return {"frames": frames, "fps": self.fps(), "width": size[0], "height": size[1]}

    def fps(self):
        rate = self.stream.average_rate
        if rate is None or not 0 < rate <= MOST_FPS:
            raise Damaged(f"{rate or 'no'} frames per second; allowed: above 0, up to {MOST_FPS}")
        return float(rate)

    def frames(self, indices, number):
        if self.places is not None and len(self.places) != number:
            raise Damaged(
                f"it has {len(self.places)} frames, the index says {number}; make the index again"
            )
        for index in indices:
            yield self.frame(index)


def errors():
    """What reading a damaged file raises, PyAV's own among them."""
    usual = (Damaged, ArithmeticError, LookupError, MemoryError, OSError, TypeError, ValueError)
    return (*usual, sys.modules["av"].FFmpegError) if "av" in sys.modules else usual


def answer(video, request, sink):
    def line(document):
        sink.write(json.dumps(document).encode() + b"\n")

    if "measure" in request:
        line(video.measure(request["measure"]))
        return
    for pixels in video.frames(request["frames"], request["of"]):
        height, width, _ = pixels.shape
        line({"width": width, "height": height})
        sink.write(video.numpy.ascontiguousarray(pixels).data)


def serve(source, sink):
    video = None
    for line in source:
        request = json.loads(line)
        try:
            if "open" in request:
                if video is not None:
                    video.close()
                opened, video = request["open"], None
                video = Video(opened if isinstance(opened, str) else source.read(opened))
                sink.write(b"{}\n")
            else:
                answer(video, request, sink)
        except Missing as error:
            sink.write(json.dumps({"failure": str(error)}).encode() + b"\n")
        except errors() as error:
            reason = getattr(error, "strerror", None) or error
            text = f"{error}" if isinstance(error, Damaged) else f"damaged: {reason}"
            sink.write(json.dumps({"error": text}).encode() + b"\n")
        sink.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
