"""Token ids and loss masks of `entrain index` against transformers' processors and tokenizers.

For each family a tiny tokenizer with the family's kind of model and chat template is made, and 200 random
conversations: one to three turns, a system prompt, several images anywhere between words, characters of
many scripts. `entrain index` tokenizes them; the ids have to be those of `apply_chat_template`, and where
the template marks what is generated the loss has to be on the tokens of `return_assistant_tokens_mask`.
Placeholders of images and clips are compared by their places; how many there are is compared by families.py.

Example:
    .venv-parity/bin/python tests/parity/tokens.py --entrain build/release/entrain/cli/entrain
"""

import argparse
import io
import json
import random
import subprocess
import sys
import tarfile
import tempfile
import wave
from pathlib import Path

import numpy
import tiny_models
import transformers
from PIL import Image
from transformers import AutoTokenizer
from transformers.processing_utils import ProcessorMixin

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "oracle")]
import tiny_tokenizers
from token_files import read_tokens

CONVERSATIONS = 200
VOCABULARY = 512
CLIP_SAMPLES = 4000  # 0.25 s


class QwenProcessor(transformers.Qwen2_5_VLProcessor):
    """Without the processor of videos, which needs torchvision."""

    def __init__(self, image_processor, tokenizer):
        self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
        self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
        self.video_token_id = None
        ProcessorMixin.__init__(self, image_processor, tokenizer)


def qwen_processor(tokenizer):
    images = transformers.Qwen2VLImageProcessorPil(min_pixels=28 * 28, max_pixels=28 * 28 * 16)
    return QwenProcessor(images, tokenizer)


def llava_processor(tokenizer):
    side = {"height": 28, "width": 28}
    images = transformers.CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size=side)
    return transformers.LlavaProcessor(
        images, tokenizer, patch_size=7, vision_feature_select_strategy="full"
    )


def smolvlm_processor(tokenizer):
    """Idefics3's, whose texts are SmolVLM's."""
    side = {"longest_edge": 28}
    images = transformers.Idefics3ImageProcessorPil(
        do_image_splitting=False, size=side, max_image_size=side
    )
    return transformers.Idefics3Processor(images, tokenizer, image_seq_len=4)


def llava_model():
    vision = transformers.SiglipVisionConfig(**tiny_models.VIT)
    return tiny_models.llava(
        vision, tiny_models.llama_config(), vision_feature_select_strategy="full"
    )


def llama_model():
    return transformers.LlamaForCausalLM(tiny_models.llama_config())


def audio_processor(tokenizer):
    frames = transformers.WhisperFeatureExtractor(feature_size=128)
    return transformers.Qwen2AudioProcessor(frames, tokenizer)


# Name: (tokenizer, model, processor or None, medium or None).
FAMILIES = {
    "Qwen2.5-VL": (tiny_tokenizers.qwen, tiny_models.qwen2_5_vl, qwen_processor, "image"),
    "SmolVLM": (tiny_tokenizers.smolvlm, tiny_models.smolvlm, smolvlm_processor, "image"),
    "LLaVA": (tiny_tokenizers.llava, llava_model, llava_processor, "image"),
    "Qwen2-Audio": (tiny_tokenizers.qwen_audio, tiny_models.qwen2_audio, audio_processor, "audio"),
    "Llama 3": (tiny_tokenizers.llama3, llama_model, None, None),
}
PLACEHOLDERS = {
    "image": ("<|image_pad|>", "<image>"),
    "video": ("<|video_pad|>",),
    "audio": ("<|AUDIO|>",),
}


def write_model(folder, make, tokenizer):
    """A config.json whose ids are the tokenizer's."""
    model = make()
    config = model.config
    text = getattr(config, "text_config", config)
    text.vocab_size = VOCABULARY
    for kind, tokens in PLACEHOLDERS.items():
        for key in (f"{kind}_token_id", f"{kind}_token_index"):
            if hasattr(config, key):
                found = [tokenizer.token_to_id(token) for token in tokens]
                setattr(config, key, next(number for number in found if number is not None))
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)


