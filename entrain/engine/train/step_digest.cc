#include "entrain/engine/train/step_digest.h"

#include <cstdint>
#include <vector>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

void append(std::string& bytes, std::int64_t value) {
  for (unsigned shift = 0; shift < 64; shift += 8) {
    bytes.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> shift & 0xffU));
  }
}

void append(std::string& bytes, const ReplicaProgram& replica) {
  for (const std::vector<Operation>& lane : replica.lanes) {
    append(bytes, std::ssize(lane));
    for (const Operation& operation : lane) {
      append(bytes, static_cast<std::int64_t>(operation.kind));
      append(bytes, operation.unit.module);
      append(bytes, operation.unit.stage);
      append(bytes, operation.unit.slot);
      append(bytes, operation.unit.group);
      append(bytes, operation.channel);
    }
  }
}

}  // namespace

std::string digest(const PreparedStep& step) {
  std::string bytes = digest(step.assignment);
  append(bytes, step.step);
  append(bytes, step.target_tokens);
  for (const std::string& id : step.sample_ids) {
    bytes.append(id).push_back('\0');
  }
  for (const ReplicaProgram& replica : step.program.replicas) {
    append(bytes, replica);
  }
  return digest_of(bytes);
}

}  // namespace entrain::engine
