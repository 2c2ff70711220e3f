"""Rows of anyone's data as rows of an index: sizes of images, seconds of audio, tokens of text."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from entrain.conversations import KINDS, check_places, turns_of_conversations

INDEX_COLUMNS = [
    *("sample_id", "n_images", "image_sizes", "audio_seconds", "prompt_chars", "response_chars"),
    *("prompt_tokens_estimate", "response_tokens_estimate"),
]
FILES_OF_ROWS = (".json", ".jsonl", ".ndjson", ".parquet")
_CHARACTERS_PER_TOKEN = 4.0  # of an estimate, where no tokenizer is given
# As entrain/core/dataset/index.cc has them.
_MOST_PIXELS = 1_000_000
_MOST_TOKENS = 2**48
_MOST_SECONDS = 100 * 365.25 * 86_400


def read_rows(path: Path) -> list[Any]:
    """The rows of a file of FILES_OF_ROWS.

    Raises ValueError for a file that is not there, and naming the line that is no JSON.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    if path.suffix.lower() == ".parquet":
        try:
            from pyarrow import parquet
        except ImportError:
            raise ImportError(f"{path}: Parquet needs pyarrow: pip install pyarrow") from None
        rows: list[Any] = parquet.read_table(path).to_pylist()
        return rows
    with path.open(encoding="utf-8") as file:
        if path.suffix.lower() == ".json":
            document = _parsed(file.read(), str(path))
            if not isinstance(document, list):
                raise ValueError(f"{path}: {_kind_of(document)}; a list of objects is needed")
            return document
        return [_parsed(line, f"{path}:{n}") for n, line in enumerate(file, 1) if line.strip()]


