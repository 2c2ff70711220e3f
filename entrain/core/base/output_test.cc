#include "entrain/core/base/output.h"

#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

const std::map<OutputKind, std::string> kWritten = {
    {OutputKind::kIndex, "sample_id,n_images,image_sizes,audio_seconds\n"},
    {OutputKind::kCosts, "sample_id,llm_tokens,llm_forward_s,llm_backward_s\n"},
    {OutputKind::kSegmentCosts, "sample_id,module,segment,tokens,forward_s,backward_s\n"},
    {OutputKind::kCases, "policy,schedule,step,step_s\n"},
    {OutputKind::kPlan, "{\n \"version\": 3,\n \"replicas\": 2}"},
    {OutputKind::kAssignment, "{\n \"version\": 12,\n \"policy\": \"entrain\"}"},
    {OutputKind::kProfile, "{\"version\": 1, \"device\": \"cpu\"}"},
    {OutputKind::kPoints, "{\"version\":1,\"settings\":{}}"},
    {OutputKind::kTrace, "{\"displayTimeUnit\": \"ms\",\n\"otherData\": {\"label\": \"x\"}}"},
    {OutputKind::kTorchOrder, "0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n"},
    {OutputKind::kAnswers, "{\"id\":\"a\",\"kind\":\"\",\"expected\":\"1\",\"given\":\"2\"}\n"},
    {OutputKind::kTokens, "etokens1\x02"},
    {OutputKind::kPage, "<!doctype html><html lang='en'><head><title>Entrain audit</title>"},
    {OutputKind::kPlot, "<svg data-entrain=\"index\" xmlns="},
    {OutputKind::kEpochOrder,
     R"({"step":12,"microbatch":0,"rank":3,"samples":["a"]})"
     "\n"},
    {OutputKind::kNumpy, "\x93NUMPY\x01"},
    {OutputKind::kPaths, "[\"data/train.jsonl\"]\n"},
    {OutputKind::kFeedKey, "# entrain feed key\nfeed abc\n"},
    {OutputKind::kExposition, "# HELP entrain_step Finished steps.\n"},
    {OutputKind::kWeights,
     std::string("\x40\0\0\0\0\0\0\0", 8) +
         "{\"__metadata__\":{\"format\":\"pt\",\"writer\":\"entrain\"},\"a\":{}}"},
};

