"""Adapters (LoRA) against peft on transformers: logits, loss, every adapter's gradient, and folders both ways.

Small random models get peft's adapters with random values. Entrain loads the folder that peft saved,
computes logits, loss and gradients, whole and cut into stages, writes the adapter's folder again, and a
model with the adapters added. peft has to load that adapter onto the original, and transformers that
model, with the same logits. Deviations are measured as in families.py and have to stay within 1e-5.

Example:
    .venv-parity/bin/python tests/parity/lora.py --forward build/release/tests/entrain_forward
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import peft
import torch
import transformers
from families import ALLOWED, SPLITS, deviation, run_original
from safetensors.torch import load_file, save_file
from samples import batch_of, inputs_of, make_samples
from tiny_models import make_random, qwen2_5_vl, tiny_text

TEXT = ["q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"]


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**tiny_text()))


# Of each: the model, peft's targets, and Entrain's patterns for the same matrices.
CASES = {
    "Llama, q, v and MLP": (llama, TEXT, TEXT),
    "Llama, every linear layer": (
        llama,
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"],
        ["*"],
    ),
    "Qwen2.5-VL, q, v and MLP": (qwen2_5_vl, TEXT, TEXT),
    "Qwen2.5-VL, vision, projector and q": (
        qwen2_5_vl,
        ["attn.qkv", "attn.proj", "merger.mlp.0", "merger.mlp.2", "q_proj"],
        ["attn.qkv", "attn.proj", "merger.mlp.?", "q_proj"],
    ),
}
RANK, ALPHA = 4, 10


def adapted(make, saved, targets):
    """The saved model with random adapters."""
    model = type(make()).from_pretrained(saved).eval()
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets)
    result = peft.get_peft_model(model, config).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in result.named_parameters():
            if "lora_" in name:
                scale = parameter.shape[1] ** -0.5 * (0.5 if "lora_A" in name else 0.2)
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return result


def logits_of(model, samples):
    with torch.no_grad():
        return torch.cat(
            [
                model(**inputs_of(model, ids, grids, pixels, videos)).logits[0]
                for ids, grids, _, pixels, videos, _ in samples
            ]
        )


def check(name, folder, forward):
    make, targets, patterns = CASES[name]
    torch.manual_seed(0)
    original = make().eval()
    make_random(original, 1)
    saved = folder / "saved"
    original.save_pretrained(saved)
    samples = make_samples(original, 2)
    model = adapted(make, saved, targets)
    adapter = folder / "adapter"
    model.save_pretrained(adapter, save_embedding_layers=False)
    logits, loss, gradients = run_original(model, samples)
    gradients = {n.replace(".default.", "."): g for n, g in gradients.items()}
    save_file(batch_of(original, samples), folder / "batch.safetensors")
    lora = json.dumps({"rank": RANK, "alpha": ALPHA, "targets": patterns})
    worst = {"logits": 0.0, "loss": 0.0, "gradient": 0.0}
    for split in SPLITS:
        output = folder / "output.safetensors"
        subprocess.run(
            [forward, saved, folder / "batch.safetensors", output, str(split), adapter, lora],
            check=True,
        )
        found = load_file(output)
        worst["logits"] = max(worst["logits"], deviation(found["logits"], logits))
        worst["loss"] = max(worst["loss"], abs(found["loss"].item() / loss - 1))
        names = {key.removeprefix("gradient ") for key in found if key.startswith("gradient ")}
        if names != set(gradients):
            raise SystemExit(f"{name}: gradients of other tensors: {names ^ set(gradients)}")
        for tensor, gradient in gradients.items():
            off = deviation(found[f"gradient {tensor}"], gradient)
            worst["gradient"] = max(worst["gradient"], off)
    written = folder / "output.safetensors.adapter"
    same = load_file(written / "adapter_model.safetensors")
    for tensor, value in load_file(adapter / "adapter_model.safetensors").items():
        if not torch.equal(same.pop(tensor), value):
            raise SystemExit(f"{name}: '{tensor}' was written with other values")
    if same:
        raise SystemExit(f"{name}: tensors that peft does not write: {list(same)}")
    loaded = peft.PeftModel.from_pretrained(type(original).from_pretrained(saved).eval(), written)
    worst["adapter in peft"] = deviation(logits_of(loaded.eval(), samples), logits)
    merged = type(original).from_pretrained(folder / "output.safetensors.folder").eval()
    worst["merged"] = deviation(logits_of(merged, samples), logits)
    return worst, len(gradients)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--forward", required=True, type=Path, help="program entrain_forward")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = False
    columns = ["adapters", "tensors", "logits", "loss", "gradients"]
    columns += ["our adapter in peft, logits", "our merged model, logits"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            worst, tensors = check(name, Path(folder), options.forward)
        failed |= max(worst.values()) > ALLOWED
        figures = " | ".join(f"{value:.1e}" for value in worst.values())
        print(f"| {name} | {tensors} | {figures} |", flush=True)
    if failed:
        raise SystemExit(f"a deviation is above {ALLOWED}")


if __name__ == "__main__":
    sys.exit(main())
