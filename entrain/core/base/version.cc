#include "entrain/core/base/version.h"

namespace entrain {

std::string_view version() {
  return ENTRAIN_VERSION;
}

}  // namespace entrain
