"""Token ids of samples by a Hugging Face tokenizer and its chat template: a worker of `entrain index`.

Runs as `python -m entrain.tokens`. Everything on standard input and output is one JSON document a line:
first the settings in and the tokenizer's facts out (main()), then batches: a number n and n samples in, n
results out, in order (Tokenizer.tokens()). A worker reads a whole batch before it answers the first sample
of it, and the program reads all answers before it sends the next, so that neither waits for the other on a
full pipe. A mistake of the data or the tokenizer's folder is {"error": reason}, anything else that goes
wrong {"failure": reason}.

Rules (docs/tokens.md): texts are rendered and encoded as transformers does it. A result has the ids of
the text without the placeholders of images and clips; `slots` says where features go between them.
"""

import base64
import hashlib
import json
import os
import re
import signal
import sys
from pathlib import Path

from entrain.chat_template import CLOSE, OPEN, ChatTemplate, find_template, read_json
from entrain.conversations import KINDS, Refused, put_media, read_sample

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # workers are processes

SPACE = "\u2581"  # how SentencePiece writes a space


def byte_level_table():
    """Byte-level BPE's character → byte: printable characters of Latin-1 are themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + number): byte for number, byte in enumerate(others)}


def read_decoder(document, path):
    """(whether tokens are byte-level, spaces to strip from the front of a text)."""
    decoder = document.get("decoder") or {}
    steps = decoder.get("decoders", []) if decoder.get("type") == "Sequence" else [decoder]
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"]:
        return True, 0
    strip = 0
    for step in steps:
        kind = step.get("type")
        if kind == "Strip" and step.get("content") == " " and step.get("stop", 0) == 0:
            strip = step.get("start", 0)
        elif kind == "Metaspace" and step.get("replacement", SPACE) == SPACE:
            strip = 0 if step.get("prepend_scheme", "always") == "never" else 1
        elif (
            kind == "Replace"
            and step.get("pattern") == {"String": SPACE}
            and step["content"] == " "
        ):
            continue
        elif kind not in ("ByteFallback", "Fuse"):
            raise Refused(
                f"{path}: decoder {kind}: allowed are ByteLevel, Metaspace and SentencePiece's steps"
            )
    return False, strip


class Tokenizer:
    def __init__(self, settings):
        try:
            import jinja2  # noqa: F401
            import tokenizers
        except ImportError as error:
            raise Refused(
                f"{sys.executable} cannot import {error.name}: `pip install tokenizers jinja2`, or name "
                "another Python in ENTRAIN_PYTHON"
            ) from error
        self.folder = Path(settings["folder"])
        self.loss = settings["loss"]
        self.media = {kind: settings[kind] for kind in KINDS if settings[kind]}
        path = self.folder / "tokenizer.json"
        self.document = read_json(path)
        try:
            self.backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise Refused(f"{path}: {error}") from error
        self.backend.no_truncation()
        self.backend.no_padding()
        config_path = self.folder / "tokenizer_config.json"
        self.config = read_json(config_path) if config_path.is_file() else {}
        self.specials = self._read_specials()
        self._set_ends()
        self.byte_level, self.strip = read_decoder(self.document, path)
        self.added = self.backend.get_added_tokens_decoder()
        special = sorted(
            (t.content for t in self.added.values() if t.special), key=len, reverse=True
        )
        self.special = re.compile("|".join(map(re.escape, special)) or "(?!)")
        # Tokenizers of models older than videos lack the token; samples with videos are refused then.
        self.lacking = [
            self.media.pop(kind)["token"]
            for kind in ("video",)
            if kind in self.media and self.backend.token_to_id(self.media[kind]["token"]) is None
        ]
        self.placeholders = {kind: self._placeholder(kind) for kind in self.media}
        source, template_path = find_template(self.folder, self.config, settings["chat_template"])
        self.template_source = source
        self.template = source is not None and ChatTemplate(
            source, template_path, self.specials, settings["time"], self.media
        )
        # Processors of models with media let the tokenizer add its special tokens, unless the template
        # writes the first one; tokenizers alone never do for a chat.
        self.chat_specials = settings["chat_specials"]

    def _read_specials(self):
        """Named special tokens, as templates see them."""
        found = {}
        for path in (self.folder / "special_tokens_map.json", None):
            names = self.config if path is None else read_json(path) if path.is_file() else {}
            for name, value in names.items():
                token = value.get("content") if isinstance(value, dict) else value
                if name.endswith("_token") and isinstance(token, str):
                    found[name] = token
        return found

    def _set_ends(self):
        """add_bos_token and add_eos_token of tokenizer_config.json replace the post-processor."""
        from tokenizers.processors import TemplateProcessing

        if self.config.get("add_bos_token") is None and self.config.get("add_eos_token") is None:
            return
        before, after = (
            self.specials.get(f"{name}_token") if self.config.get(f"add_{name}_token") else None
            for name in ("bos", "eos")
        )
        single = [before] * bool(before) + ["$A"] + [after] * bool(after)
        tokens = {token: self.backend.token_to_id(token) for token in (before, after) if token}
        if None in tokens.values():
            raise Refused(f"{self.folder}: the tokenizer lacks one of {', '.join(tokens)}")
        self.backend.post_processor = TemplateProcessing(
            single=single, pair=[*single, "$B:1"], special_tokens=list(tokens.items())
        )

    def _placeholder(self, kind):
        token = self.media[kind]["token"]
        encoded = self.backend.encode(token, add_special_tokens=False).ids
        number = self.backend.token_to_id(token)
        if number is None or encoded != [number]:
            raise Refused(
                f"{self.folder}: '{token}', the family's placeholder of {kind}, is no token of this tokenizer"
            )
        return number

    def stop_tokens(self):
        """Ids that end an answer: of the tokenizer's eos token, and of generation_config.json."""
        found = set()
        token = self.specials.get("eos_token")
        if token is not None and self.backend.token_to_id(token) is not None:
            found.add(self.backend.token_to_id(token))
        path = self.folder / "generation_config.json"
        given = read_json(path).get("eos_token_id") if path.is_file() else None
        found.update(given if isinstance(given, list) else [given] if given is not None else [])
        return sorted(found)

    def facts(self):
        def digest(text):
            return hashlib.sha256(text.encode()).hexdigest()[:32]

        return {
            "vocabulary": max(self.backend.get_vocab().values()) + 1,
            "placeholders": self.placeholders,
            "stop": self.stop_tokens(),
            "strip": self.strip,
            "tokenizer": digest(
                json.dumps([self.document, self.specials, self.config], sort_keys=True)
            ),
            "template": digest(self.template_source or ""),
            "loss": self.loss,
        }

    def table(self):
        """Bytes of every id, in base64: nothing for special tokens and numbers that no token has."""
        vocabulary = self.backend.get_vocab()
        table = [b""] * (max(vocabulary.values()) + 1)
        characters = byte_level_table()
        for token, number in vocabulary.items():
            added = self.added.get(number)
            if added is not None:
                table[number] = b"" if added.special else added.content.encode()
            elif self.byte_level:
                unknown = any(character not in characters for character in token)
                table[number] = token.encode() if unknown else bytes(characters[c] for c in token)
            elif re.fullmatch("<0x[0-9A-F]{2}>", token):
                table[number] = bytes([int(token[3:5], 16)])
            else:
                table[number] = token.replace(SPACE, " ").encode()
        return [base64.b64encode(entry).decode() for entry in table]

    # One sample.

    def tokens(self, request):
        """request: {"json": the sample's text, "images": [[rows, columns, whole too]], "videos": [[seconds of
        every temporal patch]], "clips": number}.

        Returns ids, targets [[begin, end)] of them, slots [[position, number]] in the text's order, where
        numbers count the tiles of all images, then the videos' patches, then the clips; characters
        without and with loss.
        """
        counts = {
            "image": len(request["images"]),
            "video": len(request["videos"]),
            "audio": request["clips"],
        }
        if request["videos"] and self.lacking:
            raise Refused(
                f"{self.folder}: '{self.lacking[0]}' of videos is no token of this tokenizer"
            )
        turns, plain = read_sample(request["json"], counts)
        listed = turns if turns is not None else [("", plain)]
        if any(OPEN in words or CLOSE in words for _, parts in listed for _, words in parts):
            raise Refused("the text holds U+FDD0 or U+FDD1, which are no characters")
        for kind in KINDS:
            put_media(listed, kind, counts[kind])
            if kind not in self.media:  # the model has no encoder for it
                for _, parts in listed:
                    parts[:] = [part for part in parts if part[0] != kind]
        if turns is None:
            text = "".join(
                words if kind == "text" else self.media[kind]["mark"] for kind, words in plain
            )
            answered = len("".join(words for _, words in plain))
            encoded = self._encode(text, None, request, True)
        else:
            text, ranges = self._chat(turns)
            answered = sum(len(w) for role, parts in turns if role == "assistant" for _, w in parts)
            begin = self.specials.get("bos_token")
            adds = self.chat_specials and not (begin and text.startswith(begin))
            encoded = self._encode(text, ranges, request, adds)
        characters = sum(len(words) for _, parts in listed for _, words in parts)
        return {**encoded, "prompt_chars": characters - answered, "response_chars": answered}

    def _chat(self, turns):
        """The rendered turns, and the ranges of it with loss; None: all."""
        if not self.template:
            raise Refused(
                f"{self.folder} has no chat template, which a conversation needs: name one with "
                "--chat-template, or give samples with `text` alone"
            )
        text, ranges = self.template.render(turns)
        if self.loss == "all":
            return text, None
        if not self.template.marks_generation:
            ranges = self.template.answers(turns, text, self.special)
        return text, ranges

    def _expand(self, text, ranges, request):
        """Every placeholder replaced by its medium's text: the text, the moved ranges, the ranges that are
        of media, and the number of segments of each kind."""
        texts = {kind: [] for kind in KINDS}
        segments = dict.fromkeys(KINDS, 0)
        for kind, marks in self.media.items():
            grids = {
                "image": [(*grid, ()) for grid in request["images"]],
                "video": [(len(seconds), 1, False, seconds) for seconds in request["videos"]],
                "audio": [(1, 1, False, ())] * request["clips"],
            }[kind]
            for rows, columns, whole, seconds in grids:
                texts[kind].append(medium_text(marks, rows, columns, whole, seconds))
                segments[kind] += rows * columns + (1 if whole else 0)
        kinds = {marks["written"]: kind for kind, marks in self.media.items()}
        found = list(re.finditer("|".join(map(re.escape, kinds)), text)) if kinds else []
        for token, kind in kinds.items():
            count = sum(match.group() == token for match in found)
            if count != len(texts[kind]):
                raise Refused(
                    f"the rendered text has {count} of '{token}', and {len(texts[kind])} of {kind} have "
                    "features: a text holds the placeholder, or the chat template leaves media out"
                )
        pieces, media, ends, gains = [], [], [], []
        at = length = 0
        left = {kind: iter(entries) for kind, entries in texts.items()}
        for match in found:
            new = next(left[kinds[match.group()]])
            pieces += [text[at : match.start()], new]
            length += match.start() - at
            media.append((length, length + len(new)))
            length += len(new)
            at = match.end()
            ends.append(at)
            gains.append(length - at)
        pieces.append(text[at:])

        def moved(place):
            passed = sum(end <= place for end in ends)
            return place + (gains[passed - 1] if passed else 0)

        moved_ranges = None if ranges is None else [(moved(a), moved(b)) for a, b in ranges]
        return "".join(pieces), moved_ranges, media, segments

    def _encode(self, text, ranges, request, add_special_tokens):
        text, ranges, media, segments = self._expand(text, ranges, request)
        encoding = self.backend.encode(text, add_special_tokens=add_special_tokens)
        kinds = {number: kind for kind, number in self.placeholders.items()}
        first = {
            "image": 0,
            "video": segments["image"],
            "audio": segments["image"] + segments["video"],
        }
        seen = dict.fromkeys(KINDS, 0)
        ids, targets, slots = [], [], []
        joined = False  # whether the token before is a target
        for number, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True):
            kind = kinds.get(number)
            if kind is not None:
                slots.append([len(ids), first[kind] + seen[kind]])
                seen[kind] += 1
                joined = False
                continue
            if ranges is None:  # all but what is of media
                target = not overlaps(begin, end, media)
            else:
                target = overlaps(begin, end, ranges)
            target = target and (len(ids) > 0 or len(slots) > 0)  # the first has nothing before it
            if target and joined:
                targets[-1][1] += 1
            elif target:
                targets.append([len(ids), len(ids) + 1])
            joined = target
            ids.append(number)
        if seen != segments:
            raise Refused(
                f"the encoded text has places for {seen}, and the sample's segments are {segments}"
            )
        return {"ids": ids, "targets": targets, "slots": slots}


