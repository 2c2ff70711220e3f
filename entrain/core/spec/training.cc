#include "entrain/core/spec/training.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/base/text.h"
#include "entrain/core/spec/name_patterns.h"
#include "entrain/core/spec/parameters.h"

namespace entrain {
namespace {

constexpr double kGreatestAlpha = 1e6;

BlockSpec& block_of(ModelSpec& model, int module) {
  return module == model.llm_module() ? static_cast<BlockSpec&>(model.llm)
                                      : model.encoders[static_cast<std::size_t>(module)];
}
const BlockSpec& block_of(const ModelSpec& model, int module) {
  return module == model.llm_module() ? static_cast<const BlockSpec&>(model.llm)
                                      : model.encoders[static_cast<std::size_t>(module)];
}

// A parameter without adapters, as patterns see it.
struct Named {
  std::string part;
  std::string name;
  std::string kind;
  ParameterSpec spec;
  [[nodiscard]] ParameterName view() const { return {part, name, kind}; }
};

std::string part_of_layer(const ModelSpec& model, int module, int layer) {
  if (module == model.llm_module()) {
    return kLlmPart;
  }
  const EncoderSpec& encoder = model.encoders[static_cast<std::size_t>(module)];
  return layer > encoder.num_layers ? projector_part(encoder) : encoder.name;
}

std::vector<Named> named_parameters(const ModelSpec& model, int module) {
  std::vector<Named> result;
  for (int layer = 0; layer < num_layers(model, module); ++layer) {
    for (ParameterSpec& spec : parameters_of(model, module, layer)) {
      const std::size_t dot = spec.name.rfind('.');
      result.push_back({part_of_layer(model, module, layer),
                        spec.name.substr(0, dot),
                        spec.name.substr(dot),
                        std::move(spec)});
    }
  }
  return result;
}

// The module without freezing and adapters.
ModelSpec plain(ModelSpec model) {
  for (int module = 0; module < model.num_modules(); ++module) {
    BlockSpec& block = block_of(model, module);
    block.frozen = false;
    block.frozen_parameters.clear();
    block.lora = {};
  }
  for (EncoderSpec& encoder : model.encoders) {
    encoder.projector_frozen = false;
  }
  return model;
}

// Names of the matrices that have an adapter.
std::set<std::string> adapted(const ModelSpec& model, int module) {
  std::set<std::string> result;
  for (const Named& parameter : named_parameters(model, module)) {
    if (parameter.spec.role == ParameterRole::kLoraA) {
      result.insert(parameter.name.substr(0, parameter.name.rfind('.')));
    }
  }
  return result;
}

std::set<std::string> adaptable(const ModelSpec& model, int module) {
  ModelSpec all = plain(model);
  block_of(all, module).lora = {.rank = 1, .alpha = 1.0, .targets = {"*"}, .train = {}};
  return adapted(all, module);
}

// ", did you mean 'x'?", or names that a pattern could fit.
std::string near_names(const std::string& pattern,
                       std::vector<std::string> words,
                       const std::vector<std::string>& names) {
  std::set<std::string> candidates(words.begin(), words.end());
  for (const std::string& name : names) {
    candidates.insert(name);
    candidates.insert(name.substr(name.rfind('.') + 1));
  }
  const std::vector<std::string> all(candidates.begin(), candidates.end());
  if (const std::string match = close_match(pattern, all); !match.empty()) {
    return match;
  }
  constexpr int kShown = 4;  // names of each module's first layer
  std::map<std::string, std::set<std::string>> shown;
  for (const std::string& name : names) {
    const std::size_t first = name.find(".0.");
    if (first != std::string::npos) {
      std::set<std::string>& of_layer = shown[name.substr(0, first)];
      if (std::ssize(of_layer) < kShown && of_layer.insert(name).second) {
        words.push_back(name);
      }
    }
  }
  return words.empty()
             ? std::string()
             : fmt::format("; allowed: {}, …; `.*` ends a pattern of a whole layer", join(words));
}

[[noreturn]] void refuse_key(const std::string& where,
                             const char* key,
                             const std::string& message) {
  throw InvalidInput(fmt::format("{}.{}: {}", where, key, message));
}

// A model's modules with the names that patterns may fit.
class NameCheck {
 public:
  explicit NameCheck(const ModelSpec& model) : model_(model) {
    const ModelSpec bare = plain(model);
    for (int module = 0; module < model.num_modules(); ++module) {
      parameters_.push_back(named_parameters(bare, module));
      adaptable_.push_back(adaptable(model, module));
      adapted_.push_back(adapted(model, module));
    }
  }

