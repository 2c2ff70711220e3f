"""Chat templates, rendered as transformers renders them, and which part of the text is an answer."""

import json
import re
from datetime import datetime
from pathlib import Path

from entrain.conversations import Refused, kind_of

# Characters that no text may hold: around what a template generates.
OPEN, CLOSE = "\ufdd0", "\ufdd1"


def read_json(path):
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise Refused(f"{path}: a JSON object is needed")
    return document


def find_template(folder, config, given):
    """(template, its file) or (None, None); of several named ones the one called default."""
    if given:
        path = Path(given)
        if path.suffix == ".json":
            return read_json(path).get("chat_template"), str(path)
        try:
            return path.read_text(encoding="utf-8"), given
        except (OSError, ValueError) as error:
            raise Refused(f"--chat-template: {error}") from error
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8"), str(path)
    path = folder / "chat_template.json"
    template = read_json(path).get("chat_template") if path.is_file() else None
    if template is None:
        path = folder / "tokenizer_config.json"
        template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template}
        if "default" not in named:
            raise Refused(f"{path}: chat templates {', '.join(map(str, named))}; none is 'default'")
        template = named["default"]
    if template is not None and not isinstance(template, str):
        raise Refused(f"{path}: chat_template is {kind_of(template)}; a string is needed")
    return (template, str(path)) if template is not None else (None, None)


def make_environment(began):
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} … {% endgeneration %}: what the model is to write."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            self.environment.marks_generation = True
            return jinja2.nodes.CallBlock(self.call_method("_wrap"), [], [], body).set_lineno(line)

        def _wrap(self, caller):
            return OPEN + caller() + CLOSE

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.marks_generation = False
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = datetime.fromtimestamp(began).strftime
    return environment


class ChatTemplate:
    """A compiled template with the special tokens that it may name."""

    def __init__(self, source, path, specials, began, media):
        import jinja2

        self.path, self.specials, self.media = path, specials, media
        environment = make_environment(began)
        try:
            self.template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise Refused(f"{path}: {error}") from error
        self.marks_generation = environment.marks_generation
        self.takes_parts = bool(media) and self._takes_parts()

    def _takes_parts(self):
        probe = [{"role": "user", "content": [{"type": "text", "text": "probe"}]}]
        try:
            text = self._render(probe, False)
        except Refused:
            return True  # the samples will say why
        return "probe" in text and "'type'" not in text

    def _content(self, parts):
        if not self.takes_parts:
            return "".join(
                words or self.media[kind]["mark"]
                for kind, words in parts
                if words or kind != "text"
            )
        content = []
        for kind, words in parts:
            if kind != "text":
                content.append({"type": kind, kind: ""})
            elif words or len(parts) == 1:
                content.append({"type": "text", "text": words})
        return content

    def _render(self, messages, prompt):
        try:
            return self.template.render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=prompt,
                **self.specials,
            )
        except Exception as error:  # a template is a program: anything may be raised by it
            raise Refused(
                f"the chat template {self.path} fails: {error or type(error).__name__}"
            ) from error

    def render(self, turns, prompt=False):
        """The text, and the ranges of it that are inside of {% generation %}."""
        messages = [{"role": role, "content": self._content(parts)} for role, parts in turns]
        pieces, ranges, length, begin = [], [], 0, None
        for piece in re.split(f"([{OPEN}{CLOSE}])", self._render(messages, prompt)):
            if piece == OPEN:
                begin = length
            elif piece == CLOSE:
                ranges.append((begin, length))
            else:
                pieces.append(piece)
                length += len(piece)
        return "".join(pieces), ranges

    def answers(self, turns, text, special):
        """Ranges of the rendered `text` that are assistant turns, with the special token that ends them."""
        ranges = []
        for number, (role, _) in enumerate(turns):
            if role != "assistant":
                continue
            if number == 0:
                raise Refused(
                    "the first turn is the assistant's, and the chat template has no {% generation %}: "
                    "where its answer begins cannot be found"
                )
            before, _ = self.render(turns[:number], prompt=True)
            after, _ = self.render(turns[: number + 1])
            if not (text.startswith(after) and after.startswith(before)):
                raise Refused(
                    f"the chat template {self.path} writes turn {number} otherwise when more turns follow "
                    "it, and has no {% generation %}: where its answer is cannot be found"
                )
            answer = after[len(before) :]
            ends = [match.end() for match in special.finditer(answer)]
            ranges.append((len(before), len(before) + (ends[-1] if ends else len(answer))))
        return ranges
