// The orders of `gpipe`, `1f1b`, `zb-h1`, `zb-h2` and `dip` taken word for word from rules.h: whole
// lists of operations per stage, and for lanes of several stages passes over all of them.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/schedule/order.h"

namespace entrain::oracle {

// How every stage takes its turns. [stage number]
struct Turns {
  std::vector<int> warm_up;       // slots
  std::vector<int> weight_delay;  // turns; empty: backwards stay whole
};

// The order of every stage on its own. [stage number][position]
std::vector<std::vector<Operation>> stage_orders(const OrderInputs& inputs, const Turns& turns);

// The turns of `schedule` (not `dip`).
Turns turns_of(const OrderInputs& inputs, const std::string& schedule);

// The lanes' orders.
LaneOrders turn_orders(const OrderInputs& inputs, const std::string& schedule);

}  // namespace entrain::oracle