  // Patterns of any module have to fit something in a module that has them.
  void check_frozen(const std::string& where) const {
    for (const auto& [pattern, modules] :
         users([](const BlockSpec& block) { return block.frozen_parameters; })) {
      check_fits(pattern, modules, where);
    }
  }

  void check_targets(const std::string& where) const {
    for (const auto& [pattern, modules] :
         users([](const BlockSpec& block) { return block.lora.targets; })) {
      const std::vector<std::string> one = {pattern};
      const Named* fits = nullptr;
      bool matrix = false;
      bool adapter = false;
      any_parameter(modules, [&](int module, const Named& parameter) {
        if (names_matrix(one, parameter.view())) {
          fits = fits == nullptr ? &parameter : fits;
          matrix = matrix || adaptable_[at(module)].contains(parameter.name);
          adapter = adapter || adapted_[at(module)].contains(parameter.name);
        }
        return adapter;
      });
      if (fits == nullptr) {
        refuse_key(where,
                   "targets",
                   fmt::format("'{}' fits no linear layer{}",
                               pattern,
                               near_names(pattern, {}, names(adaptable_))));
      }
      if (!matrix) {
        refuse_key(
            where,
            "targets",
            fmt::format("'{}' fits '{}', which is no linear layer; adapters are for those alone",
                        pattern,
                        fits->name));
      }
      if (!adapter) {
        refuse_key(
            where,
            "targets",
            fmt::format("'{}' fits only matrices that are frozen by name or in lora.train, such "
                        "as '{}'; these have no adapter",
                        pattern,
                        fits->name));
      }
    }
  }

  void check_train(const std::string& where) const {
    for (const auto& [pattern, modules] :
         users([](const BlockSpec& block) { return block.lora.train; })) {
      check_fits(pattern, modules, where + ".train");
      const std::vector<std::string> one = {pattern};
      bool trained = false;
      for (int module = 0; module < model_.num_modules(); ++module) {
        for (const Named& p : named_parameters(model_, module)) {
          trained =
              trained || (p.spec.trainable && p.spec.role != ParameterRole::kLoraA &&
                          p.spec.role != ParameterRole::kLoraB && names_parameter(one, p.view()));
        }
      }
      if (!trained) {
        refuse_key(where, "train", fmt::format("'{}' fits only what is frozen", pattern));
      }
    }
  }

  // That no rank exceeds a side of its matrix.
  void check_ranks(const std::string& where) const {
    for (std::size_t module = 0; module < parameters_.size(); ++module) {
      const int rank = block_of(model_, static_cast<int>(module)).lora.rank;
      for (const Named& parameter : parameters_[module]) {
        if (parameter.kind == ".weight" && adapted_[module].contains(parameter.name)) {
          const std::int64_t side = std::min(parameter.spec.shape[0], parameter.spec.shape[1]);
          if (rank > side) {
            refuse_key(where,
                       "rank",
                       fmt::format("{} given; '{}' is {} x {}, which allows up to {}",
                                   rank,
                                   parameter.name,
                                   parameter.spec.shape[0],
                                   parameter.spec.shape[1],
                                   side));
          }
        }
      }
    }
  }

 private:
  // The modules that have a pattern, by it.
  template <class PatternsOf>
  [[nodiscard]] std::map<std::string, std::vector<int>> users(const PatternsOf& patterns_of) const {
    std::map<std::string, std::vector<int>> result;
    for (int module = 0; module < model_.num_modules(); ++module) {
      for (const std::string& pattern : patterns_of(block_of(model_, module))) {
        result[pattern].push_back(module);
      }
    }
    return result;
  }

