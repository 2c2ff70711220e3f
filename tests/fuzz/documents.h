// A model, a plan and a batch for targets whose documents speak of one.
#pragma once

#include <nlohmann/json.hpp>

#include "entrain/core/base/json.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

#include "tests/fuzz/fuzz.h"

namespace entrain::fuzz {

inline ModelSpec tiny_model() {
  return read_model(ENTRAIN_SOURCE_ROOT "/tests/documents/tiny_model.toml");
}

inline Plan tiny_plan() {
  static constexpr std::string_view kPlan = R"({"version": 1, "replicas": 1, "num_slots": 2,
    "modules": {"vision": {"tensor_parallel": 1, "context_parallel": 1, "stages": [[0, 4]]},
                "llm": {"tensor_parallel": 1, "context_parallel": 1, "stages": [[0, 4]]}},
    "lanes": [[["vision", 0]], [["llm", 0]]], "policy": "entrain", "schedule": "1f1b"})";
  return plan_from_json(parse_json(kPlan, "plan.json"), tiny_model(), "plan.json");
}

// Three samples "a", "b", "c": one image, none, two.
inline std::vector<SampleSizes> tiny_batch() {
  std::vector<SampleSizes> batch(3);
  batch[0].id = "a";
  batch[0].images = {{32, 16}};
  batch[1].id = "b";
  batch[2].id = "c";
  batch[2].images = {{16, 16}, {48, 32}};
  for (SampleSizes& sample : batch) {
    sample.prompt_tokens = 12;
    sample.response_tokens = 4;
    sample.prompt_tokens_estimate = 12;
    sample.response_tokens_estimate = 4;
  }
  return batch;
}

}  // namespace entrain::fuzz