def write_shard(path, conversations, medium):
    buffer = io.BytesIO()
    if medium == "audio":
        with wave.open(buffer, "wb") as clip:
            clip.setparams((1, 2, 16000, 0, "NONE", ""))
            clip.writeframes(bytes(2 * CLIP_SAMPLES))
    else:
        Image.new("RGB", (40, 30)).save(buffer, "PNG")
    kind = "wav" if medium == "audio" else "png"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as shard:
        for number, (messages, count) in enumerate(conversations):
            members = [(f"{k}.{kind}", buffer.getvalue()) for k in range(count)]
            members = [(kind, buffer.getvalue())] if count == 1 else members
            members.append(("json", json.dumps({"messages": messages}).encode()))
            for name, content in members:
                info = tarfile.TarInfo(f"{number:05d}.{name}")
                info.size = len(content)
                shard.addfile(info, io.BytesIO(content))


def original(tokenizer, processor, template, messages, clips):
    """(ids, mask or None) of transformers."""
    marked = "generation" in template.replace("add_generation_prompt", "")
    options = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": marked}
    if processor is None:
        result = tokenizer.apply_chat_template(messages, chat_template=template, **options)
        return result["input_ids"], result["assistant_masks"] if marked else None
    if clips is not None:
        for message in messages:
            for part in message["content"]:
                part.update({"audio": ""} if part["type"] == "audio" else {})
        text = processor.apply_chat_template(messages, chat_template=template)
        audio = [numpy.zeros(CLIP_SAMPLES, numpy.float32)] * clips
        result = processor(text=[text], audio=audio or None, audio_kwargs={"sampling_rate": 16000})
        return [int(token) for token in result["input_ids"][0]], None
    messages = json.loads(json.dumps(messages))
    for message in messages:
        for part in message["content"]:
            if part["type"] == "image":
                part["image"] = Image.new("RGB", (40, 30))
    result = processor.apply_chat_template(messages, chat_template=template, **options)
    return result["input_ids"][0], result["assistant_masks"][0] if marked else None


def compare(name, entrain, folder):
    """(conversations with equal ids and places of images, with equal masks or None)."""
    make_tokenizer, make_model, make_processor, medium = FAMILIES[name]
    folder = folder / name.replace(" ", "_")
    written = make_tokenizer(folder / "model", VOCABULARY)
    write_model(folder / "model", make_model, written)
    chooser = random.Random(11)
    conversations = [tiny_tokenizers.conversation(chooser, medium) for _ in range(CONVERSATIONS)]
    write_shard(folder / "c-0.tar", conversations, medium)
    command = [entrain, "index", folder / "c-0.tar", "-o", folder / "c.csv"]
    command += ["--model", folder / "model", "--workers", "2", "--max-tokens", "100000"]
    result = subprocess.run(
        [str(part) for part in command], check=False, capture_output=True, text=True
    )
    if result.returncode != 0:
        raise SystemExit(result.stderr)
    facts, samples = read_tokens(folder / "c.csv")
    placeholder = facts["placeholders"].get(medium)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    processor = make_processor(tokenizer) if medium else None
    template = (folder / "model" / "chat_template.jinja").read_text()
    same_ids, same_masks, masks = 0, 0, False
    for (messages, count), (_, ids, targets, slots) in zip(conversations, samples, strict=True):
        clips = count if medium == "audio" else None
        theirs, mask = original(tokenizer, processor, template, messages, clips)
        places, text = [], []
        for number, token in enumerate(theirs):
            if token != placeholder:
                text.append(token)
            elif number == 0 or theirs[number - 1] != placeholder:
                places.append(len(text))
        same_ids += text == ids and sorted({position for position, _ in slots}) == places
        if mask is not None:
            masks = True
            expected = [m for m, token in zip(mask, theirs, strict=True) if token != placeholder]
            ours = [0] * len(ids)
            for begin, end in targets:
                ours[begin:end] = [1] * (end - begin)
            same_masks += expected == ours
    return same_ids, same_masks if masks else None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entrain", required=True, type=Path, help="program entrain")
    parser.add_argument("--only", default="", help="families whose name contains this")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    failed = False
    print(
        "| tokenizer and template | conversations | equal ids | equal loss masks |\n|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in FAMILIES:
            if options.only not in name:
                continue
            ids, masks = compare(name, options.entrain.resolve(), Path(folder))
            failed |= ids != CONVERSATIONS or masks not in (None, CONVERSATIONS)
            shown = "no mark in the template" if masks is None else masks
            print(f"| {name} | {CONVERSATIONS} | {ids} | {shown} |", flush=True)
    if failed:
        raise SystemExit("token ids or masks differ")


if __name__ == "__main__":
    sys.exit(main())
