"""Writes NAME, an image, and NAME.expected.png, the RGB pixels that Pillow shows of it: turned
upright by exif_transpose(), its first frame as convert("RGBA"), blended over white.

ImageFiles.EqualPillow (entrain/core/dataset/image_files_test.cc) compares decode_image() with them.
Made with Pillow 13.0.0. Needs numpy. Left out is a GIF frame whose own palette is grey i at i in a
file with another palette: Pillow shows the file's colours, which is a mistake.

Example:
    python tests/golden/images/make_images.py       # beside this file
"""

import io
import struct
from pathlib import Path

import numpy
from PIL import Image, ImageOps

WIDTH, HEIGHT = 20, 13


def picture(width=WIDTH, height=HEIGHT, seed=1):
    """Smooth colours with a little noise: nothing symmetric, so that every turn shows."""
    y, x = numpy.mgrid[0:height, 0:width]
    noise = numpy.random.default_rng(seed).integers(0, 24, (height, width, 3))
    base = numpy.stack([x * 230 // width, y * 230 // height, (x + 2 * y) * 230 // 60], axis=2)
    return Image.fromarray((base + noise).clip(0, 255).astype(numpy.uint8), "RGB")


def with_alpha():
    image = picture().convert("RGBA")
    alpha = numpy.random.default_rng(2).integers(0, 256, (HEIGHT, WIDTH))
    alpha[:, :4] = 0
    alpha[:, 4:8] = 255
    image.putalpha(Image.fromarray(alpha.astype(numpy.uint8), "L"))
    return image


def exif(orientation, order="<", prefix=b""):
    """A block of one entry."""
    head = b"II*\0" if order == "<" else b"MM\0*"
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return prefix + head + struct.pack(order + "IH", 8, 1) + entry + bytes(4)


def saved(image, form, **options):
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def jpeg_with_adobe(image, transform):
    """CMYK as stored, under an Adobe marker; its transform 2 says YCCK."""
    content = saved(image, "JPEG", quality=90)
    start = content.find(b"Adobe")
    if start >= 0:
        return content[: start + 11] + bytes([transform]) + content[start + 12 :]
    body = b"Adobe\0\x64\0\0\0\0" + bytes([transform])
    return content[:2] + b"\xff\xee" + struct.pack(">H", len(body) + 2) + body + content[2:]


def without_adobe(content):
    at = content.find(b"\xff\xee")
    length = struct.unpack(">H", content[at + 2 : at + 4])[0]
    return content[:at] + content[at + 2 + length :]


def lzw(pixels, bits):
    """Data of a GIF frame: codes of one width, with a clear code before they would grow."""
    clear, width = 1 << bits, bits + 1
    codes = []
    for i, pixel in enumerate(pixels):
        if i % ((1 << bits) - 2) == 0:
            codes.append(clear)
        codes.append(pixel)
    codes.append(clear + 1)
    number = sum(code << (i * width) for i, code in enumerate(codes))
    data = number.to_bytes((len(codes) * width + 7) // 8, "little")
    blocks = [data[i : i + 255] for i in range(0, len(data), 255)]
    return bytes([bits]) + b"".join(bytes([len(b)]) + b for b in blocks) + b"\0"


def gif(canvas, frames, palette=None, background=0):
    """frames: dicts of box, pixels, and perhaps palette, transparent, interlaced."""

    def flags(colours):
        return 0x80 | (len(colours).bit_length() - 2)

    def table(colours):
        return b"".join(bytes(colour) for colour in colours)

    out = b"GIF89a" + struct.pack("<HH", *canvas)
    out += bytes([flags(palette) if palette else 0, background, 0])
    out += table(palette) if palette else b""
    for frame in frames:
        if "transparent" in frame:
            out += b"!\xf9\x04\x01\0\0" + bytes([frame["transparent"]]) + b"\0"
        local = frame.get("palette")
        kind = (flags(local) if local else 0) | (0x40 if frame.get("interlaced") else 0)
        out += b"," + struct.pack("<HHHH", *frame["box"]) + bytes([kind])
        out += table(local) if local else b""
        out += lzw(frame["pixels"], frame.get("bits", 4))
    return out + b";"


def gifs():
    rng = numpy.random.default_rng(3)
    palette = [tuple(int(v) for v in rng.integers(0, 256, 3)) for _ in range(16)]
    other = [tuple(int(v) for v in rng.integers(0, 256, 3)) for _ in range(16)]
    grey = [(i, i, i) for i in range(16)]
    whole = {"box": (0, 0, 9, 11), "pixels": [int(v) for v in rng.integers(0, 16, 99)]}
    part = {"box": (3, 2, 5, 7), "pixels": [int(v) for v in rng.integers(0, 16, 35)]}
    second = {"box": (0, 0, 9, 11), "pixels": [7] * 99}
    return {
        "plain.gif": gif((9, 11), [whole], palette),
        "transparent.gif": gif((9, 11), [whole | {"transparent": 5}], palette),
        "interlaced.gif": gif((9, 11), [whole | {"interlaced": True}], palette),
        "part.gif": gif((9, 11), [part], palette, background=9),
        "part-transparent.gif": gif((9, 11), [part | {"transparent": 3}], palette, 9),
        "beyond.gif": gif((6, 5), [part], palette),
        "local-palette.gif": gif((9, 11), [part | {"palette": other}], palette),
        "grey-palette.gif": gif((9, 11), [whole | {"transparent": 2}], grey),
        "no-palette.gif": gif((9, 11), [part]),
        "short-palette.gif": gif((9, 11), [whole], palette[:4]),
        "short-grey.gif": gif((9, 11), [whole], grey[:4]),
        "two-frames.gif": gif((9, 11), [part | {"transparent": 1}, second], palette),
        "pillow.gif": saved(picture(), "GIF"),
    }


def webps():
    frames = [with_alpha(), picture(seed=4).convert("RGBA")]
    animation = {"save_all": True, "append_images": frames[1:]}
    anim = saved(picture(8, 6).convert("RGBA"), "WEBP", lossless=True)
    body = anim[12:]
    part = b"ANMF" + struct.pack("<I", 16 + len(body))
    for number in (3, 2, 7, 5, 100):  # x / 2, y / 2, width - 1, height - 1, duration
        part += number.to_bytes(3, "little")
    chunks = b"VP8X" + struct.pack("<II", 10, 0x12) + (19).to_bytes(3, "little")
    chunks += (12).to_bytes(3, "little") + b"ANIM" + struct.pack("<IIH", 6, 0xFF0000FF, 0)
    chunks += part + b"\0" + body
    return {
        "lossy.webp": saved(picture(), "WEBP", quality=80),
        "lossless.webp": saved(picture(), "WEBP", lossless=True),
        "lossy-alpha.webp": saved(with_alpha(), "WEBP", quality=80),
        "lossless-alpha.webp": saved(with_alpha(), "WEBP", lossless=True, exact=True),
        "animated.webp": saved(frames[0], "WEBP", lossless=True, **animation),
        "animated-part.webp": b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WEBP" + chunks,
        "metadata.webp": saved(picture(), "WEBP", icc_profile=bytes(301), exif=exif(6)),
    }


def png_with_chunk(content, kind, body, before):
    import zlib

    at = content.find(before) - 4
    chunk = struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return content[:at] + chunk + content[at:]


def images():
    png = saved(picture(), "PNG")
    cmyk = picture().convert("CMYK")
    noise = numpy.random.default_rng(5).integers(0, 256, (HEIGHT, WIDTH, 4)).astype(numpy.uint8)
    files = {
        "cmyk.jpg": saved(cmyk, "JPEG", quality=90),
        "cmyk-noise.jpg": saved(Image.frombytes("CMYK", (WIDTH, HEIGHT), noise.tobytes()), "JPEG"),
        "cmyk-no-adobe.jpg": without_adobe(saved(cmyk, "JPEG", quality=90)),
        "ycck.jpg": jpeg_with_adobe(cmyk, 2),
        "colour.jpg": saved(picture(), "JPEG", quality=90),
        "subsampled.jpg": saved(picture(), "JPEG", quality=80, subsampling=2, progressive=True),
        "exif-end.png": png_with_chunk(png, b"eXIf", exif(8), b"IEND"),
        "animated.png": saved(
            picture(), "PNG", save_all=True, append_images=[picture(seed=6)], default_image=True
        ),
        "animated-first.png": saved(
            picture(), "PNG", save_all=True, append_images=[picture(seed=6)]
        ),
    }
    for orientation in range(1, 9):
        block = exif(orientation, "<>"[orientation % 2])
        name = f"orientation-{orientation}"
        files[name + ".jpg"] = saved(picture(), "JPEG", quality=90, exif=b"Exif\0\0" + block)
        files[name + ".png"] = png_with_chunk(png, b"eXIf", block, b"IDAT")
        files[name + ".webp"] = saved(picture(), "WEBP", lossless=True, exif=block)
    return files | gifs() | webps()


def shown(content):
    image = Image.open(io.BytesIO(content))
    upright = ImageOps.exif_transpose(image)
    rgba = numpy.asarray(upright.convert("RGBA")).astype(numpy.int64)
    if image.mode == "CMYK":
        rgba[..., :3] = numpy.asarray(upright.convert("RGB"))
    colour, alpha = rgba[..., :3], rgba[..., 3:]
    return Image.fromarray(((colour * alpha + 255 * (255 - alpha) + 127) // 255).astype("uint8"))


def main():
    folder = Path(__file__).parent
    for name, content in images().items():
        (folder / name).write_bytes(content)
        shown(content).save(folder / f"{name}.expected.png", optimize=True)


if __name__ == "__main__":
    main()
