// TensorBoard's event files: scalars of a run, one record a step.
//
// Read first: EventFolder. The format is that of TFRecord (length, masked CRC-32C, protobuf message
// `Event`, masked CRC-32C); the few fields that scalars need are written here without protobuf.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace entrain {

using Scalars = std::vector<std::pair<std::string, double>>;  // tag, value

// CRC-32C (Castagnoli) of `bytes`.
std::uint32_t crc32c(std::string_view bytes);

// An Event message. `wall_s`: seconds since 1970.
std::string version_event(double wall_s);  // the first of every file
std::string scalars_event(double wall_s, std::int64_t step, const Scalars& scalars);

// The message as a record of a file.
std::string event_record(std::string_view event);

// Appends to a new file in a folder.
class EventFolder {
 public:
  // Steps from `first_step` on are removed from earlier files: a run that continues writes them
  // again. Files of the folder that are no event files of Entrain stay as they are.
  //
  // Throws  SystemFailure if the folder or a file cannot be written.
  EventFolder(const std::filesystem::path& folder, std::int64_t first_step);

  // The record is complete in the file when this returns.
  void add(std::int64_t step, const Scalars& scalars);

 private:
  void write(std::string_view event);

  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace entrain
