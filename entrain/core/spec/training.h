// What of a model is trained: freezing by module or by name, and low-rank adapters (LoRA).
//
// Read first: freeze_modules() and add_lora(). They write into the model's description, which the
// list of a layer's parameters (parameters.h) follows. How patterns are written: name_patterns.h.
//
// Frozen is what a word or pattern of `freeze` names. Of the rest, without adapters all parameters
// are trained. With adapters those are trained, and of the others what `train` names. A matrix
// that is frozen by name or trained itself has no adapter.
#pragma once

#include <span>
#include <string>

#include "entrain/core/base/json.h"
#include "entrain/core/spec/model.h"

namespace entrain {

// Freezes what the words name, beside what the model file freezes: `NAME` an encoder without its
// projector, `NAME.projector` that, `projector` those of all encoders, `llm` the LLM; any other
// word is a pattern over parameter names. What a run file's `freeze` and the option --freeze hold.
//
// Throws  InvalidInput, beginning with `where`, for a pattern that fits no parameter, with near
//         names.
void freeze_modules(ModelSpec& model, std::span<const std::string> words, const std::string& where);

// Gives the model these adapters.
//
// Throws  InvalidInput, beginning with `where`: a rank below 1 or above a side of a matrix, an
//         alpha that is not above 0, no target, the same twice, a target that fits no matrix or
//         only frozen ones, a word of `train` that fits nothing.
void add_lora(ModelSpec& model, const LoraSpec& lora, const std::string& where);

// The model with its adapters left out, and what was frozen for their sake trained.
ModelSpec without_lora(ModelSpec model);

// Checks a model whose description came with patterns or adapters, as both functions above do.
void check_training(const ModelSpec& model, const std::string& where);

// Refuses a model that is known for costs alone: the engine computes none with such parts.
// Throws  InvalidInput, beginning with `where`, naming the parts.
void check_trainable(const ModelSpec& model, const std::string& where);

bool has_lora(const ModelSpec& model);
bool any_trainable(const ModelSpec& model, int module);

// The keys `rank`, `alpha`, `targets` and `train`; the caller reads further ones and finishes.
LoraSpec read_lora(ObjectReader& reader);
Json to_json(const LoraSpec& lora);
// "RANK:TARGET,TARGET": adapters whose alpha is the rank, which costs do not depend on.
// Throws  InvalidInput, beginning with `where`, for another text.
LoraSpec parse_lora(const std::string& text, const std::string& where);

}  // namespace entrain
