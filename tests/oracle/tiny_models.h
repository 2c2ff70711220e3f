// Models and profiles so small that a test can count by hand.
#pragma once

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/profile.h"

namespace entrain::oracle {

// Encoders "vision" and, for two, "audio", each of `encoder_layers` layers between embedding and
// projector; width 16 everywhere.
ModelSpec tiny_model(int encoders, int encoder_layers, int llm_layers);

// Vision of width 8 with 2 × 2 merged patches of 2 × 2 pixels and two layers, audio of the same
// shape, an LLM of width 16 with three layers, grouped queries and 100 words: every number differs
// from its neighbours, so that a formula that takes the wrong one shows.
ModelSpec small_model();

// Curves of every layer kind of every module of `model`.
Profile uniform_profile(const ModelSpec& model,
                        const CostCurve& forward,
                        const CostCurve& backward_input,
                        const CostCurve& backward_weight);

}  // namespace entrain::oracle
