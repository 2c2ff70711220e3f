#include "entrain/engine/comm/names.h"

#include "entrain/core/base/text.h"

namespace entrain::engine {

std::string to_text(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) {
    text += concat(text.empty() ? "" : ", ", rank);
  }
  return text;
}

std::string to_text(const ChannelKey& key) {
  return concat("channel ", key.channel, " from rank ", key.source, " to rank ", key.target);
}

}  // namespace entrain::engine
