// Names of ranks, groups and channels in errors.
#pragma once

#include <string>
#include <vector>

#include "entrain/engine/comm/comm.h"

namespace entrain::engine {

// "0, 2"
std::string to_text(const std::vector<int>& ranks);
// "channel 3 from rank 0 to rank 1"
std::string to_text(const ChannelKey& key);

}  // namespace entrain::engine
