// Processes of this project's Python package that serve the program over a socket: tokenizers, and
// readers of Parquet and of video.
//
// Read first: PythonProcess. Its answers are JSON objects, one a line, and bytes where the protocol
// of the module says so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <sys/types.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"

namespace entrain {

struct PythonProgram {
  std::string python;              // the interpreter
  std::filesystem::path packages;  // folder of the package `entrain`
};

// `python`: ENTRAIN_PYTHON if it is set, else the interpreter that the build was configured with if
// it is still there, else python3. `packages`: beside this program, as it was built or installed.
//
// Throws  SystemFailure if there is no such package.
PythonProgram find_python_program();

// What find_python_program() returns from now on: for a process that is this Python itself.
void set_python_program(PythonProgram program);

// A process at the other end of a socket, which is its standard input and output: writing to one
// that ended is an error here, not a signal.
class PythonProcess {
 public:
  // Starts `python -m MODULE`. `work`: what it does, for messages: "makes its tokens".
  // Throws  SystemFailure if it does not start.
  PythonProcess(const PythonProgram& program, const std::string& module, std::string work);
  // One that somebody else started, at the other end of `socket`, which this object closes.
  PythonProcess(int socket, std::string work) : work_(std::move(work)), socket_(socket) {}
  ~PythonProcess();
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;

  // `where`: what is asked for, for the message if the process is gone.
  //
  // Throws  SystemFailure naming `where`: the process ended, or answered something else; all four.
  void write(std::string_view text, const std::string& where);
  // Throws  also SystemFailure for an object with the key `failure`.
  Json read_line(const std::string& where);
  // Throws  also InvalidInput for an object with the key `error`.
  Json read_answer(const std::string& where);
  // Throws  SystemFailure also for a size below 0.
  std::string read_bytes(std::int64_t size, const std::string& where);
  // The next target.size() bytes, without a copy on the way.
  void read_into(std::span<std::uint8_t> target, const std::string& where);

 private:
  void receive(const std::string& where);
  [[noreturn]] void fail(const std::string& where);

  std::string work_;
  int socket_ = -1;
  pid_t process_ = 0;     // 0: none that is this object's, or it ended
  std::string buffer_;    // read,
  std::size_t used_ = 0;  // of which this much has been returned
};

// A module's process that starts when it is first needed, and again after it failed.
class PythonReader {
 public:
  // As for PythonProcess, with find_python_program().
  PythonReader(std::string module, std::string work)
      : module_(std::move(module)), work_(std::move(work)) {}

  // Returns `talk(process)`.
  template <class Talk>
  auto with_process(const Talk& talk) {
    try {
      if (process_ == nullptr) {
        process_ = std::make_unique<PythonProcess>(find_python_program(), module_, work_);
      }
      return talk(*process_);
    } catch (const SystemFailure&) {
      process_.reset();
      throw;
    }
  }

 private:
  std::string module_;
  std::string work_;
  std::unique_ptr<PythonProcess> process_;
};

}  // namespace entrain
