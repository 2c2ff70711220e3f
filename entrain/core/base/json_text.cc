#include "entrain/core/base/json_text.h"

#include <nlohmann/json.hpp>

namespace entrain {

std::string json_text(const Json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace entrain
