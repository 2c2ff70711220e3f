#include "entrain/core/dataset/shard_list.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::TemporaryFolder;

std::string names(const std::string& pattern) {
  return join(expand_braces(pattern), " ");
}

// As the library braceexpand 0.1.7, which webdataset uses, has them.
TEST(ExpandBraces, MakesRangesAndLists) {
  EXPECT_EQ(names("t-{000..002}.tar"), "t-000.tar t-001.tar t-002.tar");
  EXPECT_EQ(names("{a,b{1..2}}-{0..4..2}.x"),
            "a-0.x a-2.x a-4.x b1-0.x b1-2.x b1-4.x b2-0.x b2-2.x b2-4.x");
  EXPECT_EQ(names("{3..1}"), "3 2 1");
  EXPECT_EQ(names("{08..10}"), "08 09 10");
  EXPECT_EQ(names("{1..010}"), "001 002 003 004 005 006 007 008 009 010");
  EXPECT_EQ(names("a{,b}c"), "ac abc");
  EXPECT_EQ(names("plain.tar"), "plain.tar");
}

TEST(ExpandBraces, RefusesWhatMeansNothing) {
  for (const char* pattern : {"{0..2",
                              "{x}",
                              "{}",
                              "{a..c}",
                              "{0..1..0}",
                              "{0..9999999}",
                              "{0..999}{0..999}",
                              "{-1..3}"}) {
    const std::string message = oracle::error_of<InvalidInput>([&] { expand_braces(pattern); });
    EXPECT_NE(message.find(pattern), std::string::npos) << message;
  }
}

TEST(ListData, TakesFoldersAndNamesWithBraces) {
  const oracle::TemporaryFolder folder;
  for (const char* name : {"t-1.tar", "t-0.tar", "u.tar.gz", "v.tgz", "w.txt", "odd{1}.tar"}) {
    folder.write(name, "x");
  }
  const auto listed = [&](const std::string& name) {
    std::string text;
    for (const auto& path : list_data({folder.path() / name})) {
      text += path.filename().string() + " ";
    }
    return text;
  };
  EXPECT_EQ(listed(""), "odd{1}.tar t-0.tar t-1.tar u.tar.gz v.tgz ");
  EXPECT_EQ(listed("t-{1..0}.tar"), "t-1.tar t-0.tar ");
  EXPECT_EQ(listed("odd{1}.tar"), "odd{1}.tar ");
  const std::string message = oracle::error_of<InvalidInput>([&] { listed("t-{0..2}.tar"); });
  EXPECT_NE(message.find("t-2.tar' does not exist (one of 3 names"), std::string::npos) << message;
  EXPECT_NE(oracle::error_of<InvalidInput>([&] { listed("w.txt"); }).find("neither a shard"),
            std::string::npos);
}

TEST(ListData, SaysWhatToDoWithAFolderOfOtherFiles) {
  const TemporaryFolder folder;
  const std::string pictures = (folder.path() / "pictures").string();
  folder.write("pictures/a.png", "x");
  const auto refusal = [&](const std::string& given) {
    return error_of<InvalidInput>([&] { list_data({given}); });
  };
  for (const std::string& given : {pictures, pictures + "/"}) {
    const std::string message = refusal(given);
    for (const std::string& words :
         {concat("`tar --sort=name -cf ", pictures, ".tar -C ", pictures, " .`"),
          concat("`entrain index RECORDS.json --media ", pictures, "`")}) {
      EXPECT_NE(message.find(words), std::string::npos) << message;
    }
  }
  EXPECT_EQ(refusal(pictures).find("named themselves"), std::string::npos);
  folder.write("records/b.jsonl", "x");
  folder.write("records/a.json", "x");
  const std::string records = refusal((folder.path() / "records").string());
  EXPECT_NE(records.find("records/a.json`"), std::string::npos) << records;
  EXPECT_EQ(records.find("tar --sort"), std::string::npos) << records;
}

TEST(ListData, TakesASplitOfAFolderThatEnergonPrepared) {
  const TemporaryFolder folder;
  for (const char* name : {"s_0.tar", "s_1.tar", "s_2.tar", "sub/v.tar"}) {
    folder.write(name, "");
  }
  folder.write(".nv-meta/split.yaml",
               "exclude: []\nsplit_parts:\n  test: []\n  train:\n  - s_{0..1}.tar\n  - 's_2.tar'\n"
               "  val:\n  - sub/v.tar\n");
  using Paths = std::vector<std::filesystem::path>;
  const auto& root = folder.path();
  EXPECT_EQ(list_data({root}), (Paths{root / "s_0.tar", root / "s_1.tar", root / "s_2.tar"}));
  EXPECT_EQ(list_data({root}, "val"), Paths{root / "sub/v.tar"});
  for (const char* split : {"test", "dev"}) {
    const std::string message = error_of<InvalidInput>([&] { list_data({root}, split); });
    EXPECT_NE(message.find("it has test, train, val"), std::string::npos) << message;
  }
  folder.write(".nv-meta/split.yaml", "split_parts:\n  train: {a: 1}\n");
  EXPECT_NE(error_of<InvalidInput>([&] { list_data({root}); }).find("another form"),
            std::string::npos);
  folder.write(".nv-meta/split.yaml", "");
  EXPECT_NE(error_of<InvalidInput>([&] { list_data({root}); }).find("it has none"),
            std::string::npos);
}

TEST(ListData, TakesTheSplitOfTablesAndOfADatasetDict) {
  const TemporaryFolder folder;
  for (const char* name : {"hub/data/train-0.parquet",
                           "hub/data/test-0.parquet",
                           "dict/dataset_dict.json",
                           "dict/train/data-0.arrow",
                           "dict/test/data-0.arrow",
                           "plain/a.parquet",
                           "plain/b.parquet"}) {
    folder.write(name, "");
  }
  using Paths = std::vector<std::filesystem::path>;
  const auto& root = folder.path();
  EXPECT_EQ(list_data({root / "hub"}), Paths{root / "hub/data/train-0.parquet"});
  EXPECT_EQ(list_data({root / "hub"}, "test"), Paths{root / "hub/data/test-0.parquet"});
  EXPECT_EQ(list_data({root / "dict"}, "test"), Paths{root / "dict/test/data-0.arrow"});
  EXPECT_EQ(list_data({root / "plain"}).size(), 2U);
}

}  // namespace
}  // namespace entrain
