"""Small tokenizers like those of families of models, with chat templates of their formats, for tests.

Needs the package `tokenizers`.
"""

import json
import random
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

QWEN_SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
QWEN_TEMPLATE = """
{%- if messages[0].role != 'system' %}
    {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'image' %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif part.type == 'video' %}
                {{- '<|vision_start|><|video_pad|><|vision_end|>' }}
            {%- else %}
                {{- part.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
AUDIO_SPECIALS = ["<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]
AUDIO_TEMPLATE = """
{%- set clips = namespace(count=0) %}
{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- for part in message.content %}
        {%- if 'audio' in part %}
            {%- set clips.count = clips.count + 1 %}
            {{- 'Audio ' ~ clips.count ~ ': <|audio_bos|><|AUDIO|><|audio_eos|>\\n' }}
        {%- elif 'text' in part %}
            {{- part.text }}
        {%- endif %}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
LLAMA_SPECIALS = [
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
]
LLAMA_TEMPLATE = """
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('no such role') }}
    {%- endif %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
    {%- if message.role == 'assistant' %}
        {% generation %}
        {{- message.content | trim + '<|eot_id|>' }}
        {%- endgeneration %}
    {%- else %}
        {{- message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
SMOLVLM_SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<end_of_utterance>",
    "<fake_token_around_image>",
    "<image>",
    "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
]
SMOLVLM_TEMPLATE = """<|im_start|>
{%- for message in messages %}
    {{- message.role | capitalize }}
    {{- ':' if message.content[0].type == 'image' else ': ' }}
    {%- for part in message.content %}
        {{- '<image>' if part.type == 'image' else part.text }}
    {%- endfor %}
    {{- '<end_of_utterance>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'Assistant:' }}
{%- endif %}
"""
LLAVA_TEMPLATE = """
{%- for message in messages %}
    {%- if message.role != 'system' %}
        {{- message.role.upper() + ': ' }}
    {%- endif %}
    {%- for part in message.content if part.type == 'image' %}
        {{- '<image>\\n' }}
    {%- endfor %}
    {%- for part in message.content if part.type == 'text' %}
        {%- if message.role == 'assistant' %}
            {%- generation %}
            {{- part.text + ' ' }}
            {%- endgeneration %}
        {%- else %}
            {{- part.text + ' ' }}
        {%- endif %}
    {%- endfor %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'ASSISTANT:' }}
{%- endif %}
"""

SENTENCE = (
    "what colour is the ball on the left of these pictures how many red blue green shapes are there "
    "and which one is largest because it stands before all others in a row of seven"
)
WORDS = SENTENCE.split()
UNICODE = ["naïve", "Größe", "日本語", "привет", "🙂", "e\u0301", "ﬁne", "𝒳"]


def corpus(count=400, seed=1):
    chooser = random.Random(seed)
    return [" ".join(chooser.choices(WORDS, k=12)) for _ in range(count)]


def byte_level(specials, vocabulary, normalizer=None):
    """Byte-level BPE, as Qwen's, Llama 3's and SmolLM's are."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(specials),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in specials])
    return tokenizer


def sentencepiece(vocabulary):
    """BPE with ▁ for spaces and bytes for what it does not know, as Llama 2's is."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "\u2581")
    trained.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    trained.train_from_iterator(
        corpus(), trainers.BpeTrainer(vocab_size=vocabulary - 260, show_progress=False)
    )
    model = json.loads(trained.to_str())["model"]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    names += sorted(model["vocab"], key=model["vocab"].get)
    tokenizer = Tokenizer(
        models.BPE(
            vocab={name: number for number, name in enumerate(names)},
            merges=[tuple(merge) for merge in model["merges"]],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>", "<image>")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def save(folder, tokenizer, template, **config):
    """Writes tokenizer.json, tokenizer_config.json and, with one, chat_template.jinja."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return tokenizer


def qwen(folder, vocabulary=512, template=QWEN_TEMPLATE):
    tokenizer = byte_level(QWEN_SPECIALS, vocabulary, normalizers.NFC())
    return save(folder, tokenizer, template, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def qwen_audio(folder, vocabulary=512):
    tokenizer = byte_level(QWEN_SPECIALS + AUDIO_SPECIALS, vocabulary, normalizers.NFC())
    return save(folder, tokenizer, AUDIO_TEMPLATE, eos_token="<|im_end|>")


def llama3(folder, vocabulary=512):
    tokenizer = byte_level(LLAMA_SPECIALS, vocabulary)
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A",
        pair="<|begin_of_text|> $A $B",
        special_tokens=[("<|begin_of_text|>", begin)],
    )
    return save(
        folder,
        tokenizer,
        LLAMA_TEMPLATE,
        bos_token="<|begin_of_text|>",
        eos_token="<|eot_id|>",
    )


def smolvlm(folder, vocabulary=512):
    tokenizer = byte_level(SMOLVLM_SPECIALS, vocabulary)
    return save(
        folder,
        tokenizer,
        SMOLVLM_TEMPLATE,
        bos_token="<|im_start|>",
        eos_token="<end_of_utterance>",
        pad_token="<|endoftext|>",
    )


def llava(folder, vocabulary=512):
    tokenizer = sentencepiece(vocabulary)
    return save(
        folder,
        tokenizer,
        LLAVA_TEMPLATE,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<unk>",
        image_token="<image>",
    )


def conversation(chooser, medium):
    """Random turns: (messages, number of media). `medium`: image or audio, in up to three parts a turn
    beside texts; None: contents are strings."""

    def words():
        chosen = chooser.choices(WORDS + UNICODE, k=chooser.randrange(1, 9))
        return chooser.choice(["", " ", "\n"]) + " ".join(chosen) + chooser.choice(["", "?", ".\n"])

    messages, count = [], 0
    if chooser.random() < 0.4:
        messages.append({"role": "system", "content": [{"type": "text", "text": words()}]})
    for _ in range(chooser.randrange(1, 4)):
        content = [{"type": "text", "text": words()}]
        for _ in range(chooser.randrange(4) if medium else 0):
            content.insert(chooser.randrange(len(content) + 1), {"type": medium})
            count += 1
            if chooser.random() < 0.5:
                content.append({"type": "text", "text": words()})
        messages.append({"role": "user", "content": content})
        messages.append({"role": "assistant", "content": [{"type": "text", "text": words()}]})
    if medium is None:
        for message in messages:
            message["content"] = message["content"][0]["text"]
    return messages, count
