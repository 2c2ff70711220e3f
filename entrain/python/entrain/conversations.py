"""Samples of a data set as conversations: turns of parts of text and media.

A turn is (role, parts). A part is ("text", words), or (kind, "") of a kind of media (KINDS).
"""

import json
import re

KINDS = ("image", "video", "audio")
# Types of a message's parts that hold a medium.
PART_KINDS = {
    **{kind: kind for kind in KINDS},
    **{f"{kind}_url": kind for kind in KINDS},
    "input_audio": "audio",
}
ROLES = {"system": "system", "user": "user", "assistant": "assistant"}
SHARED_ROLES = {"system": "system", "human": "user", "gpt": "assistant", **ROLES}
ANSWERS = ("answer", "response", "caption")  # of a list of them the first counts
PAIRS = (("question", "answer"), ("prompt", "response"), (None, "caption"), (None, "text"))


class Refused(Exception):
    """A mistake that the caller can mend."""


class Spelled(str):
    """A JSON number as the document spells it."""


def text_of(document, key):
    value = document.get(key)
    if isinstance(value, list) and key in ANSWERS:
        if not value or not all(type(entry) is str for entry in value):
            found = "one of other values" if value else "empty"
            raise Refused(
                f"'{key}' is a list; of a list of strings the first is taken, and this is {found}"
            )
        value = value[0]
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise Refused(f"'{key}' is {kind_of(value)}; a string, number, true or false is needed")
    return str(value)


def kind_of(value):
    names = {dict: "an object", list: "an array", type(None): "null", bool: "a truth value"}
    number = isinstance(value, (Spelled, int, float))
    return names.get(type(value), "a number" if number else "a string")


def split_marks(text):
    """Parts of a text in which <image> and its like stand for media, a line break after them left out."""
    parts = []
    for piece in re.split(rf"(<(?:{'|'.join(KINDS)})>\n?)", text):
        name = piece.rstrip("\n")
        if name[1:-1] in KINDS and name == f"<{name[1:-1]}>":
            parts.append((name[1:-1], ""))
        elif piece:
            parts.append(("text", piece))
    return parts or [("text", "")]


def parts_of_content(content, where):
    if isinstance(content, str) and not isinstance(content, Spelled):
        return [("text", content)]
    if not isinstance(content, list):
        raise Refused(
            f"{where}.content is {kind_of(content)}; a string or a list of parts is needed"
        )
    parts = []
    for number, part in enumerate(content):
        place = f"{where}.content[{number}]"
        if not isinstance(part, dict):
            raise Refused(f"{place} is {kind_of(part)}; an object with a type is needed")
        kind = part.get("type")
        if kind == "text":
            parts.append(("text", text_of(part, "text")))
        elif kind in PART_KINDS:
            parts.append((PART_KINDS[kind], ""))
        else:
            raise Refused(f"{place}.type: {kind!r} given; allowed: text, {', '.join(PART_KINDS)}")
    return parts or [("text", "")]


def turns_of_messages(document, key="messages"):
    turns = []
    for where, message in entries_of(document, key):
        for name, value in message.items():
            if name not in ("role", "content") and value not in (None, [], ""):
                raise Refused(f"{where}: key '{name}' is unknown; allowed: role, content")
        role = message.get("role")
        if role not in ROLES:
            raise Refused(f"{where}.role: {role!r} given; allowed: {', '.join(ROLES)}")
        turns.append((role, parts_of_content(message.get("content"), where)))
    return turns


def turns_of_conversations(document):
    entries = document["conversations"]
    if (
        isinstance(entries, list)
        and entries
        and isinstance(entries[0], dict)
        and "role" in entries[0]
    ):
        return turns_of_messages(document, "conversations")
    turns = []
    for where, message in entries_of(document, "conversations"):
        role = message.get("from")
        if role not in SHARED_ROLES:
            raise Refused(f"{where}.from: {role!r} given; allowed: {', '.join(SHARED_ROLES)}")
        turns.append((SHARED_ROLES[role], split_marks(text_of(message, "value"))))
    return turns


def turns_of_texts(document):
    """Rows of `user` and `assistant`, as the Cauldron and FineVision have them."""
    turns = []
    for where, entry in entries_of(document, "texts"):
        for role in ("user", "assistant"):
            if role not in entry:
                raise Refused(f"{where}: no '{role}'; it and its partner are needed")
            turns.append((role, [("text", text_of(entry, role))]))
    return turns


def with_marks(turns, counts):
    """The turns with <image> and its like read as media, where they are written in words, are as many as the
    sample has media, and no part of a type is a medium; else as they are."""
    split = [
        (role, [part for _, words in parts for part in split_marks(words)]) for role, parts in turns
    ]
    found = {kind: sum(part[0] == kind for _, parts in split for part in parts) for kind in KINDS}
    named = any(kind != "text" for _, parts in turns for kind, _ in parts)
    return split if not named and any(found.values()) and found == counts else turns


def entries_of(document, key):
    entries = document[key]
    if not isinstance(entries, list) or not entries:
        raise Refused(f"'{key}' is {kind_of(entries)}; a list of at least one turn is needed")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise Refused(f"{key}[{number}] is {kind_of(entry)}; an object is needed")
        yield f"{key}[{number}]", entry


def read_sample(text, counts):
    """(turns, None), or (None, parts) of a text without turns. `counts`: the sample's media of each kind."""
    try:
        document = json.loads(text, parse_int=Spelled, parse_float=Spelled)
    except ValueError as error:
        raise Refused(f"no JSON: {error}") from error
    if not isinstance(document, dict):
        raise Refused(f"a JSON object is needed, given {kind_of(document)}")
    if "messages" in document:
        return with_marks(turns_of_messages(document), counts), None
    if "conversations" in document:
        return turns_of_conversations(document), None
    if "texts" in document:
        return turns_of_texts(document), None
    for question, answer in PAIRS:
        if answer not in document and (question is None or question not in document):
            continue
        words = text_of(document, answer)
        if question is not None:
            asked = [("text", text_of(document, question))]
            return [("user", asked), ("assistant", [("text", words)])], None
        if answer == "caption" and any(counts.values()):
            return [("user", []), ("assistant", [("text", words)])], None
        return None, split_marks(words)
    raise Refused(
        "no text; needed is messages, conversations, texts, question and answer, prompt and response, "
        "caption, or text"
    )


def check_places(turns, kind, count):
    """Whether the turns have `count` parts of a kind; they may have none."""
    found = sum(part[0] == kind for _, parts in turns for part in parts)
    if found not in (0, count):
        raise Refused(f"{found} places for {kind} in the text, and the sample has {count}")
    return found == count


def put_media(turns, kind, count):
    """Checks that the turns have `count` parts of a kind; if none, puts them in front of the first user's
    words, behind media that are there already."""
    if check_places(turns, kind, count):
        return
    for role, parts in turns:
        if role == "user":
            begin = next((i for i, part in enumerate(parts) if part[0] == "text"), len(parts))
            parts[begin:begin] = [(kind, "")] * count
            return
    raise Refused(f"{count} of {kind}, no place for them in the text, and no turn of a user")
