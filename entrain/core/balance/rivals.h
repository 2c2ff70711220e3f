// How other trainers and their tools distribute a step's samples, to compare with.
#pragma once

#include <span>
#include <string_view>

#include "entrain/core/balance/request.h"

namespace entrain {

// Samples are taken in the order of the request. Limits and `everywhere` are not looked at.
//
// Requires  a request that check_request() takes. Ensures  every cell has a sample.
struct BalanceRival {
  std::string_view name;
  std::string_view what;  // for people: who does it, and how
  CellOf (*assign)(const BalanceRequest& request);
};

// Drawn order in even runs to cells, as a plain data loader distributes a step.
CellOf drawn_cells(const BalanceRequest& request);

// In order: random, length-grouped, packed, lpt-tokens-grouped, lpt-tokens, lpt-cost-grouped,
// lpt-cost, veomni, loongforge, megatron.
std::span<const BalanceRival> balance_rivals();

}  // namespace entrain
