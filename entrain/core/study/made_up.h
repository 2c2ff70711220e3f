// Made-up data sets for studies: manifests drawn to the ranges of the Entrain paper's figure 3.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace entrain {

// Images that differ much, and little.
std::vector<std::string> made_up_names();

bool is_made_up(const std::string& name);

// Writes the manifest of a made-up data set: 8,000 samples of one image (32 to 16,384 LLM tokens)
// and a text (32 to 1,024 tokens), log-normal and independent.
//
// Requires  is_made_up(name).
// Throws    SystemFailure.
void write_made_up(const std::string& name, const std::filesystem::path& path);

}  // namespace entrain