class NamedOutputs : public testing::Test {
 protected:
  NamedOutputs() {
    std::string pattern = (fs::temp_directory_path() / "entrain-output-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~NamedOutputs() override { fs::remove_all(folder_); }

  fs::path put(const std::string& name, const std::string& content) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }

  // What is said against writing a plan there; "" where it may be written.
  static std::string objection(const fs::path& path,
                               bool force = false,
                               std::vector<fs::path> inputs = {}) {
    try {
      Outputs(std::move(inputs), force).open("--output", path, OutputKind::kPlan);
    } catch (const InvalidInput& error) {
      const std::string message = error.what();
      EXPECT_TRUE(message.starts_with("--output: '" + path.string() + "'")) << message;
      return message;
    }
    return "";
  }

  static void expect_refused(const std::string& words,
                             const fs::path& path,
                             bool force = false,
                             std::vector<fs::path> inputs = {}) {
    const std::string message = objection(path, force, std::move(inputs));
    EXPECT_NE(message.find(words), std::string::npos) << path << ": '" << message << "'";
  }

  fs::path folder_;
};

TEST_F(NamedOutputs, RecogniseEveryKindAndNoOther) {
  for (const auto& [kind, content] : kWritten) {
    for (const auto& [other, unused] : kWritten) {
      EXPECT_EQ(is_kind(other, content), other == kind) << name_of(other) << " in " << content;
    }
    EXPECT_FALSE(is_kind(kind, "")) << name_of(kind);
    EXPECT_FALSE(is_kind(kind, content.substr(0, 5))) << name_of(kind);
  }
}

TEST_F(NamedOutputs, RecogniseAReportOfAnEarlierVersion) {
  const char* page = "<!doctype html>\n<!-- The page of `entrain report`. The program";
  EXPECT_TRUE(is_kind(OutputKind::kPage, page));
  EXPECT_FALSE(is_kind(OutputKind::kPlot, page));
  EXPECT_FALSE(is_kind(OutputKind::kPage, "<!doctype html>\n<!-- The page of another report -->"));
}

TEST_F(NamedOutputs, ReplaceNothingAnEmptyFileAndTheSameKind) {
  EXPECT_EQ(objection(folder_ / "new.json"), "");
  EXPECT_EQ(objection(folder_ / "new" / "folder" / "new.json"), "");
  EXPECT_EQ(objection(put("empty", "")), "");
  EXPECT_EQ(objection(put("plan.json", kWritten.at(OutputKind::kPlan))), "");
}

TEST_F(NamedOutputs, ReplaceAnotherKindOnlyByForce) {
  const fs::path notes = put("notes.txt", "what I must not forget");
  expect_refused("another kind (22 B), not a plan", notes);
  EXPECT_EQ(objection(notes, true), "");
  expect_refused("holds an index (CSV), not a plan",
                 put("train.csv", kWritten.at(OutputKind::kIndex)));
  std::string shard(512, '\0');
  shard.replace(257, 5, "ustar");
  expect_refused("holds a tar archive", put("b.tar", shard));
}

TEST_F(NamedOutputs, ReplaceAReadOnlyFileOnlyByForce) {
  const fs::path plan = put("plan.json", kWritten.at(OutputKind::kPlan));
  fs::permissions(plan, fs::perms::owner_read);
  expect_refused("is read-only", plan);
  EXPECT_EQ(objection(plan, true), "");
}

TEST_F(NamedOutputs, NeverReplaceAnInput) {
  const fs::path plan = put("plan.json", kWritten.at(OutputKind::kPlan));
  expect_refused("is an input", plan, true, {"", folder_ / "absent", plan});
  fs::create_symlink(plan, folder_ / "link");
  fs::create_hard_link(plan, folder_ / "hard");
  expect_refused("is an input", folder_ / "link", true, {plan});
  expect_refused("is an input", folder_ / "hard", true, {plan});
  expect_refused("is an input", plan, true, {folder_ / "link"});
}

TEST_F(NamedOutputs, ReplaceInAFolderThatIsReadTheSameKindAlone) {
  put("data/a.tar", "samples");
  put("data/deep/plan.json", kWritten.at(OutputKind::kPlan));
  expect_refused("that this command reads", folder_ / "data/a.tar", true, {folder_ / "data"});
  EXPECT_EQ(objection(folder_ / "data/deep/plan.json", false, {folder_ / "data"}), "");
  EXPECT_EQ(objection(folder_ / "data/new.json", false, {folder_ / "data"}), "");
}

TEST_F(NamedOutputs, NeverTouchACheckpoint) {
  put("run/checkpoints/latest", "step-00000020 0123");
  put("run/checkpoints/step-00000020/manifest.json", "{}");
  const fs::path plan =
      put("run/checkpoints/step-00000020/plan.json", kWritten.at(OutputKind::kPlan));
  expect_refused("among the checkpoints", plan, true);
  expect_refused("among the checkpoints", plan.parent_path() / "new.json", true);
  expect_refused("among the checkpoints", folder_ / "run/checkpoints/new.json", true);
  expect_refused("among the checkpoints", folder_ / "run/checkpoints/.step-3.partial/x", true);
  fs::create_symlink(plan, folder_ / "link");
  expect_refused("among the checkpoints", folder_ / "link", true);
  // One that was moved away from its run.
  fs::rename(plan.parent_path(), folder_ / "step-20");
  expect_refused("among the checkpoints", folder_ / "step-20/plan.json", true);
  EXPECT_EQ(objection(folder_ / "run/plan.json"), "");
}

TEST_F(NamedOutputs, RefuseWhatIsNoFile) {
  expect_refused("is a folder", folder_, true);
  expect_refused("is a folder", folder_ / "", true);
  expect_refused("is a folder", folder_ / "new" / "", true);
  fs::create_symlink(folder_, folder_ / "to_folder");
  expect_refused("is a folder", folder_ / "to_folder", true);
  fs::create_symlink(folder_ / "loop", folder_ / "loop");
  expect_refused("Too many levels", folder_ / "loop", true);
  expect_refused("not a folder", put("file", "") / "plan.json", true);
  expect_refused("too long", folder_ / std::string(250, 'x'), true);
  expect_refused("too long", folder_ / std::string(5000, 'x'), true);
  expect_refused("/dev/stdout", "-", true);
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder_ / "socket").string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  expect_refused("a socket", folder_ / "socket", true);
  EXPECT_THROW(write_file(folder_ / "socket", "x"), SystemFailure);
  ::close(descriptor);
}