  void check_fits(const std::string& pattern,
                  const std::vector<int>& modules,
                  const std::string& where) const {
    const std::vector<std::string> one = {pattern};
    const auto fits = [&](int, const Named& p) { return names_parameter(one, p.view()); };
    if (!any_parameter(modules, fits)) {
      throw InvalidInput(fmt::format("{}: '{}' is no module and fits no parameter{}",
                                     where,
                                     pattern,
                                     near_names(pattern, part_words(model_), names(parameters_))));
    }
  }

  // Whether `fits(module, parameter)` for one of them; it is not called any more after that.
  template <class Fits>
  bool any_parameter(const std::vector<int>& modules, const Fits& fits) const {
    return std::ranges::any_of(modules, [&](int module) {
      return std::ranges::any_of(parameters_[at(module)],
                                 [&](const Named& parameter) { return fits(module, parameter); });
    });
  }

  static std::vector<std::string> names(const std::vector<std::vector<Named>>& modules) {
    std::vector<std::string> result;
    for (const std::vector<Named>& module : modules) {
      for (const Named& parameter : module) {
        result.push_back(parameter.name);
      }
    }
    return result;
  }
  static std::vector<std::string> names(const std::vector<std::set<std::string>>& modules) {
    std::vector<std::string> result;
    for (const std::set<std::string>& module : modules) {
      result.insert(result.end(), module.begin(), module.end());
    }
    return result;
  }

