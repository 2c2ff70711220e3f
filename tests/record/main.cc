// entrain_record: makes the record of record.h, or compares with one.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

#include "tests/oracle/manifests.h"
#include "tests/record/record.h"

namespace entrain::record {
namespace {

constexpr int kExitSkipped = 77;
constexpr const char* kManifestPrefix = "manifest";

std::vector<Case> cases_of(const std::string& part) {
  std::vector<Case> cases;
  const auto add = [&](std::vector<Case> more) {
    cases.insert(cases.end(), more.begin(), more.end());
  };
  if (part != "manifests") {
    add(tiny_cases());
    add(replay_cases());
    add(tiny_plan_cases());
    add(study_cases());
  }
  if (part != "core") {
    add(manifest_cases());
    add(manifest_plan_cases());
  }
  return cases;
}

// What of a record on disk belongs to this part.
Record part_of(const Record& record, const std::string& part) {
  Record result;
  for (const auto& [name, fields] : record) {
    const bool manifest = name.starts_with(kManifestPrefix);
    if (part == "all" || manifest == (part == "manifests")) {
      result[name] = fields;
    }
  }
  return result;
}

int run(const std::string& mode, const std::string& file, std::string part, int threads) {
  const bool manifests = std::filesystem::is_directory(oracle::manifests());
  if (!manifests && part != "core") {
    std::printf(
        "record: no shared data; set ENTRAIN_SHARED to its folder: the cases of real "
        "manifests are skipped\n");
    if (part == "manifests") {
      return kExitSkipped;
    }
    part = "core";
  }
  const Record record = compute(cases_of(part), threads);
  if (mode == "write") {
    Record whole = std::filesystem::exists(file) ? record_from_text(read_file(file)) : Record();
    for (const auto& [name, fields] : part_of(whole, part)) {
      whole.erase(name);
    }
    whole.insert(record.begin(), record.end());
    write_file(file, to_text(whole));
    std::printf(
        "record: %zu cases computed, %zu in %s\n", record.size(), whole.size(), file.c_str());
    return 0;
  }
  const Comparison comparison = compare(part_of(record_from_text(read_file(file)), part), record);
  std::printf("%s", comparison.text.c_str());
  return comparison.equal ? 0 : 1;
}

int run_program(const std::vector<std::string>& arguments) {
  const std::size_t count = arguments.size();
  const std::string mode = count > 0 ? arguments[0] : "";
  const std::string part = count > 2 ? arguments[2] : "all";
  if (count < 2 || count > 4 || (mode != "write" && mode != "compare") ||
      (part != "all" && part != "core" && part != "manifests")) {
    throw InvalidInput(
        "usage: entrain_record write|compare FILE [all|core|manifests [THREADS]]; core: the cases "
        "that need no shared data");
  }
  const int threads =
      count > 3 ? std::stoi(arguments[3]) : static_cast<int>(std::thread::hardware_concurrency());
  return run(mode, arguments[1], part, std::max(1, threads));
}

}  // namespace
}  // namespace entrain::record

int main(int argc, char** argv) {
  try {
    return entrain::record::run_program({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "entrain_record: %s\n", error.what());
    return 3;
  }
}
