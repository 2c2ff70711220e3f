// The operations a rank ran last, for the message of its failure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "entrain/core/spec/program.h"

namespace entrain::engine {

// A ring of positions in the lane's list.
class History {
 public:
  // Requires  capacity >= 1.
  explicit History(std::size_t capacity) : positions_(capacity, 0) {}

  void add(int position) { positions_[count_++ % positions_.size()] = position; }

  // Oldest first.
  [[nodiscard]] std::vector<int> positions() const {
    const std::size_t kept = count_ < positions_.size() ? count_ : positions_.size();
    std::vector<int> result;
    for (std::size_t i = count_ - kept; i < count_; ++i) {
      result.push_back(positions_[i % positions_.size()]);
    }
    return result;
  }

  // "forward vision 0 slot 0 group 0; send vision 0 slot 0 group 0 channel 0"
  [[nodiscard]] std::string to_text(const Program& program,
                                    const std::vector<Operation>& operations) const {
    std::string text;
    for (const int position : positions()) {
      text += text.empty() ? "" : "; ";
      text += to_string(program, operations[static_cast<std::size_t>(position)]);
    }
    return text;
  }

 private:
  std::vector<int> positions_;
  std::size_t count_ = 0;
};

}  // namespace entrain::engine