def overlaps(begin, end, ranges):
    return any(begin < last and end > first for first, last in ranges)


def medium_text(marks, rows, columns, whole, seconds):
    """The text of one medium of rows × columns tiles, each row at its time, and the whole one after them."""
    token = marks["token"]
    times = [f"{second:.1f}" for second in seconds] or [""] * rows
    if rows * columns == 1 and not whole:
        return marks["single"].replace("{seconds}", times[0]).replace("{features}", token)
    text = marks["before"]
    for row in range(rows):
        for column in range(columns):
            tile = marks["tile"].replace("{row}", str(row + 1)).replace("{column}", str(column + 1))
            text += tile.replace("{seconds}", times[row]).replace("{features}", token)
        text += marks["row_end"]
    if whole:
        text += marks["whole"].replace("{features}", token)
    return text + marks["after"]


def answer(work):
    """The line that says what came of `work()`."""
    try:
        result = work()
    except Refused as error:
        result = {"error": str(error)}
    except Exception as error:  # noqa: BLE001  the program reports it
        result = {"failure": f"{type(error).__name__}: {error}"}
    return json.dumps(result, separators=(",", ":")).encode() + b"\n"


def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    source, target = sys.stdin.buffer, sys.stdout.buffer
    held = []

    def begin():
        held.append(Tokenizer(json.loads(source.readline())))
        return held[0].facts()

    target.write(answer(begin))
    target.flush()
    while held and (head := source.readline()):
        if head == b"table\n":
            target.write(answer(lambda: {"table": held[0].table()}))
        else:
            batch = [source.readline() for _ in range(int(head))]
            for line in batch:
                target.write(answer(lambda line=line: held[0].tokens(json.loads(line))))
                target.flush()
        target.flush()


if __name__ == "__main__":
    try:
        main()
    except ConnectionError:
        os._exit(1)  # the program stopped on an error of its own, which it reports
