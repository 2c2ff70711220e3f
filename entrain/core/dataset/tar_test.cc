#include "entrain/core/dataset/tar.h"

#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::TarWriter;
using oracle::TemporaryFolder;

struct NamedContent {
  std::string name;
  std::string content;
  bool operator==(const NamedContent&) const = default;
};

std::string content_of(TarReader& tar, const TarMember& member) {
  return std::string(tar.content_at(member, 0, member.size));
}

std::vector<NamedContent> read_all(const std::filesystem::path& path) {
  TarReader tar(path);
  std::vector<NamedContent> members;
  while (const std::optional<TarMember> member = tar.next()) {
    members.push_back({member->name, content_of(tar, *member)});
  }
  return members;
}

std::vector<NamedContent> read_all(const std::string& archive) {
  const TemporaryFolder folder;
  return read_all(folder.write("x.tar", archive));
}

std::string refused_tar(const std::string& archive) {
  const std::string message = error_of<InvalidInput>([&] { read_all(archive); });
  EXPECT_NE(message.find("x.tar, offset "), std::string::npos) << message;
  return message;
}

TEST(TarReader, ReadsMembersInOrder) {
  TarWriter tar;
  tar.add("folder/", "", '5')
      .add("folder/a.json", "{}")
      .add("./b.png", std::string(512, 'x'))
      .add("c", "");
  EXPECT_EQ(read_all(tar.archive()),
            (std::vector<NamedContent>{
                {"folder/a.json", "{}"}, {"b.png", std::string(512, 'x')}, {"c", ""}}));
}

TEST(TarReader, ReadsLongNamesOfBothKinds) {
  const std::string name = std::string(150, 'n') + "/" + std::string(120, 'm') + ".json";
  TarWriter tar;
  tar.add_pax(name, "pax").add_gnu_long(name + "x", "gnu");
  EXPECT_EQ(read_all(tar.archive()),
            (std::vector<NamedContent>{{name, "pax"}, {name + "x", "gnu"}}));
}

TEST(TarReader, ReadsNamesThatAreNoTextOfTheLocale) {
  for (const std::string& name : {std::string("b\xC3\xA4r.json"), std::string("\xFF.json")}) {
    EXPECT_EQ(read_all(TarWriter().add_pax(name, "1").archive()).at(0).name, name);
    EXPECT_EQ(read_all(TarWriter().add(name, "1").archive()).at(0).name, name);
  }
}

TEST(TarReader, JoinsTheUstarPrefix) {
  std::string archive = TarWriter().add("name.json", "1").archive();
  archive.replace(345, 6, "prefix");
  oracle::fix_checksum(archive, 0);
  EXPECT_EQ(read_all(archive).at(0).name, "prefix/name.json");
}

TEST(TarReader, ReadsBase256Sizes) {
  std::string archive = TarWriter().add("a.json", "12345").archive();
  archive.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\0\x05", 12));
  oracle::fix_checksum(archive, 0);
  EXPECT_EQ(read_all(archive).at(0).content, "12345");
}

TEST(TarReader, TellsWhereMembersLieExtensionHeadersIncluded) {
  const TemporaryFolder folder;
  TarWriter writer;
  writer.add("a.json", "{}").add_pax("b.json", "[]");
  TarReader tar(folder.write("x.tar", writer.archive()));
  EXPECT_EQ(tar.next()->end_offset, 1024);
  const TarMember second = *tar.next();
  EXPECT_EQ(second.header_offset, 1024);
  EXPECT_EQ(second.end_offset, static_cast<std::int64_t>(writer.members().size()));
  EXPECT_EQ(tar.content_at(second, 0, 1), "[");
}

TEST(TarReader, ReadsARunOfMembersFromMemory) {
  TarWriter writer;
  writer.add_pax("a.json", "{}").add("b.json", "[]");
  TarReader tar(writer.members(), "x.tar", 4096);
  const TarMember first = *tar.next();
  EXPECT_EQ(first.name, "a.json");
  EXPECT_EQ(tar.where(first), "x.tar, offset 4096, member 'a.json'");
  EXPECT_EQ(content_of(tar, *tar.next()), "[]");
  EXPECT_FALSE(tar.next().has_value());
  TarReader whole(writer.archive(), "x.tar", 0);
  whole.next();
  whole.next();
  error_of<InvalidInput>([&] { whole.next(); });
  const std::string cut = writer.members().substr(0, writer.members().size() - 100);
  TarReader unpadded(cut, "x.tar", 0);
  unpadded.next();
  EXPECT_NE(error_of<InvalidInput>([&] { unpadded.next(); }).find("padding"), std::string::npos);
}

