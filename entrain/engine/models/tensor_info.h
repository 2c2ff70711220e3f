// The description of a tensor in a file of weights; free of torch, for code that only reads
// documents.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace entrain::engine {

struct TensorInfo {
  std::string name;
  std::string dtype;  // as the format writes it: "F32", "BF16", …
  std::vector<std::int64_t> shape;
  bool operator==(const TensorInfo&) const = default;
};

}  // namespace entrain::engine
