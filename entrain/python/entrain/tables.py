"""Rows of Parquet and Arrow files as samples, for `entrain index`, `train` and `eval`.

A process: reads a request a line, answers with a line of JSON, and with rows behind it. In a request TABLE is
"path": PATH, and where columns have other names than here, "texts": [columns that texts are in] and "media":
{"images": [columns], …}. Requests and answers:

    {TABLE, "open": true}        {"rows": number, "largest": bytes that are read for one row at most,
                                 "unread": [columns that hold bytes and are not read]}
    {TABLE, "from": N, "to": M}  {"rows": number, "bytes": number}, a line for each row from N on, and those
                                 bytes. The rows are fewer than M - N where they are of several groups or large

A row is {"json": the record's text, "media": {"images": [medium], "videos": …, "audio": …}}, a medium a path,
[where it begins, size] in the answer's bytes, or [where, size, true] in the file itself. For a file or row that
is damaged there is {"error": TEXT}, with "rows" for those rows that share it, and with "unfit": true for a file
without the columns that are read.
`entrain/core/dataset/table.h` is the other end.
"""

import bisect
import itertools
import json
import operator
import sys
from collections import OrderedDict

# Columns that a record's text may come from (conversations.py), and what else the program reads of it.
TEXTS = (
    *("messages", "conversations", "texts"),
    *("question", "answer", "prompt", "response", "caption", "text"),
    *("id", "kind", "source", "fps"),
)
# As entrain/core/dataset/media_refs.cc has them.
MEDIA = {
    "images": ("image", "images", "image_path", "image_paths"),
    "videos": ("video", "videos", "video_path", "video_paths"),
    "audio": ("audio", "audios", "audio_path", "audio_paths"),
}
# Types of `datasets`, which columns of other names may have.
FEATURES = {"Image": "images", "Video": "videos", "Audio": "audio"}
MOST_HELD = 1 << 28  # bytes of decoded row groups
MOST_ROWS = 256  # of an answer,
MOST_BYTES = 1 << 24  # and of the groups that they are of, about


class Missing(Exception):
    """A package that this Python lacks: no fault of the data."""


class Damaged(Exception):
    """A file or row that cannot be read."""


class Unfit(Damaged):
    """A file without the columns that are read: it may be sound."""


# What reading a damaged file raises, pyarrow's own among them.
ERRORS = (
    *(Damaged, ArithmeticError, LookupError, MemoryError, NotImplementedError),
    *(OSError, TypeError, ValueError),
)


def pyarrow():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise Missing(
            "Parquet and Arrow files are read by pyarrow, which this Python lacks: pip install pyarrow "
            f"({sys.executable}; ENTRAIN_PYTHON names another)"
        ) from error
    return pyarrow


def holds_bytes(kind):
    """Whether a column of that type is bytes, or structs with bytes, or lists of either."""
    types = pyarrow().types
    if types.is_list(kind) or types.is_large_list(kind):
        return holds_bytes(kind.value_type)
    if types.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    return types.is_binary(kind) or types.is_large_binary(kind)


