#include "entrain/engine/pipeline/unit_tensors.h"

#include <string>
#include <utility>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

std::string to_text(const UnitKey& unit) {
  return concat(
      "module ", unit.module, " stage ", unit.stage, " slot ", unit.slot, " group ", unit.group);
}

}  // namespace

UnitTensors::Entry& UnitTensors::add(const UnitKey& unit) {
  const auto [place, added] = entries_.try_emplace(unit);
  ENTRAIN_INVARIANT(added, concat("two tensors for ", to_text(unit)));
  return place->second;
}

void UnitTensors::put(const UnitKey& unit, at::Tensor tensor) {
  add(unit).tensor = std::move(tensor);
}

void UnitTensors::post(const UnitKey& unit, std::unique_ptr<PendingReceive> receive, int position) {
  Entry& entry = add(unit);
  entry.receive = std::move(receive);
  entry.position = position;
}

UnitTensors::Taken UnitTensors::take(const UnitKey& unit) {
  const auto found = entries_.find(unit);
  ENTRAIN_INVARIANT(found != entries_.end(), concat("no tensor for ", to_text(unit)));
  Entry entry = std::move(found->second);
  entries_.erase(found);
  if (entry.receive == nullptr) {
    return {std::move(entry.tensor), std::nullopt};
  }
  return {entry.receive->wait(), entry.position};
}

}  // namespace entrain::engine
