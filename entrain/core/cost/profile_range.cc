#include "entrain/core/cost/profile_range.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace entrain {
namespace {

// Largest unit and sum over all units of one feature.
class Feature {
 public:
  void add(std::int64_t value) {
    largest_ = std::max(largest_, static_cast<double>(value));
    sum_ += static_cast<double>(value);
  }
  [[nodiscard]] double least(int num_slots) const { return std::max(largest_, sum_ / num_slots); }

 private:
  double largest_ = 0;
  double sum_ = 0;
};

std::string warning(const Profile& profile,
                    const LayerProfile& layer,
                    const char* what,
                    double used,
                    double measured) {
  return fmt::format(
      "the profile of '{}' measured {} of '{}' on up to {:.0f} {}; this batch needs microbatches "
      "of {:.0f}, more than {:.0f} times as many: predicted times are extrapolated (`entrain "
      "profile --max-tokens` measures further)",
      profile.device,
      name_of(layer.kind),
      layer.module,
      measured,
      what,
      used,
      kRangeAllowance);
}

void check(const Profile& profile,
           const LayerProfile& layer,
           const ModuleUse& use,
           std::vector<std::string>& warnings) {
  if (!layer.range.known()) {
    return;
  }
  const bool head = layer.kind == LayerKind::kOutputHead;
  const double tokens = head ? use.target_tokens : use.tokens;
  const double pairs = layer.kind == LayerKind::kWindowedTransformer ? use.window_pairs : use.pairs;
  if (tokens > kRangeAllowance * layer.range.most_tokens) {
    warnings.push_back(warning(
        profile, layer, head ? "target tokens" : "tokens", tokens, layer.range.most_tokens));
  } else if (layer.range.most_pairs > 0 && pairs > kRangeAllowance * layer.range.most_pairs) {
    warnings.push_back(warning(profile, layer, "attention pairs", pairs, layer.range.most_pairs));
  }
}

}  // namespace

std::vector<ModuleUse> least_use(const ModelSpec& model,
                                 std::span<const SampleWork> batch,
                                 int num_slots) {
  std::vector<ModuleUse> result;
  for (int module = 0; module < model.num_modules(); ++module) {
    Feature tokens;
    Feature pairs;
    Feature window_pairs;
    Feature targets;
    for (const SampleWork& sample : batch) {
      if (module == model.llm_module()) {
        tokens.add(sample.llm_tokens);
        pairs.add(sample.llm_attention_pairs);
        window_pairs.add(sample.llm_window_pairs);
        targets.add(sample.target_tokens);
        continue;
      }
      for (const SegmentWork& segment : sample.segments[static_cast<std::size_t>(module)]) {
        tokens.add(segment.tokens);
        pairs.add(segment.attention_pairs);
        window_pairs.add(segment.window_pairs);
      }
    }
    result.push_back({tokens.least(num_slots),
                      pairs.least(num_slots),
                      window_pairs.least(num_slots),
                      targets.least(num_slots)});
  }
  return result;
}

std::vector<std::string> range_warnings(const ModelSpec& model,
                                        const Plan& plan,
                                        const Profile& profile,
                                        std::span<const SampleWork> batch) {
  const std::vector<ModuleUse> uses = least_use(model, batch, plan.replicas * plan.num_slots);
  std::vector<std::string> warnings;
  for (int module = 0; module < model.num_modules(); ++module) {
    const ModulePlan& of_plan = plan.modules[static_cast<std::size_t>(module)];
    std::set<LayerKind> seen;
    for (int index = 0; index < num_layers(model, module); ++index) {
      const LayerKind kind = layer_kind(model, module, index);
      if (seen.insert(kind).second) {
        check(profile,
              find_layer(
                  profile, of_plan.name, kind, of_plan.tensor_parallel, of_plan.context_parallel),
              uses[static_cast<std::size_t>(module)],
              warnings);
      }
    }
  }
  return warnings;
}

}  // namespace entrain