def feature_kinds(schema):
    """Column → kind, of columns that `datasets` says are media."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    except (TypeError, KeyError, ValueError):
        return {}
    kinds = {}
    for name, feature in features.items():
        while isinstance(feature, (list, dict)):
            if isinstance(feature, list):
                feature = feature[0] if feature else None
            elif feature.get("_type") in FEATURES:
                kinds[name] = FEATURES[feature["_type"]]
                break
            else:
                feature = feature.get("feature")
    return kinds


class Table:
    """Columns of a file that a sample may need, by row: in groups of rows from `starts` on.

    `texts`, `media`: as in a request.
    """

    def __init__(self, path, texts, media):
        schema = self.open(path)
        names = schema.names
        kinds = feature_kinds(schema)
        for kind, known in MEDIA.items():
            kinds.update((name, kind) for name in known if name in names)
        kinds = {name: kind for name, kind in kinds.items() if kind not in media}
        wanted = [name for known in media.values() for name in known]
        self.media = [(name, kinds[name]) for name in names if name in kinds]
        self.media += [(name, kind) for kind, known in media.items() for name in known]
        self.listed = set(media)  # kinds of which several columns make a list
        self.texts = [
            name for name in names if name in texts or (name in TEXTS and name not in kinds)
        ]
        for name in [*texts, *wanted]:
            if name not in names:
                raise Unfit(f"no column '{name}'; the file has {', '.join(names) or 'none'}")
        read = {name for name, _ in self.media} | set(texts)
        self.unread = [
            field.name for field in schema if field.name not in read and holds_bytes(field.type)
        ]
        if self.unread and not self.media and not media:
            raise Unfit(
                f"column '{self.unread[0]}' holds bytes, and media are read from columns named "
                f"{', '.join(known[0] for known in MEDIA.values())}: name it "
                f"(--columns image={self.unread[0]})"
            )
        if not self.texts:
            raise Unfit(
                f"no column of text; needed is one of {', '.join(TEXTS[:9])}; the file has "
                f"{', '.join(names) or 'none'} (--columns answer=NAME)"
            )
        self.columns = list(dict.fromkeys([name for name, _ in self.media] + self.texts))
        self.rows = self.starts[-1]

    def range(self, begin, end):
        """(group, first row in it, number of rows) of the rows from `begin` on that are answered at once."""
        group = bisect.bisect_right(self.starts, begin) - 1
        rows = self.starts[group + 1] - self.starts[group]
        at_once = max(1, MOST_BYTES * rows // max(1, self.group_bytes(group)))
        most = min(end, self.starts[group + 1], begin + min(MOST_ROWS, at_once))
        return group, begin - self.starts[group], most - begin

    def records(self, group, first, count, contents):
        """[(text, {kind: [path or place in `contents`]}) or Damaged] of those rows."""
        columns = {name: column.slice(first, count) for name, column in self.group(group).items()}
        media = {name: contents.values(columns[name]) for name, _ in self.media}
        texts = {name: columns[name].to_pylist() for name in self.texts}
        return [self.record(media, texts, row) for row in range(count)]

    def record(self, media, texts, row):
        found = {}
        try:
            for name, kind in self.media:
                entries = list(media_of(media[name][row], name))
                if entries and found.get(kind) and kind not in self.listed:
                    return Damaged(f"two columns of {kind} are filled, one of them '{name}'")
                if entries:
                    found[kind] = found.get(kind, []) + entries
        except Damaged as error:
            return error
        text = {name: values[row] for name, values in texts.items() if values[row] is not None}
        return json.dumps(without_bytes(text), default=str, ensure_ascii=False), found


class ParquetTable(Table):
    def open(self, path):
        self.file = pyarrow().parquet.ParquetFile(path, memory_map=True)
        groups = [self.file.metadata.row_group(i) for i in range(self.file.metadata.num_row_groups)]
        self.starts = starts_of(group.num_rows for group in groups)
        self.sizes = [group.total_byte_size for group in groups]
        self.largest = max(self.sizes, default=0)
        self.held = OrderedDict()  # row group -> (its columns, their bytes)
        return self.file.schema_arrow

    def contents(self):
        return Contents()

    def group_bytes(self, group):
        return self.sizes[group]

    def group(self, group):
        if group not in self.held:
            while self.held and sum(size for _, size in self.held.values()) > MOST_HELD:
                self.held.popitem(last=False)
            table = self.file.read_row_group(group, columns=self.columns)
            columns = {name: one_array(table.column(name)) for name in self.columns}
            self.held[group] = columns, table.nbytes
        self.held.move_to_end(group)
        return self.held[group][0]


class ArrowTable(Table):
    """A file of `datasets`, or of any Arrow stream or file: mapped, so that a row costs its own bytes."""

    def open(self, path):
        arrow = pyarrow()
        source = arrow.memory_map(path)
        self.whole = source.read_buffer()
        source.seek(0)
        try:
            reader = arrow.ipc.open_stream(source)
        except arrow.ArrowInvalid:
            source.seek(0)
            reader = arrow.ipc.open_file(source)
        self.batches = reader.read_all().to_batches()
        self.starts = starts_of(batch.num_rows for batch in self.batches)
        self.largest = 0
        return reader.schema

    def contents(self):
        return Contents(self.whole)

    def group_bytes(self, group):
        return 0  # bytes stay in the file

    def group(self, group):
        return {name: self.batches[group].column(name) for name in self.columns}


class Contents:
    """Bytes of media in an answer or in a file that is mapped, so that none become objects of Python."""

    def __init__(self, mapped=None):
        self.mapped = mapped
        self.parts = []  # of the answer
        self.size = 0

    def put(self, part):
        """Where the part begins."""
        self.parts.append(part)
        begin = self.size
        self.size += len(part)
        return begin

    def values(self, array):
        """Values of a column, with [where it begins, size] instead of bytes."""
        types = pyarrow().types
        kind = array.type
        if types.is_dictionary(kind):
            return self.values(array.dictionary_decode())
        if hasattr(array, "storage"):
            return self.values(array.storage)
        if types.is_binary(kind) or types.is_large_binary(kind):
            return self.places(array)
        valid = array.is_valid().to_pylist()
        if types.is_list(kind) or types.is_large_list(kind):
            bounds = array.offsets.to_pylist()
            inside = array.values.slice(bounds[0], bounds[-1] - bounds[0])
            found = self.values(inside)
            return [
                found[begin - bounds[0] : end - bounds[0]] if there else None
                for begin, end, there in zip(bounds, bounds[1:], valid, strict=False)
            ]
        if types.is_struct(kind) and holds_bytes(kind):
            fields = {
                field.name: self.values(child)
                for field, child in zip(kind, array.flatten(), strict=True)
                if field.name in ("bytes", "path")
            }
            rows = zip(*fields.values(), strict=True)
            return [
                dict(zip(fields, row, strict=True)) if there else None
                for row, there in zip(rows, valid, strict=True)
            ]
        return [with_places(value, self) for value in array.to_pylist()]

    def places(self, array):
        if len(array) == 0:
            return []
        _, offsets, data = array.buffers()
        wide = pyarrow().types.is_large_binary(array.type)
        bounds = memoryview(offsets).cast("q" if wide else "i")
        bounds = bounds[array.offset : array.offset + len(array) + 1].tolist()
        first, last = bounds[0], bounds[-1]
        size = 0 if data is None else data.size
        if first < 0 or last > size or any(map(operator.gt, bounds, bounds[1:])):
            raise Damaged("damaged: places of bytes that do not rise within the column")
        address = data.address if data is not None else 0
        here = address - self.mapped.address if self.mapped is not None else -1
        mapped = self.mapped is not None and 0 <= here and here + last <= self.mapped.size
        if not mapped and data is not None:
            here = self.put(memoryview(data)[first:last]) - first
        found = [
            [here + begin, end - begin] + [True] * mapped
            for begin, end in itertools.pairwise(bounds)
        ]
        if array.null_count:
            valid = array.is_valid().to_pylist()
            found = [place if there else None for place, there in zip(found, valid, strict=True)]
        return [place and Place(place) for place in found]


class Place(list):
    """[where it begins, size], and True where that is in the file."""


def with_places(value, contents):
    if isinstance(value, bytes):
        return Place([contents.put(value), len(value)])
    if isinstance(value, dict):
        return {key: with_places(entry, contents) for key, entry in value.items()}
    return [with_places(entry, contents) for entry in value] if isinstance(value, list) else value


def one_array(column):
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def starts_of(counts):
    return list(itertools.accumulate(counts, initial=0))


def media_of(value, name):
    """Places of bytes, or paths."""
    if value is None or value == "":
        return
    if isinstance(value, (Place, str)):
        yield value
    elif isinstance(value, list):
        for entry in value:
            if entry is None:
                raise Damaged(f"column '{name}' has an empty entry in its list")
            yield from media_of(entry, name)
    elif isinstance(value, dict) and is_filled(value.get("bytes")):
        yield value["bytes"]
    elif isinstance(value, dict) and value.get("path"):
        yield value["path"]
    else:
        raise Damaged(
            f"column '{name}' is {type(value).__name__}; bytes, a path or both are needed"
        )


def is_filled(place):
    return place is not None and (not isinstance(place, Place) or place[1] > 0)


def without_bytes(value):
    if isinstance(value, dict):
        return {
            key: without_bytes(entry)
            for key, entry in value.items()
            if entry is not None and not isinstance(entry, bytes)
        }
    if isinstance(value, list):
        return [without_bytes(entry) for entry in value if not isinstance(entry, bytes)]
    return value


class Tables:
    """Open files, the last ones used."""

    MOST = 8

    def __init__(self):
        self.open = OrderedDict()

    def table(self, request):
        path, texts, media = request["path"], request.get("texts", []), request.get("media", {})
        key = json.dumps([path, texts, media])
        if key not in self.open:
            while len(self.open) >= self.MOST:
                self.open.popitem(last=False)
            kind = ArrowTable if path.endswith(".arrow") else ParquetTable
            self.open[key] = kind(path, texts, media)
        self.open.move_to_end(key)
        return self.open[key]


def lines_of(table, begin, end):
    """The answer to a request for rows: (lines, parts of the bytes behind them)."""
    group, first, count = table.range(begin, end)
    contents = table.contents()
    try:
        records = table.records(group, first, count, contents)
    except ERRORS as error:
        return [{"error": reason_of(error), "rows": count}], []
    lines = [{"rows": count, "bytes": contents.size}]
    for record in records:
        if isinstance(record, Damaged):
            lines.append({"error": reason_of(record)})
        else:
            lines.append({"json": record[0], "media": record[1]})
    return lines, contents.parts


def answer(tables, request):
    table = tables.table(request)
    if "open" in request:
        return [{"rows": table.rows, "largest": table.largest, "unread": table.unread}], []
    if not 0 <= request["from"] < table.rows:
        raise Damaged(f"row {request['from']} of a table of {table.rows}")
    return lines_of(table, request["from"], request["to"])


def reason_of(error):
    return f"{error}" if isinstance(error, Damaged) else f"damaged: {error}"


def serve(source, sink):
    tables = Tables()
    for line in source:
        parts = []
        request = json.loads(line)
        try:
            lines, parts = answer(tables, request)
        except Missing as error:
            lines = [{"failure": str(error)}]
        except ERRORS as error:
            rows = request.get("to", 0) - request.get("from", 0)
            lines = [{"error": reason_of(error), "rows": rows}]
            lines[0] |= {"unfit": True} if isinstance(error, Unfit) else {}
        sink.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        for part in parts:
            sink.write(part)
        sink.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
