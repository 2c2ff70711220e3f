// Which columns, keys or members hold what, where they are not called as this program calls them.
//
// Read first: ColumnMap. `entrain index --columns answer=label` makes one, the index keeps its text
// for each sample (SampleLocation::columns), and every reader of samples applies it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/base/json.h"

namespace entrain {

class ColumnMap {
 public:
  struct Column {
    std::string ours;    // a text ("answer"), or "image", "video" or "audio"
    std::string theirs;  // a key or column, a place in one (`a[b][0]`), or a member of shards
                         // (`.jpg`, `.json[answer]`; `.jpg,.png`: the first that a sample has);
                         // empty: the sample has no such medium
    bool operator==(const Column&) const = default;
  };

  ColumnMap() = default;  // everything is called as here
  // "answer=label;image=front;image=back". A medium that is named twice is a list of both.
  //
  // Throws  InvalidInput: no '=', a name that this program does not know, a text that is named
  //         twice or empty, texts some of which are keys and some members.
  explicit ColumnMap(std::string_view text);

  [[nodiscard]] bool empty() const { return columns_.empty(); }
  [[nodiscard]] const std::vector<Column>& columns() const { return columns_; }
  [[nodiscard]] std::string text() const;  // equal maps have equal texts
  // Theirs of that name of ours, in order; nothing where ours is not named, an empty list where it
  // is said to be absent.
  [[nodiscard]] std::optional<std::vector<std::string>> theirs_of(std::string_view ours) const;
  [[nodiscard]] bool maps_texts() const;
  [[nodiscard]] bool texts_are_members() const;

  // Throws  InvalidInput naming `where` if the map names members of shards, or, for the texts of a
  //         shard's JSON, media by keys.
  void require_keys(const std::string& where) const;
  void require_members_of_media(const std::string& where) const;

  // The document under our names: their values under ours, without their keys, without ours that
  // hold something else, and without texts of another form (`messages` where `answer` is named).
  // `text`: the document as its file spells it.
  //
  // Throws  InvalidInput naming `where`: a text that the document lacks, with the keys that it has;
  //         a number that JSON may spell in several ways.
  [[nodiscard]] Json renamed(const Json& document,
                             std::string_view text,
                             const std::string& where) const;

 private:
  void drop_other_forms(Json& document) const;

  std::vector<Column> columns_;
};

// The value at `a[b][0]`, or of a key that is spelled so; none if the document lacks it.
const Json* value_at(const Json& document, std::string_view path);

// What a member of a shard is to give: `.json[answer]`.
struct MemberPlace {
  std::string extension;  // "json", in lower case
  std::string steps;      // "[answer]": a place in its JSON; empty: all of it
};
// The choices of `.jpg,.png`, in order.
std::vector<MemberPlace> member_places(std::string_view theirs);

// The value at that place of a document, `theirs` naming both in messages.
//
// Throws  InvalidInput naming `where`: nothing there, or a number that JSON may spell in several
//         ways. `text`: the document as its file spells it.
Json value_of_member(const Json& document,
                     const std::string& steps,
                     std::string_view text,
                     const std::string& where);

// Whether that name of ours is "image", "video" or "audio".
bool is_medium(std::string_view ours);

// The keys of an object, for messages.
std::string keys_of(const Json& document);

// "answer" of "answer[0][text]".
std::string_view head_of(std::string_view path);

// Names of ours that a map may name.
const std::vector<std::string>& column_names();

}  // namespace entrain
