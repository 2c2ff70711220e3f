"""Size manifests with encoder work, by the kind of encoder that they need, and models for them."""

from pathlib import Path

VISION = (
    "coco_val2017_captions",
    "opencqa_charts",
    "mathvision_qa",
    "openstax_chem_pages",
    "openstax_chem_sections",
    "vlm_small",
    "condensed_movies_video",
)
AUDIO = (
    "audio_small",
    "librispeech_utterances",
    "librispeech_multiclip",
    "earnings22_turns",
    "earnings_calls",
    "mtg_jamendo_music",
)


def chosen(options):
    """Those of --only, or all."""
    return options.only.split(",") if options.only else [*VISION, *AUDIO]


def inputs(folder, manifest, llm, profile="analytic:a40"):
    """Arguments: the manifest, a model with an encoder for it before that size of LLM, and its costs."""
    kind = "audio-" if manifest in AUDIO else ""
    return [
        *("--index", str(Path(folder) / f"{manifest}.csv")),
        *("--model", f"configs/models/qwen2.5-vl-{kind}llama-{llm}.toml", "--profile", profile),
    ]