@dataclass
class Columns:
    """Which columns hold what, as Index.from_rows() takes them.

    names: parameter -> column; None: the column of the parameter's name, if a row has it; "": none.
    """

    names: Mapping[str, str | None]
    tokenizer: Any
    images_folder: str | Path | None
    seen: dict[str, None] = field(default_factory=dict)  # columns of the rows so far, in order

    def name(self, what: str) -> str:
        given = self.names[what]
        return what if given is None else given

    def check(self, rows: Iterable[Any]) -> None:
        """Refuses names that no row has, before images are read, where all columns are known."""
        known = getattr(rows, "column_names", None)  # of datasets and pyarrow
        if isinstance(rows, list):
            known = dict.fromkeys(key for row in rows if isinstance(row, Mapping) for key in row)
        if known:
            self.check_names(known)

    def check_names(self, columns: Iterable[Any]) -> None:
        known = [str(column) for column in columns]
        there = f"there are {', '.join(known)}"
        for what, name in self.names.items():
            counted = what in ("prompt", "response") and f"{name}_tokens" in known
            if name and name not in known and not counted:
                raise ValueError(f"no sample has a column {name!r}; {there}")
        if self.names["images"] is None and "image" in known and "images" not in known:
            raise ValueError(
                f"no sample has a column 'images'; {there}: give images='image', or images='' for none"
            )

    def sample_id(self, number: int, row: Any) -> str:
        if not isinstance(row, Mapping):
            raise TypeError(f"row {number} is {_kind_of(row)}; a dictionary of columns is needed")
        found = _plain(row.get(self.name("id")))
        return str(number if found is None else found)

    def index_row(self, name: str, row: Mapping[str, Any]) -> dict[str, str]:
        """Of the sample's columns the sizes, by INDEX_COLUMNS."""
        self.seen |= dict.fromkeys(row)
        known = [self.name(what) for what in self.names if what != "id"]
        numbers = [f"{self.name(what)}_tokens" for what in ("prompt", "response")]
        if not any(key in row for key in known + numbers):
            raise ValueError(
                f"none of the columns {', '.join(filter(None, known))}; there are "
                f"{', '.join(map(str, row)) or 'none'}"
            )
        sizes = self._sizes(row.get(self.name("images")))
        clips = self._clips(row.get(self.name("audio_seconds")))
        prompt, response = (_text_of(row.get(self.name(what))) for what in ("prompt", "response"))
        messages = _plain(row.get(self.name("messages")))
        if messages is None:
            tokens = [self._count(prompt), self._count(response)]
        else:
            prompt, response, tokens = self._of_chat(messages, [len(sizes), 0, len(clips)])
        for part, column in enumerate(numbers):
            if (given := _plain(row.get(column))) is not None:
                tokens[part] = _whole(column, given, 0, _MOST_TOKENS)
        return {
            "sample_id": name,
            "n_images": str(len(sizes)),
            "image_sizes": ";".join(f"{width}x{height}" for width, height in sizes),
            "audio_seconds": ";".join(f"{seconds:.6g}" for seconds in clips),
            "prompt_chars": str(len(prompt) or round(tokens[0] * _CHARACTERS_PER_TOKEN)),
            "response_chars": str(len(response) or round(tokens[1] * _CHARACTERS_PER_TOKEN)),
            "prompt_tokens_estimate": str(tokens[0]),
            "response_tokens_estimate": str(tokens[1]),
        }

    def _sizes(self, value: Any) -> list[tuple[int, int]]:
        images = _images_of(value)
        sizes = []
        for number, image in enumerate(images, 1):
            try:
                sizes.append(_size_of(image, self.images_folder))
            except (OSError, TypeError, ValueError) as error:
                raise ValueError(f"image {number} of {len(images)}: {error}") from None
        return sizes

    def _clips(self, value: Any) -> list[float]:
        value = _plain(value)
        clips = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
        seconds = [float(clip) for clip in clips]
        for given in seconds:
            if not 0 < given <= _MOST_SECONDS:
                column = self.name("audio_seconds")
                raise ValueError(f"{column}: {given:g} given; seconds above 0 are needed")
        return seconds

    def _of_chat(self, messages: Any, media: Sequence[int]) -> tuple[str, str, list[int]]:
        """What is asked and what is answered, and tokens of both. media: numbers of KINDS."""
        turns = _turns_of(messages)
        for kind, count in zip(KINDS, media, strict=True):
            check_places(turns, kind, count)
        said = [(role, "".join(words for _, words in parts)) for role, parts in turns]
        prompt = "".join(text for role, text in said if role != "assistant")
        response = "".join(text for role, text in said if role == "assistant")
        answer = self._count(response)
        if not hasattr(self.tokenizer, "apply_chat_template"):
            return prompt, response, [self._count(prompt), answer]
        if not getattr(self.tokenizer, "chat_template", None):
            raise ValueError(
                "the tokenizer has no chat template: set tokenizer.chat_template, or give texts in "
                f"the columns {self.name('prompt')} and {self.name('response')}"
            )
        chat = list(messages)
        if "from" in chat[0]:
            chat = [{"role": role, "content": self._content(text)} for role, text in said]
        whole = _length_of(self.tokenizer.apply_chat_template(chat, tokenize=True))
        return prompt, response, [max(0, whole - answer), answer]

    def _content(self, text: str) -> Any:
        return text if self._template_takes_strings else [{"type": "text", "text": text}]

    @cached_property
    def _template_takes_strings(self) -> bool:
        probe = [{"role": "user", "content": "probe"}]
        try:
            return "probe" in self.tokenizer.apply_chat_template(probe, tokenize=False)
        except Exception:  # noqa: BLE001  a template is a program: anything may be raised by it
            return False

    def _count(self, text: str) -> int:
        if self.tokenizer is None:
            return -(-len(text) // int(_CHARACTERS_PER_TOKEN))
        return _length_of(self.tokenizer(text)) if text else 0


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: no JSON: {error}") from None


def _plain(value: Any) -> Any:
    """Arrays and numbers of numpy as Python's; None for NaN, as pandas writes what is not there."""
    if hasattr(value, "tolist") and getattr(value, "ndim", 0) <= 2:
        value = value.tolist()
    absent = isinstance(value, float) and math.isnan(value)
    return None if absent or type(value).__name__ in ("NAType", "NaTType") else value


def _kind_of(value: Any) -> str:
    return f"of type {type(value).__name__}"


def _whole(what: str, value: Any, least: int, most: int) -> int:
    """A whole number, also as 4.0 or "4"."""
    try:
        number = int(value)
        exact = isinstance(value, str) or number == value
    except (TypeError, ValueError, OverflowError):
        number, exact = 0, False
    if not exact or not least <= number <= most:
        raise ValueError(f"{what}: {value!r} given; allowed: whole numbers from {least} to {most}")
    return number


def _images_of(value: Any) -> list[Any]:
    """[] for nothing, [value] for one image or size."""
    value = _plain(value)
    if value is None or (isinstance(value, str) and not value):
        return []
    if isinstance(value, (str, bytes, Mapping)) or hasattr(value, "size") or _is_pair(value):
        return [value]
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"images {_kind_of(value)}; a list of images or sizes is needed")
    return [image for image in map(_plain, value) if image is not None]