TEST_F(NamedOutputs, RefuseOnePathForTwo) {
  Outputs outputs;
  EXPECT_FALSE(outputs.open("--csv", "", OutputKind::kCases).named());
  EXPECT_TRUE(outputs.open("--csv", folder_ / "new.json", OutputKind::kCases).named());
  EXPECT_TRUE(outputs.open("--other", "/dev/null", OutputKind::kCases).named());
  EXPECT_TRUE(outputs.open("--third", "/dev/null", OutputKind::kCases).named());
  fs::create_symlink("new.json", folder_ / "link");
  for (const char* second : {"new.json", "../x/new.json", "link"}) {
    fs::create_directory(folder_ / "x");
    const std::string name = second == std::string("../x/new.json") ? "x/../new.json" : second;
    EXPECT_THROW(outputs.open("--trace", folder_ / name, OutputKind::kTrace), InvalidInput) << name;
  }
}

TEST_F(NamedOutputs, WriteThroughALinkAndKeepIt) {
  const fs::path target = put("target.json", "");
  fs::create_directory(folder_ / "sub");
  fs::create_symlink("../target.json", folder_ / "sub" / "link");
  fs::create_symlink("absent.json", folder_ / "dangling");
  Outputs outputs;
  outputs.open("-o", folder_ / "sub" / "link", OutputKind::kPlan).write("through");
  outputs.open("-p", folder_ / "dangling", OutputKind::kPlan).write("made");
  EXPECT_TRUE(fs::is_symlink(folder_ / "sub" / "link"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "dangling"));
  EXPECT_EQ(read_file(target), "through");
  EXPECT_EQ(read_file(folder_ / "absent.json"), "made");
}

TEST_F(NamedOutputs, WriteToAPipeAsAStream) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  Outputs outputs;
  outputs.open("-o", pipe, OutputKind::kPlan).write("through");
  EXPECT_TRUE(fs::is_fifo(pipe));
  std::string got(100, '\0');
  const ssize_t bytes = ::read(reader, got.data(), got.size());
  ::close(reader);
  EXPECT_EQ(got.substr(0, static_cast<std::size_t>(std::max<ssize_t>(0, bytes))), "through");
}

TEST_F(NamedOutputs, WriteToADeviceAsAStream) {
  Outputs outputs;
  outputs.open("-o", "/dev/null", OutputKind::kPlan).write("gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_THROW(outputs.open("-o", "/dev/full", OutputKind::kPlan).write("x"), SystemFailure);
  const fs::path own = folder_ / "null";
  if (::mknod(own.c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0) {
    GTEST_SKIP() << "no device nodes may be made here";
  }
  outputs.open("-o", own, OutputKind::kPlan).write("gone");
  EXPECT_TRUE(fs::is_character_file(own));
}

TEST_F(NamedOutputs, WriteStandardOutputInOrder) {
  const fs::path log = put("log", "");
  const int saved = ::dup(STDOUT_FILENO);
  const int file = ::open(log.c_str(), O_WRONLY);
  std::cout.flush();
  ::dup2(file, STDOUT_FILENO);
  std::cout << "before ";
  Outputs().open("-o", "/dev/stdout", OutputKind::kPlan).write("output ");
  std::cout << "after" << std::flush;
  ::dup2(saved, STDOUT_FILENO);
  ::close(file);
  ::close(saved);
  EXPECT_EQ(read_file(log), "before output after");
}

}  // namespace
}  // namespace entrain