TEST(TarReader, HandsOnWhatReadingThrows) {
  const TemporaryFolder folder;
  const auto path = folder.write(
      "x.tar", TarWriter().add("a", std::string(100'000, 'x')).add("b", "1").archive());
  TarReader tar(path);
  tar.next();
  std::filesystem::resize_file(path, 2'000);
  EXPECT_NE(error_of<SystemFailure>([&] { tar.next(); }).find("became shorter"), std::string::npos);
}

TEST(TarReader, NoticesTruncationAtEveryBlockAndInsideBlocks) {
  TarWriter writer;
  writer.add("a.json", "{}").add("a.png", std::string(1500, 'x')).add_pax("b.json", "{}");
  const std::string archive = writer.archive();
  EXPECT_EQ(read_all(archive).size(), 3U);
  for (std::size_t size = 0; size < archive.size(); size += 128) {
    const std::string message = refused_tar(archive.substr(0, size));
    EXPECT_TRUE(message.find("truncated") != std::string::npos || size == 0) << size << message;
  }
}

TEST(TarReader, AcceptsPaddingBehindTheEndAndNothingElse) {
  const std::string archive = TarWriter().add("a.json", "{}").archive();
  EXPECT_EQ(read_all(archive + std::string(8192, '\0')).size(), 1U);
  EXPECT_EQ(read_all(archive + std::string(100, '\0')).size(), 1U);
  EXPECT_NE(refused_tar(archive + archive).find("behind the end mark"), std::string::npos);
  EXPECT_NE(refused_tar(archive + std::string(700, '\0') + "x").find("behind the end mark"),
            std::string::npos);
  const std::string one_block = TarWriter().add("a.json", "{}").members() + std::string(512, '\0');
  EXPECT_NE(refused_tar(one_block + archive).find("single block"), std::string::npos);
}

TEST(TarReader, NoticesEveryFlippedHeaderByte) {
  const std::string archive = TarWriter().add("a.json", "{}").add("b.json", "[]").archive();
  Rng rng(7);
  for (std::size_t position = 1024; position < 1536; ++position) {
    std::string damaged = archive;
    // Digits of the checksum may turn into other characters; no flip may keep the sum.
    damaged[position] =
        static_cast<char>(damaged[position] ^ static_cast<char>(1U << rng.below(8)));
    const bool checksum_padding = position == 1024 + 155;  // not a digit, ignored by readers
    try {
      read_all(damaged);
      EXPECT_TRUE(checksum_padding) << "byte " << position;
    } catch (const InvalidInput& error) {
      EXPECT_NE(std::string(error.what()).find("offset 1024"), std::string::npos) << error.what();
    }
  }
}

TEST(TarReader, RefusesWhatIsNoPlainArchiveOfFiles) {
  EXPECT_NE(refused_tar("").find("empty"), std::string::npos);
  EXPECT_NE(refused_tar("\x1F\x8B" + std::string(600, 'x')).find("cannot read"), std::string::npos);
  EXPECT_NE(refused_tar(std::string(2048, 'x')).find("checksum"), std::string::npos);
  EXPECT_NE(refused_tar(TarWriter().add("link", "", '2').archive()).find("only regular"),
            std::string::npos);
  EXPECT_NE(refused_tar(TarWriter().add("unknown", "1", 'Z').archive()).find("only regular"),
            std::string::npos);
  EXPECT_NE(refused_tar(TarWriter().add("sparse", "", 'S').archive()).find("only regular"),
            std::string::npos);
  EXPECT_NE(refused_tar(TarWriter().add("", "x").archive()).find("name"), std::string::npos);
  error_of<InvalidInput>([] { TarReader("no/such.tar"); });
  error_of<InvalidInput>([] { TarReader reader(std::filesystem::temp_directory_path()); });
}

TEST(TarReader, DoesNotWaitForTheWriterOfAPipe) {
  const auto pipe = std::filesystem::temp_directory_path() /
                    ("entrain-tar-" + std::to_string(::getpid()) + ".tar");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  error_of<InvalidInput>([&] { TarReader reader(pipe); });
  std::filesystem::remove(pipe);
}

TEST(TarReader, RefusesImpossibleSizes) {
  for (const std::string& field :
       {std::string("77777777777\0", 12),
        std::string("\x80\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12),
        std::string("\x80\0\0\0\x3F\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12),
        std::string("12x45670000\0", 12),
        std::string("0000000002x\0", 12),
        std::string("-0000000001\0", 12)}) {
    std::string archive = TarWriter().add("a.json", "{}").archive();
    archive.replace(124, 12, field);
    oracle::fix_checksum(archive, 0);
    refused_tar(archive);
    refused_tar(TarWriter().add("first", "").members() + archive);
  }
}

// libarchive reads the fields of sparse files in any header of GNU's form: here a file of a
// negative size.
TEST(TarReader, RefusesFieldsOfSparseFilesInOtherMembers) {
  std::string archive = TarWriter().add("a.json", "{}").archive();
  archive.replace(257, 8, std::string("ustar  \0", 8));
  archive[386] = '1';
  archive[483] = '\xCA';
  oracle::fix_checksum(archive, 0);
  for (const std::string& first : {std::string(), TarWriter().add("first", "").members()}) {
    refused_tar(first + archive);
  }
}

TEST(TarReader, RefusesDamagedPaxHeaders) {
  for (const std::string& content : {std::string("5 a=b"),
                                     std::string("99 path=x\n"),
                                     std::string("x path=x\n"),
                                     std::string("7 path\n"),
                                     std::string("3 \n"),
                                     std::string("99999999999999999999 path=x\n"),
                                     std::string("11 size=-1\n"),
                                     std::string("31 size=9999999999999999999999\n"),
                                     std::string("22 GNU.sparse.major=1\n")}) {
    refused_tar(TarWriter().add("x", content, 'x').add("a.json", "{}").archive());
  }
  refused_tar(TarWriter().add("x", "10 path=a\n", 'g').add("a.json", "{}").archive());
  const std::string comment = TarWriter().add("x", "22 comment=a path=b/c\n", 'g').members();
  EXPECT_EQ(read_all(comment + TarWriter().add_pax("b", "1").archive()).at(0).name, "b");
  refused_tar(TarWriter().add("x", "10 path=a\n", 'x').archive());
  refused_tar(
      TarWriter().add("x", std::string((1 << 20) + 1, 'x'), 'L').add("a.json", "{}").archive());
}

TEST(ReadRange, ReadsBytesAndRefusesWhatLiesOutside) {
  const TemporaryFolder folder;
  const auto path = folder.write("x.tar", "0123456789");
  EXPECT_EQ(read_range(path, 3, 4), "3456");
  EXPECT_EQ(read_range(path, 10, 0), "");
  for (const std::pair<std::int64_t, std::int64_t>& range :
       std::vector<std::pair<std::int64_t, std::int64_t>>{
           {8, 3}, {-1, 2}, {0, -1}, {INT64_MAX, 2}, {2, INT64_MAX}}) {
    EXPECT_NE(error_of<InvalidInput>([&] {
                read_range(path, range.first, range.second);
              }).find("10 bytes"),
              std::string::npos);
  }
}

TEST(TarReader, WalksARunOfMembersInTheFile) {
  const oracle::TemporaryFolder folder;
  const std::string big(100'000, 'x');
  TarWriter writer;
  writer.add("a", "1").add("b", big).add("c", "3");
  const auto path = folder.write("x.tar", writer.archive());
  TarReader reader(path, 1024, 512 + 100'352 + 1024);  // b and c
  const std::optional<TarMember> found = reader.next();
  ASSERT_TRUE(found.has_value());
  const TarMember& second = *found;
  EXPECT_EQ(second.name, "b");
  EXPECT_EQ(content_of(reader, second), big);
  EXPECT_EQ(reader.content_at(second, 99'990, 10), "xxxxxxxxxx");
  EXPECT_NE(reader.where(second).find("offset 1024"), std::string::npos);
  EXPECT_EQ(content_of(reader, *reader.next()), "3");
  EXPECT_FALSE(reader.next().has_value());
  EXPECT_THROW(TarReader(path, 1024, 1 << 20), InvalidInput);
}

TEST(TarReader, ReadsThroughGzip) {
  const oracle::TemporaryFolder folder;
  TarWriter writer;
  writer.add("a.json", "{}").add("a.png", std::string(70'000, 'p'));
  const std::string path = (folder.path() / "x.tar.gz").string();
  gzFile file = ::gzopen(path.c_str(), "wb");
  const std::string archive = writer.archive();
  ::gzwrite(file, archive.data(), static_cast<unsigned>(archive.size()));
  ::gzclose(file);
  TarReader reader{std::filesystem::path(path)};
  EXPECT_EQ(reader.next()->name, "a.json");
  const std::optional<TarMember> found = reader.next();
  ASSERT_TRUE(found.has_value());
  const TarMember& second = *found;
  EXPECT_EQ(content_of(reader, second), std::string(70'000, 'p'));
  EXPECT_FALSE(reader.next().has_value());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 20);
  EXPECT_THROW(TarReader{std::filesystem::path(path)}, InvalidInput);
}

}  // namespace
}  // namespace entrain
