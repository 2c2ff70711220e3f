"""Size manifests with encoder work, by the kind of encoder that they need."""

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
