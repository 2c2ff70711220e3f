"""Processors of families of models with published settings, by what they count of an image or a clip.

Configs are those of published folders as far as they decide sizes; layers and widths are small.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy
import torch
import transformers
from transformers.image_processing_backends import PilBackend
from transformers.image_processing_utils import select_best_resolution
from transformers.image_utils import SizeDict
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

SAMPLING_RATE = 16000

TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
}
CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


@dataclass
class Family:
    name: str
    how: str  # where the original's numbers are from
    config: dict
    processor: dict
    count: object  # of (width, height) or samples: (features, tokens of the encoder); raises ValueError


def bare(cls, **attributes):
    """A processor without its tokenizer."""
    processor = object.__new__(cls)
    vars(processor).update(attributes)
    return processor


# Image processors


def qwen(name, architecture, model_type, vision, processor, rope):
    """Sizes within limits of pixels: Qwen/Qwen2-VL-2B-Instruct, Qwen2.5-VL-3B-Instruct, Qwen3-VL-2B-Instruct."""
    images = transformers.Qwen2VLImageProcessorPil(**processor)

    def count(width, height):
        patches = images.get_number_of_image_patches(height, width)
        return patches // images.merge_size**2, patches

    text = TEXT | {"rope_scaling": rope}
    if model_type == "qwen3_vl":
        config = {"text_config": text | {"head_dim": 16}, "vision_config": vision}
    else:
        config = text | {"vision_config": vision}
    config |= {"architectures": [architecture], "model_type": model_type}
    how = "`get_number_of_image_patches`"
    return Family(
        name, how, config, processor | {"image_processor_type": "Qwen2VLImageProcessor"}, count
    )


def qwens():
    limits = {"min_pixels": 3136, "max_pixels": 12845056}
    old = limits | {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2} | CLIP
    rope = {"type": "mrope", "mrope_section": [2, 3, 3]}
    yield qwen(
        "Qwen2-VL",
        "Qwen2VLForConditionalGeneration",
        "qwen2_vl",
        {"depth": 2, "embed_dim": 64, "hidden_size": 64, "num_heads": 2},
        old,
        rope,
    )
    vision = {"depth": 2, "hidden_size": 64, "num_heads": 2, "out_hidden_size": 64}
    yield qwen(
        "Qwen2.5-VL",
        "Qwen2_5_VLForConditionalGeneration",
        "qwen2_5_vl",
        vision | {"intermediate_size": 128, "fullatt_block_indexes": [1], "window_size": 112},
        old,
        rope,
    )
    size = {"shortest_edge": 65536, "longest_edge": 16777216}
    new = {"size": size, "patch_size": 16, "merge_size": 2, "temporal_patch_size": 2} | HALF
    vision |= {"patch_size": 16, "intermediate_size": 128, "deepstack_visual_indexes": [0]}
    interleaved = {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [4, 2, 2]}
    yield qwen("Qwen3-VL", "Qwen3VLForConditionalGeneration", "qwen3_vl", vision, new, interleaved)


def vit(model_type, image_size, patch_size):
    return {
        "model_type": model_type,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": image_size,
        "patch_size": patch_size,
    }


def combined(architecture, model_type, vision, text_type="llama", **more):
    config = {"architectures": [architecture], "model_type": model_type, "vision_config": vision}
    return config | {"text_config": TEXT | {"model_type": text_type}} | more


def llava():
    """llava-hf/llava-1.5-7b-hf"""
    side = {"height": 336, "width": 336}
    processor = {"size": {"shortest_edge": 336}, "crop_size": side} | CLIP
    images = transformers.CLIPImageProcessorPil(**processor)
    original = bare(
        transformers.LlavaProcessor,
        image_processor=images,
        patch_size=14,
        num_additional_image_tokens=1,
        vision_feature_select_strategy="default",
        _merge_kwargs=lambda **_: {"images_kwargs": {}},
    )

    def count(width, height):
        found = original._get_num_multimodal_tokens([(height, width)])
        return found["num_image_tokens"][0], found["num_image_patches"][0] * (24 * 24 + 1)

    config = combined("LlavaForConditionalGeneration", "llava", vit("clip_vision_model", 336, 14))
    processor |= {"image_processor_type": "CLIPImageProcessor"}
    return Family("LLaVA", "`_get_num_multimodal_tokens`", config, processor, count)


def any_resolution(name, cls, side, extra, config, processor, **attributes):
    """`extra`: tokens of a tile beside its patches."""
    grid = side // 14
    original = bare(cls, image_processor=SimpleNamespace(**processor), **attributes)

    def count(width, height):
        best = select_best_resolution((height, width), processor["image_grid_pinpoints"])
        tiles = 1 + best[0] // side * (best[1] // side)
        # With a class token features leave it out.
        features = original._get_number_of_features(height, width, side, side)
        return features, tiles * (grid * grid + extra)

    return Family(name, "`_get_number_of_features`", config, processor, count)


def llava_next():
    """llava-hf/llava-v1.6-mistral-7b-hf"""
    canvases = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
    processor = {
        "image_processor_type": "LlavaNextImageProcessor",
        "image_grid_pinpoints": canvases,
        "size": {"shortest_edge": 336},
        "crop_size": {"height": 336, "width": 336},
    } | CLIP
    config = combined(
        "LlavaNextForConditionalGeneration",
        "llava_next",
        vit("clip_vision_model", 336, 14),
        text_type="mistral",
        image_grid_pinpoints=canvases,
    )
    # Of its one additional token, the class token, features do without.
    return any_resolution(
        "LLaVA-NeXT",
        transformers.LlavaNextProcessor,
        336,
        1,
        config,
        processor,
        patch_size=14,
        num_additional_image_tokens=0,
    )


def llava_onevision():
    """llava-hf/llava-onevision-qwen2-0.5b-ov-hf"""
    sides = range(384, 384 * 7, 384)
    canvases = [[height, width] for height in sides for width in sides]
    processor = {
        "image_processor_type": "LlavaOnevisionImageProcessor",
        "image_grid_pinpoints": canvases,
        "size": {"height": 384, "width": 384},
    } | HALF
    config = combined(
        "LlavaOnevisionForConditionalGeneration",
        "llava_onevision",
        vit("siglip_vision_model", 384, 14),
        text_type="qwen2",
        image_grid_pinpoints=canvases,
        vision_aspect_ratio="anyres_max_9",
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )
    return any_resolution(
        "LLaVA-OneVision",
        transformers.LlavaOnevisionProcessor,
        384,
        0,
        config,
        processor,
        num_image_tokens=27 * 27,
        vision_aspect_ratio="anyres_max_9",
    )


def internvl():
    """OpenGVLab/InternVL3-1B-hf"""
    processor = {
        "size": {"height": 448, "width": 448},
        "crop_to_patches": False,  # InternVLProcessor sets it
        "min_patches": 1,
        "max_patches": 12,
    }
    images = GotOcr2ImageProcessorPil(**processor | {"crop_to_patches": True})

    def count(width, height):
        tiles = images.get_number_of_image_patches(height, width)
        return tiles * 256, tiles * (32 * 32 + 1)

    config = combined(
        "InternVLForConditionalGeneration",
        "internvl",
        vit("internvl_vision", 448, 14),
        text_type="qwen2",
        downsample_ratio=0.5,
    )
    processor |= {
        "processor_class": "InternVLProcessor",
        "image_processor_type": "GotOcr2ImageProcessor",
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }
    return Family("InternVL", "`get_number_of_image_patches`", config, processor, count)


def without_pixels(cls):
    """The class, with resizing that only makes an image of the new size."""

    def resize(self, image, size, **_):
        return numpy.broadcast_to(numpy.uint8(0), (3, size.height, size.width))

    base = type("WithoutPixels", (PilBackend,), {"resize": resize})
    return type(cls.__name__, (cls, base), {})


def longest_edge(name, cls, architecture, model_type, side, patch_size, scale, longest):
    """HuggingFaceM4/Idefics3-8B-Llama3, HuggingFaceTB/SmolVLM-256M-Instruct

    The steps of preprocessing, which count the tiles themselves.
    """
    processor = {"size": {"longest_edge": longest}, "max_image_size": {"longest_edge": side}}
    images = without_pixels(cls)(**processor)
    features = (side // patch_size // scale) ** 2

    def count(width, height):
        image = numpy.broadcast_to(numpy.uint8(0), (3, height, width))
        image = images.resize(image, SizeDict(longest_edge=longest))
        image = images.resize_for_vision_encoder(image, side)
        tiles = len(images.split_images(image, processor["max_image_size"])[0])
        return tiles * features, tiles * (side // patch_size) ** 2

    vision = vit(model_type, side, patch_size)
    config = combined(architecture, model_type, vision, scale_factor=scale)
    processor |= {"image_processor_type": cls.__name__.removesuffix("Pil")} | HALF
    return Family(name, "preprocessing without pixels", config, processor, count)


def tiled():
    yield longest_edge(
        "Idefics3",
        transformers.Idefics3ImageProcessorPil,
        "Idefics3ForConditionalGeneration",
        "idefics3",
        364,
        14,
        2,
        1456,
    )
    yield longest_edge(
        "SmolVLM",
        SmolVLMImageProcessorPil,
        "SmolVLMForConditionalGeneration",
        "smolvlm",
        512,
        16,
        4,
        2048,
    )


def gemma3():
    """google/gemma-3-4b-it"""
    processor = {
        "do_pan_and_scan": None,
        "image_seq_length": 256,
        "resample": 2,
        "size": {"height": 896, "width": 896},
    } | HALF
    original = bare(transformers.Gemma3Processor, image_seq_length=256)

    def count(width, height):
        found = original._get_num_multimodal_tokens([(height, width)])
        return found["num_image_tokens"][0], found["num_image_patches"][0] * 64 * 64

    config = combined(
        "Gemma3ForConditionalGeneration",
        "gemma3",
        vit("siglip_vision_model", 896, 14),
        text_type="gemma3_text",
        mm_tokens_per_image=256,
    )
    processor |= {"image_processor_type": "Gemma3ImageProcessor"}
    return Family("Gemma 3", "`_get_num_multimodal_tokens`", config, processor, count)


# Feature extractors


def extractor(bands):
    """Whisper's, without computing mel frames."""
    result = transformers.WhisperFeatureExtractor(feature_size=bands)
    result._np_extract_fbank_features = lambda clips, device: numpy.zeros((len(clips), bands, 3000))
    return result


