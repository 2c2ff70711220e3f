// How the texts of a family of models mark one kind of media.
#pragma once

#include <cstdint>
#include <string>

namespace entrain {

// The text of an image or clip, as the family's processor writes it. In the texts `{features}` is
// where the features of one segment go, `{row}` and `{column}` are a tile's, from 1.
struct MediaText {
  std::string token =
      {};  // what chat templates write for it, and the token whose places features fill
  std::int64_t token_id = -1;  // of `token` in config.json; -1: not given there
  std::string mark = token;    // what stands for it in a text without template; holds `token`
  std::string single = "{features}";  // replaces `token` where there is one segment
  // Replaces `token` where there are several: before, tiles row by row, the whole image, after.
  std::string before = {};
  std::string tile = "{features}";
  std::string row_end = {};
  std::string whole = "{features}";
  std::string after = {};
};

}  // namespace entrain
