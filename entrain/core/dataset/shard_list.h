// Resolves data files, folders and names with braces to files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace entrain {

// "train-{000000..000009}.tar" → ten names, "{a,b}.tar" → two; ranges count up or down, with the
// zeros of their first end, and may say a step ("{0..9..3}"); braces may be nested.
// A name without braces is itself.
//
// Throws  InvalidInput for braces that do not close or hold neither a range nor a list, and for
//         more than 100,000 names.
std::vector<std::string> expand_braces(const std::string& name);

// Shards (.tar, .tar.gz, .tgz), tables (.parquet, .arrow), files of records (.json, .jsonl) and
// index files (.csv, .csv.gz) in the order in which they are read. A folder means the shards in it,
// sorted by name, without any the tables in it, else those of its folder `data`; of a folder that
// Energon prepared (`.nv-meta/split.yaml`) the shards of `split`, of tables that are named by
// splits those of `split`, of a saved DatasetDict its folder. A name that does not exist literally
// is expanded by its braces.
//
// Throws  InvalidInput naming a path that does not exist, is of another kind, or holds no data, a
//         split.yaml of another form than Energon writes, or one without `split`.
std::vector<std::filesystem::path> list_data(const std::vector<std::filesystem::path>& data,
                                             const std::string& split = "train");

// "chart=folder/x.tar" → the name and the path; a path that exists, or without a name (letters,
// digits,
// '_', '-' and '.') before a '=', has none.
struct NamedData {
  std::string name;
  std::filesystem::path path;
};
NamedData named_data(const std::filesystem::path& given);

bool is_index_file(const std::filesystem::path& path);

}  // namespace entrain
