// Samples as records of a JSON file: a list of objects, or one object a line (JSON Lines), with
// media in files of their own or inside the record. LLaVA's, ShareGPT's and OpenAI's forms.
//
// A record's text is what a shard's NAME.json holds (docs/data.md, docs/tokens.md); media_refs.h
// says which media it names. Names are the records' `id`, a text or whole number, or without one
// their number in the file from 0; the second record of one id is called `ID#2`, and so on.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/base/json.h"
#include "entrain/core/base/mapped_file.h"
#include "entrain/core/dataset/columns.h"
#include "entrain/core/dataset/found_sample.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// .json, .jsonl
bool is_record_file(const std::filesystem::path& path);

struct RecordRange {  // bytes [begin, end)
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const RecordRange&) const = default;
};

// Where each record is: elements of the list that the text is, or its lines that are not empty. The
// records themselves are not parsed.
//
// Throws  InvalidInput naming `where` and the byte: neither a list nor lines of objects, no comma
//         between two elements, a list that does not end, anything behind it.
// Cost    1 to 2 ms a MB.
std::vector<RecordRange> find_records(std::string_view text, const std::string& where);

class RecordReader : public SampleSource {
 public:
  // `media`: what paths of records are relative to.
  //
  // Throws  as find_records() does; InvalidInput for a file that does not exist, and for a medium
  //         of `columns` that no record has, with the keys of the first.
  // Cost    with media in `columns` the records up to the first that has each are parsed twice.
  RecordReader(const std::filesystem::path& file,
               const std::filesystem::path& media,
               ColumnMap columns = {});

  [[nodiscard]] std::int64_t num_samples() const override { return std::ssize(records_); }
  [[nodiscard]] std::string upcoming() const override { return id_; }
  // Throws  InvalidInput naming file, record and byte: no JSON object, whatever media_of() refuses,
  //         a medium that does not exist, leaves `media` by `..`, or is no regular file.
  FoundSample next() override;

 private:
  void look_ahead();
  void require_media() const;
  [[nodiscard]] std::string_view text_of(const RecordRange& range) const;

  std::filesystem::path file_;
  std::filesystem::path media_;
  ColumnMap columns_;
  MappedFile content_;
  std::vector<RecordRange> records_;
  std::unordered_map<std::string, int> times_;  // id → records so far
  std::size_t next_ = 0;
  std::string id_;              // of the next record
  Json record_;                 // the next record,
  std::exception_ptr failure_;  // or why it is none
};

// The record at a location; its id is `id` where that may be so.
//
// Throws  InvalidInput as RecordReader::next() does, and for a file that is shorter.
FoundSample read_record(const SampleLocation& location, const std::string& id);

}  // namespace entrain
