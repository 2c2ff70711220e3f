"""Small models of the original classes, one of each family, with the processors of those that cut images."""

import torch
import transformers
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import (
    GotOcr2ImageProcessorPil,
)
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)
from transformers.models.smolvlm.image_processing_pil_smolvlm import (
    SmolVLMImageProcessorPil,
)


def tiny_text(**more):
    return dict(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=320,
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        bos_token_id=1,
        eos_token_id=2,
        **more,
    )


QWEN2_ROPE = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e6}


def qwen2_vl():
    config = transformers.Qwen2VLConfig(
        text_config=tiny_text(rope_parameters=dict(QWEN2_ROPE)),
        vision_config=dict(  # noqa: C408
            depth=3, embed_dim=32, mlp_ratio=3, num_heads=2, hidden_size=64
        ),
        image_token_id=300,
        video_token_id=301,
        vision_start_token_id=302,
        vision_end_token_id=303,
    )
    return transformers.Qwen2VLForConditionalGeneration(config)


def qwen2_5_vl(tied=False):
    config = transformers.Qwen2_5_VLConfig(
        text_config=tiny_text(rope_parameters=dict(QWEN2_ROPE)),
        vision_config=dict(  # noqa: C408
            depth=3,
            hidden_size=32,
            intermediate_size=48,
            num_heads=2,
            patch_size=14,
            window_size=56,
            fullatt_block_indexes=[1],
            out_hidden_size=64,
        ),
        image_token_id=300,
        video_token_id=301,
        vision_start_token_id=302,
        vision_end_token_id=303,
        tie_word_embeddings=tied,
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def qwen3_vl():
    rope = {"rope_type": "default", "mrope_section": [4, 2, 2], "rope_theta": 5e6}
    config = transformers.Qwen3VLConfig(
        text_config=tiny_text(head_dim=16, rope_parameters={**rope, "mrope_interleaved": True}),
        vision_config=dict(  # noqa: C408
            depth=4,
            hidden_size=32,
            intermediate_size=48,
            num_heads=2,
            patch_size=14,
            num_position_embeddings=36,
            deepstack_visual_indexes=[0, 2],
            out_hidden_size=64,
        ),
        image_token_id=300,
        video_token_id=301,
        vision_start_token_id=302,
        vision_end_token_id=303,
    )
    return transformers.Qwen3VLForConditionalGeneration(config)


VIT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 7,
}


def llava(vision, text, **more):
    config = transformers.LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=300, **more
    )
    return transformers.LlavaForConditionalGeneration(config)


GRIDS = [[28, 56], [56, 28], [56, 56], [84, 28]]


def llava_next():
    config = transformers.LlavaNextConfig(
        vision_config=transformers.CLIPVisionConfig(**VIT),
        text_config=transformers.MistralConfig(**tiny_text(sliding_window=None)),
        image_token_index=300,
        image_grid_pinpoints=GRIDS,
    )
    model = transformers.LlavaNextForConditionalGeneration(config)
    return tiled(
        model,
        LlavaNextImageProcessorPil(
            size={"shortest_edge": 28},
            crop_size={"height": 28, "width": 28},
            image_grid_pinpoints=GRIDS,
        ),
    )


def llava_onevision():
    """Patches leave two pixels of an image's sides, and features of more than a tile are resized."""
    grids = [[30 * side // 28 for side in grid] for grid in GRIDS]
    config = transformers.LlavaOnevisionConfig(
        vision_config=transformers.SiglipVisionConfig(
            **{**VIT, "image_size": 30}, vision_use_head=False
        ),
        text_config=transformers.Qwen2Config(**tiny_text()),
        image_token_index=300,
        video_token_index=301,
        image_grid_pinpoints=grids,
        vision_aspect_ratio="anyres_max_1",
    )
    model = transformers.LlavaOnevisionForConditionalGeneration(config)
    return tiled(
        model,
        LlavaOnevisionImageProcessorPil(
            size={"height": 30, "width": 30}, image_grid_pinpoints=grids
        ),
    )


def smolvlm():
    config = transformers.SmolVLMConfig(
        vision_config=dict(VIT), text_config=llama_config(), image_token_id=300, scale_factor=2
    )
    return transformers.SmolVLMForConditionalGeneration(config)


def internvl():
    config = transformers.InternVLConfig(
        vision_config={**VIT, "image_size": [28, 28], "patch_size": [7, 7]},
        text_config=transformers.Qwen2Config(**tiny_text()),
        image_token_id=300,
        tie_word_embeddings=False,
    )
    return transformers.InternVLForConditionalGeneration(config)


def tiled(model, processor):
    """The model with a processor that cuts images into several tiles."""
    model.processor = processor
    return model


def idefics3_tiles(side, most):
    return SmolVLMImageProcessorPil(
        size={"longest_edge": most}, max_image_size={"longest_edge": side}
    )


def internvl_tiles(side, most):
    return GotOcr2ImageProcessorPil(
        size={"height": side, "width": side}, crop_to_patches=True, max_patches=most
    )


def qwen2_audio(positions=100):
    config = transformers.Qwen2AudioConfig(
        audio_config={
            "d_model": 32,
            "encoder_layers": 3,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 48,
            "max_source_positions": positions,
        },
        text_config={"model_type": "qwen2", **tiny_text()},
        audio_token_index=300,
    )
    return transformers.Qwen2AudioForConditionalGeneration(config)


def llama_config():
    return transformers.LlamaConfig(**tiny_text())


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES = {
    "Qwen2-VL": qwen2_vl,
    "Qwen2.5-VL": qwen2_5_vl,
    "Qwen2.5-VL, tied": lambda: qwen2_5_vl(tied=True),
    "Qwen3-VL": qwen3_vl,
    "LLaVA, CLIP and Llama": lambda: llava(transformers.CLIPVisionConfig(**VIT), llama_config()),
    "LLaVA, SigLIP and Qwen2": lambda: llava(
        transformers.SiglipVisionConfig(**VIT, vision_use_head=False),
        transformers.Qwen2Config(**tiny_text()),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    ),
    "LLaVA, CLIP and Mistral": lambda: llava(
        transformers.CLIPVisionConfig(**VIT),
        transformers.MistralConfig(**tiny_text(sliding_window=None)),
    ),
    "LLaVA-NeXT, CLIP and Mistral": llava_next,
    "LLaVA-OneVision, SigLIP and Qwen2": llava_onevision,
    "SmolVLM": smolvlm,
    "SmolVLM, tiles": lambda: tiled(smolvlm(), idefics3_tiles(28, 84)),
    "InternVL": internvl,
    "InternVL, tiles": lambda: tiled(internvl(), internvl_tiles(28, 6)),
    "Qwen2-Audio": qwen2_audio,
    "Llama 3, scaled": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**tiny_text(rope_parameters=LLAMA3))
    ),
    "Llama, biases": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**tiny_text(attention_bias=True, mlp_bias=True))
    ),
    "Qwen2": lambda: transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**tiny_text(tie_word_embeddings=True))
    ),
    "Qwen3": lambda: transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**tiny_text(head_dim=24))
    ),
    "Mistral": lambda: transformers.MistralForCausalLM(
        transformers.MistralConfig(**tiny_text(sliding_window=None))
    ),
}


def make_random(model, seed):
    """Values of training: gains off one, biases off zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1 and "cls_token" not in name:
                fan_in = parameter[0].numel()
                parameter.copy_(noise * (1.0 if "embed_tokens" in name else fan_in**-0.5))
            else:
                gain = any(part in name for part in ("norm", "ln_q", "lambda"))
                parameter.copy_(noise * 0.1 + (1.0 if gain else 0.0))
