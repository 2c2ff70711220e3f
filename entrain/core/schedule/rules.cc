#include "entrain/core/schedule/rules.h"

namespace entrain {

std::vector<ListRule> eager_rules() {
  std::vector<ListRule> rules;
  for (const int window : {0, 400, 200, 150, 100}) {
    rules.push_back({.window_percent = window});
  }
  return rules;
}

std::vector<ListRule> entrain_fused_rules() {
  std::vector<ListRule> rules;
  for (const int window : {100, 150, 200, 0}) {
    for (const bool encoder_first : {false, true}) {
      rules.push_back({.encoder_forward_first = encoder_first, .window_percent = window});
    }
  }
  rules.push_back(kStrictRule);
  return rules;
}

std::vector<ListRule> entrain_rules() {
  const std::vector<ListRule> fused = entrain_fused_rules();
  std::vector<ListRule> rules;
  for (ListRule rule : fused) {
    if (!rule.in_order) {
      rule.weight = WeightHalf::kFilling;
      rules.push_back(rule);
    }
  }
  rules.insert(rules.end(), fused.begin(), fused.end());
  return rules;
}

}  // namespace entrain
