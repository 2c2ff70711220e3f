// Sizes of images that `energon prepare-media` wrote, so that the images need not be opened.
//
// They are sizes as stored: the metadata do not say whether EXIF turns an image.
#pragma once

#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "entrain/core/spec/sample.h"

namespace entrain {

// Member → size, of those of `members` that the file has. A thread's first call starts a process of
// Python, which ends with the thread.
//
// Throws  InvalidInput naming the file: no metadata in it, or damaged.
// Cost    about 5 us a member.
std::unordered_map<std::string, ImageSize> read_image_sizes(
    const std::filesystem::path& file, const std::vector<std::string>& members);

}  // namespace entrain