def _is_pair(value: Any) -> bool:
    many = isinstance(value, (list, tuple)) and len(value) == 2
    return many and all(isinstance(_plain(side), (int, float)) for side in value)


def _size_of(image: Any, folder: str | Path | None) -> tuple[int, int]:
    """Width and height of an image in any of the forms of Index.from_rows()."""
    if isinstance(image, Mapping):
        if image.get("bytes") is None and image.get("path") is None:
            raise ValueError("neither bytes nor path")
        image = image["bytes"] if image.get("bytes") is not None else Path(image["path"])
    if isinstance(image, str) and image.lower().replace("x", "", 1).isdigit():
        image = image.lower().split("x")
    if isinstance(image, (bytes, Path, str)):
        image = _size_in_header(image if isinstance(image, bytes) else Path(folder or "", image))
    if isinstance(getattr(image, "size", None), tuple):
        image = _upright_size(image)
    size = image
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        raise TypeError(f"{_kind_of(image)}; an image or its size (width, height) is needed")
    width, height = (
        _whole(side, _plain(value), 1, _MOST_PIXELS)
        for side, value in zip(("width", "height"), size, strict=True)
    )
    return width, height


def _upright_size(image: Any) -> tuple[int, int]:
    """Of a PIL image, turned by its EXIF orientation as its pixels will be."""
    width, height = image.size
    try:  # PNG's own getexif() decodes the pixels first
        from PIL import Image

        orientation = Image.Image.getexif(image).get(0x0112)
    except Exception:  # noqa: BLE001  no EXIF, or damaged
        orientation = 1
    return (height, width) if orientation in (5, 6, 7, 8) else (width, height)


def _size_in_header(image: bytes | Path) -> tuple[int, int]:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise ImportError("sizes of encoded images need Pillow: pip install pillow") from None
    what = f"{len(image)} bytes" if isinstance(image, bytes) else f"'{image}'"
    try:
        with Image.open(io.BytesIO(image) if isinstance(image, bytes) else image) as opened:
            return _upright_size(opened)
    except UnidentifiedImageError:
        raise ValueError(f"cannot identify {what} as an image") from None
    except OSError as error:
        raise OSError(f"cannot read {what}: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001  formats raise anything on damaged bytes
        raise ValueError(f"cannot read {what}: {error}") from None


def _turns_of(messages: Any) -> list[tuple[str, list[tuple[str, str]]]]:
    """Turns of parts (conversations.py), of any of the forms of Index.from_rows()."""
    if not isinstance(messages, (list, tuple)) or not messages:
        raise TypeError(f"messages {_kind_of(messages)}; a list of one turn or more is needed")
    turns: list[tuple[str, list[tuple[str, str]]]] = []
    if isinstance(messages[0], Mapping) and "from" in messages[0]:
        turns = turns_of_conversations({"conversations": list(messages)})
        return turns
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping) or "role" not in message:
            raise ValueError(
                f"turn {number} has neither role and content nor from and value: {message!r:.80}"
            )
        content = _plain(message.get("content"))
        parts = content if isinstance(content, (list, tuple)) else []
        kinds = [part.get("type") for part in parts if isinstance(part, Mapping)]
        media = [(kind, "") for kind in kinds if kind in KINDS]
        turns.append((message["role"], [*media, ("text", _text_of(content))]))
    return turns


def _text_of(value: Any) -> str:
    value = _plain(value)
    if value is None:
        return ""
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, Mapping):
        return _text_of(value.get("content", value.get("text")))
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{_kind_of(value)}; text is needed")
    return "".join(_text_of(part) for part in value)


def _length_of(ids: Any) -> int:
    """Of a list of ids, or of what holds one."""
    if isinstance(ids, Mapping) or hasattr(ids, "input_ids"):
        ids = ids["input_ids"]
    return len(getattr(ids, "ids", ids))
