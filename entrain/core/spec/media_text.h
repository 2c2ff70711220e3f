// How the texts of a family of models mark one kind of media.
#pragma once

#include <cstdint>
#include <string>

namespace entrain {

// The text of an image, video or clip, as the family's processor writes it. In the texts
// `{features}` is where the features of one segment go; `{row}` and `{column}` are a tile's, from
// 1;
// `{seconds}` is the time of a video's temporal patch, with one decimal.
struct MediaText {
  std::string token = {};       // whose places features fill
  std::int64_t token_id = -1;   // of `token` in config.json; -1: not given there
  std::string written = token;  // what chat templates write for it
  std::string mark = written;   // what stands for it in a text without template; holds `written`
  std::string single = "{features}";  // replaces `written` where there is one segment
  // Replaces `written` where there are several: before, tiles row by row, the whole image, after.
  // The temporal patches of a video are the rows of one column.
  std::string before = {};
  std::string tile = "{features}";
  std::string row_end = {};
  std::string whole = "{features}";
  std::string after = {};
};

}  // namespace entrain
