#include "entrain/core/dataset/image_metadata.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/json.h"
#include "entrain/core/base/python_process.h"

namespace entrain {

std::unordered_map<std::string, ImageSize> read_image_sizes(
    const std::filesystem::path& file, const std::vector<std::string>& members) {
  constexpr std::size_t kAtOnce = 2000;
  thread_local PythonReader reader("entrain.media_metadata", "reads Energon's media metadata");
  const std::string where = fmt::format("'{}'", file.string());
  std::unordered_map<std::string, ImageSize> sizes;
  for (std::size_t begin = 0; begin < members.size(); begin += kAtOnce) {
    const std::size_t end = std::min(members.size(), begin + kAtOnce);
    Json request = {{"path", std::filesystem::absolute(file).string()}, {"entries", Json::array()}};
    for (std::size_t i = begin; i < end; ++i) {
      request["entries"].push_back(members[i]);
    }
    const Json answer = reader.with_process([&](PythonProcess& process) {
      process.write(request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n", where);
      return process.read_answer(where);
    });
    const Json& found = answer.at("sizes");
    for (std::size_t i = begin; i < end; ++i) {
      if (const Json& size = found.at(i - begin); !size.is_null()) {
        sizes[members[i]] = {size.at(0).get<int>(), size.at(1).get<int>()};
      }
    }
  }
  return sizes;
}

}  // namespace entrain
