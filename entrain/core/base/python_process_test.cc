#include "entrain/core/base/python_process.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::TemporaryFolder;

// Answers each request by what it names.
constexpr const char* kEcho = R"(
import json, sys
source, sink = sys.stdin.buffer, sys.stdout.buffer
def say(text):
    sink.write(text.encode() + b"\n")
for line in source:
    request = json.loads(line)
    if request["do"] == "bytes":
        say(json.dumps({"size": request["size"]}))
        sink.write(bytes(i % 251 for i in range(request["size"])))
        say(json.dumps({"behind": True}))
    elif request["do"] == "say":
        say(request["text"])
    elif request["do"] == "end":
        sys.exit(7)
    sink.flush()
)";

class PythonProcesses : public testing::Test {
 protected:
  PythonProcesses() {
    std::filesystem::create_directories(folder_.path() / "entrain");
    folder_.write("entrain/__init__.py", "");
    folder_.write("entrain/echo.py", kEcho);
    program_ = {"python3", folder_.path()};
  }

  static void request(PythonProcess& process, const Json& request) {
    process.write(request.dump() + "\n", "x");
  }

  TemporaryFolder folder_;
  PythonProgram program_;
};

std::string pattern(std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) {
    bytes += static_cast<char>(i % 251);
  }
  return bytes;
}

TEST_F(PythonProcesses, AnswerWithLinesAndBytesOfAnyLength) {
  PythonProcess process(program_, "entrain.echo", "answers");
  for (const std::size_t size : {0U, 1U, 65'535U, 65'536U, 65'537U, 3'000'000U}) {
    request(process, {{"do", "bytes"}, {"size", size}});
    EXPECT_EQ(process.read_line("x").at("size"), size);
    EXPECT_EQ(process.read_bytes(static_cast<std::int64_t>(size), "x"), pattern(size)) << size;
    EXPECT_TRUE(process.read_line("x").at("behind").get<bool>()) << size;
  }
  // Several answers that were received at once, one of them longer than what is received at once.
  const std::string text(200'000, 'a');
  for (const std::string& answer : {std::string("1"), text, std::string("3")}) {
    request(process, {{"do", "say"}, {"text", Json{{"n", answer}}.dump()}});
  }
  EXPECT_EQ(process.read_line("x").at("n"), "1");
  EXPECT_EQ(process.read_line("x").at("n"), text);
  EXPECT_EQ(process.read_line("x").at("n"), "3");
}

TEST_F(PythonProcesses, SayWhatWentWrong) {
  PythonProcess process(program_, "entrain.echo", "answers");
  request(process, {{"do", "say"}, {"text", R"({"error": "it is cut"})"}});
  EXPECT_EQ(error_of<InvalidInput>([&] { process.read_answer("file 'a'"); }),
            "file 'a': it is cut");
  request(process, {{"do", "say"}, {"text", R"({"failure": "no package"})"}});
  EXPECT_EQ(error_of<SystemFailure>([&] { process.read_answer("file 'a'"); }),
            "file 'a': no package");
  request(process, {{"do", "say"}, {"text", "a warning"}});
  EXPECT_NE(error_of<SystemFailure>([&] { process.read_answer("file 'a'"); }).find("'a warning'"),
            std::string::npos);
  request(process, {{"do", "end"}});
  EXPECT_EQ(error_of<SystemFailure>([&] { process.read_line("file 'b'"); }),
            "file 'b': the process that answers ended with exit code 7");
}

TEST_F(PythonProcesses, StartAgainAfterTheyEnded) {
  set_python_program(program_);
  PythonReader reader("entrain.echo", "answers");
  const auto said = [&](const Json& what) {
    return reader.with_process([&](PythonProcess& process) {
      request(process, what);
      return process.read_line("x");
    });
  };
  const Json fine = {{"do", "say"}, {"text", "{\"n\": 1}"}};
  EXPECT_EQ(said(fine).at("n"), 1);
  EXPECT_NE(error_of<SystemFailure>([&] { said({{"do", "end"}}); }), "");
  EXPECT_EQ(said(fine).at("n"), 1);
  set_python_program({});
}

TEST_F(PythonProcesses, AreRefusedWithoutAnInterpreter) {
  const std::string message = error_of<SystemFailure>([&] {
    PythonProcess({"/no/python", folder_.path()}, "entrain.echo", "answers");
  });
  EXPECT_NE(message.find("'/no/python'"), std::string::npos) << message;
  EXPECT_NE(message.find("ENTRAIN_PYTHON"), std::string::npos) << message;
}

}  // namespace
}  // namespace entrain
