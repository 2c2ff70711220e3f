#include "entrain/core/base/files.h"

#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  Files() {
    std::string pattern = (fs::temp_directory_path() / "entrain-files-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Files() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }

  [[nodiscard]] std::vector<std::string> listing() const {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  static void write_raw(const fs::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
  }

  static void write_gzip(const fs::path& path, const std::string& content) {
    const gzFile file = ::gzopen(path.c_str(), "wb");
    ASSERT_EQ(::gzwrite(file, content.data(), static_cast<unsigned>(content.size())),
              static_cast<int>(content.size()));
    ASSERT_EQ(::gzclose(file), Z_OK);
  }

  static std::string message_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  fs::path folder_;
};

// Incompressible, so that a truncated gzip stream has lost content.
std::string noise(std::size_t bytes) {
  Rng rng(1);
  std::string content(bytes, '\0');
  for (char& byte : content) {
    byte = static_cast<char>(rng.below(256));
  }
  return content;
}

TEST_F(Files, ReadBackWhatWasWritten) {
  const std::string content = noise(1'000'000);
  write_file(folder_ / "a.bin", content);
  EXPECT_EQ(read_file(folder_ / "a.bin"), content);
  write_file(folder_ / "a.bin", "");
  EXPECT_EQ(read_file(folder_ / "a.bin"), "");
  EXPECT_EQ(listing(), std::vector<std::string>{"a.bin"});
}

TEST_F(Files, CreateParentFolders) {
  write_file(folder_ / "x" / "y" / "z.txt", "deep");
  EXPECT_EQ(read_file(folder_ / "x" / "y" / "z.txt"), "deep");
}

TEST_F(Files, AreNeverSeenHalfWritten) {
  const fs::path path = folder_ / "a.txt";
  write_file(path, [&](std::ostream& out) {
    out << "half" << std::flush;
    EXPECT_FALSE(fs::exists(path));
    out << " and half";
  });
  EXPECT_EQ(read_file(path), "half and half");
}

TEST_F(Files, LeaveNothingWhenTheProducerThrows) {
  const auto produce = [](std::ostream& out) {
    out << "half" << std::flush;
    throw std::logic_error("producer");
  };
  EXPECT_THROW(write_file(folder_ / "a.txt", produce), std::logic_error);
  EXPECT_TRUE(listing().empty());
}

TEST_F(Files, KeepTheEarlierContentWhenTheProducerThrows) {
  write_file(folder_ / "a.txt", "earlier");
  const auto produce = [](std::ostream& out) {
    out << "half";
    throw std::logic_error("producer");
  };
  EXPECT_THROW(write_file(folder_ / "a.txt", produce), std::logic_error);
  EXPECT_EQ(read_file(folder_ / "a.txt"), "earlier");
  EXPECT_EQ(listing(), std::vector<std::string>{"a.txt"});
}

TEST_F(Files, ReportAFailedStream) {
  write_file(folder_ / "a.txt", "earlier");
  const auto produce = [](std::ostream& out) { out.setstate(std::ios::badbit); };
  EXPECT_THROW(write_file(folder_ / "a.txt", produce), SystemFailure);
  EXPECT_EQ(read_file(folder_ / "a.txt"), "earlier");
  EXPECT_EQ(listing(), std::vector<std::string>{"a.txt"});
}

TEST_F(Files, ReportAFullDevice) {
  if (!fs::exists("/dev/full")) {
    GTEST_SKIP() << "no /dev/full on this machine";
  }
  EXPECT_THROW(write_file("/dev/full", "content"), SystemFailure);
  // A temporary file cannot be a device, so the stream itself is shown one.
  const auto produce = [](std::ostream& out) {
    std::ofstream full("/dev/full", std::ios::binary);
    full << "content" << std::flush;
    out.setstate(full.rdstate());
  };
  EXPECT_THROW(write_file(folder_ / "a.txt", produce), SystemFailure);
  EXPECT_TRUE(listing().empty());
}

TEST_F(Files, ReportAFolderThatCannotBeMade) {
  write_raw(folder_ / "file", "in the way");
  const std::string message = message_of([&] { write_file(folder_ / "file" / "a.txt", "x"); });
  EXPECT_NE(message.find((folder_ / "file").string()), std::string::npos) << message;
  EXPECT_THROW(write_file(folder_ / "file" / "a.txt", "x"), SystemFailure);
}

TEST_F(Files, ReportAPathThatIsAFolder) {
  fs::create_directory(folder_ / "taken");
  write_raw(folder_ / "taken" / "inside", "x");
  EXPECT_THROW(write_file(folder_ / "taken", "x"), SystemFailure);
  EXPECT_EQ(listing(), std::vector<std::string>{"taken"});
}

TEST_F(Files, ReportAFolderThatIsNotWritable) {
  if (::geteuid() == 0) {
    // The kernel's own folders refuse even the superuser.
    EXPECT_THROW(write_file("/proc/entrain/a.txt", "x"), SystemFailure);
    EXPECT_THROW(write_file("/proc/a.txt", "x"), SystemFailure);
    return;
  }
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  const std::string message = message_of([&] { write_file(folder_ / "a.txt", "x"); });
  EXPECT_NE(message.find("a.txt"), std::string::npos) << message;
  EXPECT_NE(message.find("denied"), std::string::npos) << message;
  EXPECT_THROW(write_file(folder_ / "a.txt", "x"), SystemFailure);
  EXPECT_TRUE(listing().empty());
}

TEST_F(Files, AreInvalidInputWhenMissingOrAFolder) {
  EXPECT_THROW(read_file(folder_ / "absent"), InvalidInput);
  EXPECT_THROW(read_file(folder_), InvalidInput);
  const std::string message = message_of([&] { read_file(folder_ / "absent"); });
  EXPECT_NE(message.find("absent' does not exist"), std::string::npos) << message;
}

TEST_F(Files, AreInvalidInputWhenADeviceOrASilentPipe) {
  EXPECT_THROW(read_file("/dev/zero"), InvalidInput);
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string message = message_of([&] { read_file(pipe); });
  EXPECT_NE(message.find("nothing was written for 5 seconds"), std::string::npos) << message;
}

TEST_F(Files, ReadAPipeToItsEnd) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string content = noise(300'000);
  std::jthread writer([&] { write_file(pipe, content); });
  EXPECT_EQ(read_file(pipe), content);
}

TEST_F(Files, InflateGzip) {
  const std::string content = noise(700'000) + std::string(700'000, 'a');
  write_gzip(folder_ / "a.csv.gz", content);
  EXPECT_EQ(read_file(folder_ / "a.csv.gz"), content);
}

TEST_F(Files, RefuseTruncatedGzip) {
  write_gzip(folder_ / "a.gz", noise(100'000));
  const auto bytes = fs::file_size(folder_ / "a.gz");
  // Within the header, the content, and the checksum at the end.
  for (const auto kept : {std::uintmax_t{5}, bytes / 2, bytes - 3}) {
    fs::copy_file(folder_ / "a.gz", folder_ / "cut.gz", fs::copy_options::overwrite_existing);
    fs::resize_file(folder_ / "cut.gz", kept);
    EXPECT_THROW(read_file(folder_ / "cut.gz"), SystemFailure) << kept << " of " << bytes;
    const std::string message = message_of([&] { read_file(folder_ / "cut.gz"); });
    EXPECT_NE(message.find("cut.gz"), std::string::npos) << message;
  }
}

TEST_F(Files, RefuseDamagedGzip) {
  write_gzip(folder_ / "a.gz", noise(100'000));
  std::string raw;
  {
    std::ifstream in(folder_ / "a.gz", std::ios::binary);
    raw.assign(std::istreambuf_iterator<char>(in), {});
  }
  raw[raw.size() - 6] = static_cast<char>(raw[raw.size() - 6] ^ 0x55);  // checksum
  write_raw(folder_ / "a.gz", raw);
  EXPECT_THROW(read_file(folder_ / "a.gz"), SystemFailure);
}

}  // namespace
}  // namespace entrain