  const ModelSpec& model_;
  std::vector<std::vector<Named>> parameters_;    // [module], those without adapters
  std::vector<std::set<std::string>> adaptable_;  // [module] names of matrices
  std::vector<std::set<std::string>> adapted_;
};

void check_twice(const std::vector<std::string>& words, const std::string& where, const char* key) {
  std::set<std::string> seen;
  for (const std::string& word : words) {
    if (!seen.insert(word).second) {
      refuse_key(where, key, fmt::format("'{}' is there twice", word));
    }
  }
}

// What does not depend on the model.
void check_lora(const LoraSpec& lora, const std::string& where) {
  if (lora.rank < 1) {
    refuse_key(where, "rank", fmt::format("{} given; at least 1 is needed", lora.rank));
  }
  if (!(lora.alpha > 0 && lora.alpha <= kGreatestAlpha)) {
    refuse_key(where,
               "alpha",
               fmt::format("{} given; allowed: above 0, up to {}", lora.alpha, kGreatestAlpha));
  }
  if (lora.targets.empty()) {
    refuse_key(where, "targets", "no pattern given; at least one is needed, such as \"q_proj\"");
  }
  check_twice(lora.targets, where, "targets");
  check_twice(lora.train, where, "train");
}

}  // namespace

void freeze_modules(ModelSpec& model,
                    std::span<const std::string> words,
                    const std::string& where) {
  const std::vector<std::string> parts = part_words(model);
  std::vector<std::string> patterns;
  for (const std::string& word : words) {
    if (std::ranges::find(parts, word) == parts.end()) {
      patterns.push_back(word);
      continue;
    }
    model.llm.frozen = model.llm.frozen || word == kLlmPart;
    for (EncoderSpec& encoder : model.encoders) {
      encoder.frozen = encoder.frozen || word == encoder.name;
      encoder.projector_frozen =
          encoder.projector_frozen || names_part(word, projector_part(encoder));
    }
  }
  if (patterns.empty()) {
    return;
  }
  for (int module = 0; module < model.num_modules(); ++module) {
    std::vector<std::string>& of_module = block_of(model, module).frozen_parameters;
    of_module.insert(of_module.end(), patterns.begin(), patterns.end());
  }
  NameCheck(model).check_frozen(where);
}

void add_lora(ModelSpec& model, const LoraSpec& lora, const std::string& where) {
  check_lora(lora, where);
  for (int module = 0; module < model.num_modules(); ++module) {
    block_of(model, module).lora = lora;
  }
  const NameCheck check(model);
  check.check_targets(where);
  check.check_train(where);
  check.check_ranks(where);
}

ModelSpec without_lora(ModelSpec model) {
  for (int module = 0; module < model.num_modules(); ++module) {
    block_of(model, module).lora = {};
  }
  return model;
}

void check_training(const ModelSpec& model, const std::string& where) {
  bool by_name = has_lora(model);
  for (int module = 0; module < model.num_modules(); ++module) {
    const BlockSpec& block = block_of(model, module);
    by_name = by_name || !block.frozen_parameters.empty();
    if (block.lora != LoraSpec{}) {
      check_lora(block.lora, key_path(where, module_name(model, module) + ".lora"));
    }
  }
  if (by_name) {
    const NameCheck check(model);
    check.check_frozen(key_path(where, "frozen_parameters"));
    check.check_targets(key_path(where, "lora"));
    check.check_train(key_path(where, "lora"));
    check.check_ranks(key_path(where, "lora"));
  }
}

void check_trainable(const ModelSpec& model, const std::string& where) {
  std::vector<std::string> parts;
  const auto note = [&parts](bool given, const std::string& part) {
    if (given) {
      parts.push_back(part);
    }
  };
  const LlmSpec& llm = model.llm;
  note(llm.sliding_window > 0, "llm.sliding_window");
  note(llm.full_image_attention, "llm.full_image_attention");
  note(llm.cross_attention, "llm.cross_attention");
  note(llm.position_rows > 0, "llm.position_rows");
  note(llm.post_norm, "llm.post_norm");
  for (const EncoderSpec& encoder : model.encoders) {
    note(encoder.post_norm, encoder.name + ".post_norm");
    note(encoder.projector.rms_merged, encoder.name + ".projector.rms_merged");
    note(encoder.resize_filter == ResizeFilter::kBilinear,
         encoder.name + ".resize_filter bilinear");
  }
  if (!parts.empty()) {
    throw InvalidInput(fmt::format(
        "{}: {} is known for costs alone (cost, plan, simulate, audit): no training with "
        "{}",
        where,
        model.name,
        join(parts)));
  }
}

bool has_lora(const ModelSpec& model) {
  return model.llm.lora.rank > 0 ||
         std::ranges::any_of(model.encoders,
                             [](const EncoderSpec& encoder) { return encoder.lora.rank > 0; });
}

bool any_trainable(const ModelSpec& model, int module) {
  for (int layer = 0; layer < num_layers(model, module); ++layer) {
    if (layer_trainable(model, module, layer)) {
      return true;
    }
  }
  return false;
}

LoraSpec read_lora(ObjectReader& reader) {
  LoraSpec lora;
  lora.rank = reader.required<int>("rank");
  lora.alpha = reader.optional<double>("alpha", lora.rank);
  lora.targets = reader.list<std::string>("targets");
  lora.train = reader.list<std::string>("train");
  return lora;
}

Json to_json(const LoraSpec& lora) {
  return {
      {"rank", lora.rank}, {"alpha", lora.alpha}, {"targets", lora.targets}, {"train", lora.train}};
}

LoraSpec parse_lora(const std::string& text, const std::string& where) {
  LoraSpec lora;
  const std::size_t colon = text.find(':');
  const char* end = text.data() + std::min(colon, text.size());
  const auto [rest, error] = std::from_chars(text.data(), end, lora.rank);
  if (colon == std::string::npos || error != std::errc() || rest != end) {
    throw InvalidInput(fmt::format(
        "{}: '{}' given; needed is RANK:TARGET,TARGET, such as 8:q_proj,v_proj", where, text));
  }
  lora.alpha = lora.rank;
  for (const std::string_view target : split(std::string_view(text).substr(colon + 1), ',')) {
    lora.targets.emplace_back(target);
  }
  return lora;
}

}  // namespace entrain
