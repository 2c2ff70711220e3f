// A measured profile within seconds: three sizes per layer kind, forward and backward.
//
// Read first: quick_profile(). The layers run through EncoderStage and LlmStage themselves.
#pragma once

#include <cstdint>
#include <string>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/profile.h"

namespace entrain::engine {

struct QuickProfileOptions {
  std::int64_t max_tokens = 1024;  // largest microbatch measured, in the module's tokens, >= 16
  int repeats = 15;                // most measurements per point, >= 3; the median counts
  double seconds = 15;             // stops repeating then, but never before three repeats; > 0
  std::string device = "cpu";      // name in the profile
  std::string command;             // how it was made, kept in the profile
};

// Every layer kind on one CPU thread in float32, in processor time, which other programs disturb
// little. Backward is measured with and without trainable weights; the difference is
// backward_weight, whose fit_error is relative to the whole backward. Rounds visit all points in
// turn, so that a busy moment of the machine disturbs many points once instead of one point often.
//
// activation_bytes_per_token: bytes that the layer's forward leaves allocated, without its output
// (which the layer after counts as its input) and with its input, at the largest size.
//
// Ensures   validate(result, model, …) holds; one entry per layer kind of every module; uses one
//           thread and restores torch's thread count.
// Throws    InvalidInput for options out of range or a model with an encoder that cannot run.
// Cost      options.seconds and a few more; memory of three layers a module.
Profile quick_profile(const ModelSpec& model, const QuickProfileOptions& options);

}  // namespace entrain::engine
