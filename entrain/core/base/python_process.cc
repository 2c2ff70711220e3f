#include "entrain/core/base/python_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"

extern char** environ;

namespace entrain {
namespace {

PythonProgram& program_of_this_process() {
  static PythonProgram program;
  return program;
}

std::string reason_of(int error) {
  return std::generic_category().message(error);
}

// "ended by signal 9 (Killed)"
std::string ending_of(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format(
        "was ended by signal {} ({})", WTERMSIG(status), sigdescr_np(WTERMSIG(status)));
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

std::string reason_in(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// This process's environment with `packages` in front of PYTHONPATH.
std::vector<std::string> environment_with(const std::filesystem::path& packages) {
  constexpr std::string_view kName = "PYTHONPATH=";
  std::vector<std::string> result;
  std::string path = std::string(kName) + packages.string();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(kName)) {
      result.emplace_back(text);
    } else if (text.size() > kName.size()) {
      path += ":" + std::string(text.substr(kName.size()));
    }
  }
  result.push_back(path);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

}  // namespace

void set_python_program(PythonProgram program) {
  program_of_this_process() = std::move(program);
}

PythonProgram find_python_program() {
  if (!program_of_this_process().python.empty()) {
    return program_of_this_process();
  }
  PythonProgram result;
  const char* named = std::getenv("ENTRAIN_PYTHON");
  result.python = named != nullptr && *named != '\0'                   ? named
                  : std::filesystem::exists(ENTRAIN_CONFIGURED_PYTHON) ? ENTRAIN_CONFIGURED_PYTHON
                                                                       : "python3";
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  // Of a build folder; of an installation.
  for (const char* folder : {"../../python", "../share/entrain/python"}) {
    result.packages = (program / folder).lexically_normal();
    if (std::filesystem::exists(result.packages / "entrain" / "tokens.py")) {
      return result;
    }
  }
  throw SystemFailure(fmt::format(
      "the Python package `entrain`, which tokenizes and reads tables and video, is not beside "
      "'{}'",
      program.string()));
}

PythonProcess::PythonProcess(const PythonProgram& program,
                             const std::string& module,
                             std::string work)
    : work_(std::move(work)) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw SystemFailure(fmt::format("no socket for a process: {}", reason_of(errno)));
  }
  socket_ = ends[0];
  std::vector<std::string> arguments = {program.python, "-m", module};
  std::vector<std::string> environment = environment_with(program.packages);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const int error = posix_spawnp(&process_,
                                 program.python.c_str(),
                                 &actions,
                                 nullptr,
                                 pointers(arguments).data(),
                                 pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(socket_);
    throw SystemFailure(
        fmt::format("cannot start the Python '{}': {} (ENTRAIN_PYTHON names another)",
                    program.python,
                    reason_of(error)));
  }
}

PythonProcess::~PythonProcess() {
  close(socket_);
  if (process_ > 0) {
    waitpid(process_, nullptr, 0);
  }
}

void PythonProcess::write(std::string_view text, const std::string& where) {
  while (!text.empty()) {
    const ssize_t count = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) {
      fail(where);
    }
    text.remove_prefix(count < 0 ? 0 : static_cast<std::size_t>(count));
  }
}

void PythonProcess::receive(const std::string& where) {
  constexpr std::size_t kPiece = 1 << 16;
  buffer_.erase(0, std::exchange(used_, 0));
  const std::size_t size = buffer_.size();
  buffer_.resize(size + kPiece);
  const ssize_t count = recv(socket_, buffer_.data() + size, kPiece, 0);
  const int error = errno;
  buffer_.resize(size + (count < 0 ? 0 : static_cast<std::size_t>(count)));
  if (count == 0 || (count < 0 && error != EINTR)) {
    fail(where);
  }
}

Json PythonProcess::read_line(const std::string& where) {
  std::size_t seen = 0;  // of the unread part
  std::size_t end = 0;
  while ((end = buffer_.find('\n', used_ + seen)) == std::string::npos) {
    seen = buffer_.size() - used_;
    receive(where);
  }
  const std::string_view line = std::string_view(buffer_).substr(used_, end - used_);
  used_ = end + 1;
  Json document = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    throw SystemFailure(fmt::format("{}: a worker answered '{}'", where, line.substr(0, 200)));
  }
  if (const auto failure = document.find("failure"); failure != document.end()) {
    throw SystemFailure(fmt::format("{}: {}", where, reason_in(*failure)));
  }
  return document;
}

Json PythonProcess::read_answer(const std::string& where) {
  Json document = read_line(where);
  if (const auto error = document.find("error"); error != document.end()) {
    throw InvalidInput(fmt::format("{}: {}", where, reason_in(*error)));
  }
  return document;
}

std::string PythonProcess::read_bytes(std::int64_t size, const std::string& where) {
  if (size < 0) {
    throw SystemFailure(fmt::format("{}: a worker answered with {} bytes", where, size));
  }
  constexpr std::size_t kFirstBytes = 1 << 22;
  const auto wanted = static_cast<std::size_t>(size);
  std::string bytes;
  while (bytes.size() < wanted) {  // memory grows with what comes
    const std::size_t have = bytes.size();
    bytes.resize(std::min(wanted, std::max(2 * have, kFirstBytes)));
    read_into({reinterpret_cast<std::uint8_t*>(bytes.data()) + have, bytes.size() - have}, where);
  }
  return bytes;
}

void PythonProcess::read_into(std::span<std::uint8_t> target, const std::string& where) {
  const std::size_t held = std::min(buffer_.size() - used_, target.size());
  std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(used_), held, target.begin());
  used_ += held;
  target = target.subspan(held);
  while (!target.empty()) {
    const ssize_t count = recv(socket_, target.data(), target.size(), MSG_WAITALL);
    if (count == 0 || (count < 0 && errno != EINTR)) {
      fail(where);
    }
    target = target.subspan(count < 0 ? 0 : static_cast<std::size_t>(count));
  }
}

void PythonProcess::fail(const std::string& where) {
  int status = 0;
  shutdown(socket_, SHUT_RDWR);  // it ends, if it has not
  if (process_ == 0) {
    throw SystemFailure(fmt::format("{}: the process that {} is gone", where, work_));
  }
  waitpid(std::exchange(process_, 0), &status, 0);
  throw SystemFailure(fmt::format("{}: the process that {} {}", where, work_, ending_of(status)));
}

}  // namespace entrain
