#include "entrain/core/report/report_page.h"

#include <string_view>

#include <nlohmann/json.hpp>

#include "entrain/core/base/base64.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/gzip.h"
#include "entrain/core/base/html.h"

namespace entrain {

// From page/, by CMake.
extern const std::string_view kReportSkeleton;
extern const std::string_view kReportStyle;
std::string report_scripts();

namespace {

void replace(std::string& page, std::string_view place, std::string_view text) {
  const std::size_t at = page.find(place);
  ENTRAIN_INVARIANT(at != std::string::npos, "the skeleton of the report lacks a place");
  page.replace(at, place.size(), text);
}

}  // namespace

std::string report_page(const Json& data) {
  std::string page(kReportSkeleton);
  replace(page, "{{TITLE}}", html_text(data.at("title").get<std::string>()));
  replace(page, "{{STYLE}}", kReportStyle);
  replace(page, "{{SCRIPT}}", report_scripts());
  // Last: what a document holds cannot be taken for a place.
  replace(page,
          "{{DATA}}",
          encode_base64(gzip(data.dump(-1, ' ', false, Json::error_handler_t::replace))));
  return page;
}

}  // namespace entrain
