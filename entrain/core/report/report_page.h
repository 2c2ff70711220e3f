// `entrain report` as one HTML file: nothing is loaded from elsewhere.
//
// Read first: report_page(). Its style and scripts are in page/; the program holds them.
#pragma once

#include <string>

#include "entrain/core/base/json.h"

namespace entrain {

// `data`: {"made_by", "title", "views"}; docs/report.md has the format. It is compressed, so that a
// step of 64 lanes and 2,000 operations each is about a megabyte; names in it are shown as text,
// whatever they hold.
std::string report_page(const Json& data);

}  // namespace entrain
