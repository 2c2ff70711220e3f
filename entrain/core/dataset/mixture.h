// Data sets mixed in stated shares: which sample each draw takes, a pure function of the seed and
// the draw's number.
//
// Read first: read_mixture(), then Mixture. docs/data.md has examples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "entrain/core/base/json.h"

namespace entrain {

struct MixtureWeight {
  std::int64_t step = 0;  // from which on it counts
  double weight = 0;      // >= 0
  bool operator==(const MixtureWeight&) const = default;
};

// Some of an index's samples. Its share of the draws is its weight over the weights of all parts.
struct MixturePart {
  std::string samples;  // their ids, as fits_glob() reads them
  // Rising steps, the first 0; empty: the number of samples times `repeat`, whatever the step.
  std::vector<MixtureWeight> weights;
  double repeat = 1;
  std::int64_t epochs = 0;  // passes over the samples, then others take its share; 0: no end
  bool operator==(const MixturePart&) const = default;
};

// Reads a table of parts by their globs: `"llava/*" = 2`, a number being a weight, or a table with
// `weight` (a number, or a list of [step, weight]) or `repeat`, and `epochs`.
//
// Throws  InvalidInput naming `where` and the key: an unknown key, weight beside repeat, a number
//         that is negative or not finite, steps that do not begin at 0 or do not rise, no part.
std::vector<MixturePart> read_mixture(const Json& table, const std::string& where);
// The same from a TOML file that holds nothing else.
//
// Throws  also InvalidInput that says what such a file is, for a run file.
std::vector<MixturePart> read_mixture_file(const std::filesystem::path& path);
Json to_json(const std::vector<MixturePart>& parts);

// Draws follow each other without end, global_batch of them a step. Of any number of draws in which
// weights do not change, a part gets its share but for one draw a part. It draws its samples in an
// order of its own, each once before any comes again; the next pass has another order.
class Mixture {
 public:
  // A mixture ends where every part is used up or weighs 0.
  //
  // Throws  InvalidInput for a sample that fits no part or several, a part without samples, and
  //         weights that are all 0 at step 0; global_batch < 1.
  Mixture(std::vector<MixturePart> parts,
          std::span<const std::string> ids,
          int global_batch,
          std::uint64_t seed);

  // Samples of a step in drawn order. A sample occurs twice where a pass over its part ends within
  // the step.
  //
  // Shapes  result: [global_batch], values index ids.
  // Throws  InvalidInput when step < 0, or when the mixture ends before the step does (naming
  //         how many steps are whole).
  // Cost    O(global_batch · parts); O(samples of a part) where its pass is another one than in the
  //         previous call.
  std::vector<int> rows(std::int64_t step);

  // Whole steps until its end; nullopt without one.
  [[nodiscard]] std::optional<std::int64_t> num_steps() const;

  struct Share {
    std::string samples;    // the part's glob
    std::int64_t size = 0;  // its samples
    std::int64_t draws = 0;
    [[nodiscard]] double passes() const {
      return static_cast<double>(draws) / static_cast<double>(size);
    }
  };
  // What steps 0 to `steps` - 1 draw of each part.
  [[nodiscard]] std::vector<Share> shares(std::int64_t steps) const;

 private:
  struct Part {
    std::vector<int> samples;  // into ids
    std::int64_t pass = -1;    // of `order`
    std::vector<int> order;
  };
  // Draws with the same shares.
  struct Phase {
    std::int64_t begin = 0;              // draw
    std::vector<std::int64_t> drawn;     // [part] before it
    std::vector<std::uint64_t> portion;  // [part] of what the parts before leave, in 2^-32
  };

  void find_parts(std::span<const std::string> ids);
  void find_phases();
  [[nodiscard]] std::vector<double> weights_at(std::int64_t draw) const;
  // Draw before which every part whose passes are limited is used up, or the next phase begins.
  [[nodiscard]] std::int64_t end_of_phase(const Phase& phase) const;
  [[nodiscard]] std::int64_t limit_of(std::size_t part) const;
  [[nodiscard]] const Phase& phase_of(std::int64_t draw) const;
  // [part] draws before `draw`.
  [[nodiscard]] static std::vector<std::int64_t> drawn_before(const Phase& phase,
                                                              std::int64_t draw);
  int sample_of(std::size_t part, std::int64_t number);

  std::vector<MixturePart> specs_;
  std::vector<Part> parts_;
  std::int64_t global_batch_;
  std::uint64_t seed_;
  std::vector<Phase> phases_;
  std::int64_t end_ = -1;  // draw at which all parts are used up; -1: never
};

}  // namespace entrain
