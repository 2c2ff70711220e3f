"""Sizes of images in the media metadata that `energon prepare-media` writes (`.nv-meta/index.sqlite`).

A process: reads a request a line, answers with a line of JSON:

    {"path": FILE, "entries": [members]}    {"sizes": [[width, height] or null, …]}

or {"error": TEXT} for a file without metadata. `entrain/core/dataset/energon.h` is the other end.
"""

import json
import sqlite3
import sys
from pathlib import Path

# Width and height as an index may hold them.
MOST_PIXELS = 1_000_000


def size_of(kind, document):
    if kind != "image":
        return None
    facts = json.loads(document)
    size = [facts["width"], facts["height"]]
    return size if all(isinstance(n, int) and 0 < n <= MOST_PIXELS for n in size) else None


def answer(files, request):
    path = request["path"]
    try:
        if path not in files:
            files.clear()
            files[path] = sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True)
        find = "SELECT metadata_type, metadata_json FROM media_metadata WHERE entry_key = ?"
        rows = (files[path].execute(find, (entry,)).fetchone() for entry in request["entries"])
        return {"sizes": [row and size_of(*row) for row in rows]}
    except (sqlite3.Error, LookupError, TypeError, ValueError) as error:
        return {"error": f"no media metadata as `energon prepare-media` writes them: {error}"}


def serve(source, sink):
    files = {}
    for line in source:
        sink.write(json.dumps(answer(files, json.loads(line))).encode() + b"\n")
        sink.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