def mel_frames(frames, samples):
    """Frames of a padded clip, and those of them that hold sound."""
    found = frames(
        numpy.zeros(samples, numpy.float32),
        sampling_rate=SAMPLING_RATE,
        padding="max_length",
        return_attention_mask=True,
    )
    return found["input_features"].shape[-1], int(found["attention_mask"].sum())


def after_convolution(frames):
    return (frames - 1) // 2 + 1


def qwen2_audio():
    """Qwen/Qwen2-Audio-7B-Instruct"""
    frames = extractor(128)
    tower = transformers.models.qwen2_audio.modeling_qwen2_audio.Qwen2AudioEncoder

    def count(samples):
        real = torch.tensor(mel_frames(frames, samples)[1])
        tokens, features = tower._get_feat_extract_output_lengths(None, real)
        return features.item(), tokens.item()

    audio = {
        "model_type": "qwen2_audio_encoder",
        "encoder_layers": 2,
        "d_model": 64,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 128,
    }
    config = {
        "architectures": ["Qwen2AudioForConditionalGeneration"],
        "model_type": "qwen2_audio",
        "audio_config": audio,
        "text_config": TEXT | {"model_type": "qwen2"},
    }
    processor = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128}
    how = "`attention_mask`, `_get_feat_extract_output_lengths`"
    return Family("Qwen2-Audio", how, config, processor, count)


def whisper():
    """openai/whisper-tiny"""
    frames = extractor(80)

    def count(samples):
        return 0, after_convolution(mel_frames(frames, samples)[0])

    config = {"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper"}
    processor = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80}
    return Family("Whisper", "`input_features`", config, processor, count)


def families():
    yield from qwens()
    yield llava()
    yield llava_next()
    yield llava_onevision()
    yield internvl()
    yield from tiled()
    yield gemma3()
    yield qwen2_audio()
    yield whisper()
