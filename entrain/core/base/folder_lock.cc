#include "entrain/core/base/folder_lock.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kPoll{100};

[[noreturn]] void fail(const char* action, const fs::path& path, int error) {
  throw SystemFailure(fmt::format(
      "cannot {} '{}': {}", action, path.string(), std::generic_category().message(error)));
}

// Start of a living process in ticks since boot; nothing if there is none, or it has
// ended and is a zombie.
std::optional<std::uint64_t> start_of(std::int64_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream fields(text.substr(name_end + 1));
  std::string state;
  fields >> state;
  std::string field;
  for (int i = 4; i < 22; ++i) {
    fields >> field;
  }
  std::uint64_t started = 0;
  if (!(fields >> started) || state == "Z" || state == "X") {
    return std::nullopt;
  }
  return started;
}

std::string this_kernel() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  std::error_code ignored;
  return boot_id + " " + fs::read_symlink("/proc/self/ns/pid", ignored).string();
}

LockHolder this_process(int member) {
  LockHolder own;
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  own.host = name.data();
  own.kernel = this_kernel();
  own.process = ::getpid();
  own.started = start_of(own.process).value_or(0);
  own.since = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  own.member = member;
  return own;
}

std::string encode(const LockHolder& holder) {
  return Json{{"host", holder.host},
              {"kernel", holder.kernel},
              {"process", holder.process},
              {"started", holder.started},
              {"since", holder.since},
              {"member", holder.member}}
             .dump() +
         "\n";
}

struct Lock {
  fs::path path;
  std::string content;
  LockHolder holder;
  nanoseconds refreshed{0};  // by the file system's clock
};

nanoseconds time_of(const struct stat& status) {
  return std::chrono::seconds(status.st_mtim.tv_sec) + nanoseconds(status.st_mtim.tv_nsec);
}

// Nothing if the file no longer exists. An unreadable one (power cut) counts as a
// lock of an unknown holder, which expires by its silence.
std::optional<Lock> read_lock(const fs::path& path) {
  // Opened for every check: network file systems then request the times from their server.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) {
    if (descriptor >= 0) {
      ::close(descriptor);
    }
    return std::nullopt;
  }
  std::array<char, 4096> buffer{};
  const ssize_t size = ::read(descriptor, buffer.data(), buffer.size());
  ::close(descriptor);
  Lock lock;
  lock.path = path;
  lock.refreshed = time_of(status);
  lock.content.assign(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(0, size)));
  const Json json = Json::parse(lock.content, nullptr, /*allow_exceptions=*/false);
  try {
    lock.holder = {json.at("host").get<std::string>(),
                   json.at("kernel").get<std::string>(),
                   json.at("process").get<std::int64_t>(),
                   json.at("started").get<std::uint64_t>(),
                   json.at("since").get<std::string>(),
                   json.at("member").get<int>()};
  } catch (const std::exception&) {
    lock.holder.host = "unknown";
  }
  return lock;
}

// run.lock and run.lock.N; not those that are being made.
std::vector<Lock> locks_in(const fs::path& folder) {
  std::vector<Lock> locks;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::string prefix = std::string(kLockName) + ".";
    const bool member = name.starts_with(prefix) && name.size() > prefix.size() &&
                        name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
    if (name == kLockName || member) {
      if (std::optional<Lock> lock = read_lock(entry->path())) {
        locks.push_back(std::move(*lock));
      }
    }
  }
  return locks;
}

bool is_known_dead(const Lock& lock) {
  return lock.holder.kernel == this_kernel() &&
         start_of(lock.holder.process) != lock.holder.started;
}

bool is_silent(const Lock& lock, nanoseconds now, milliseconds silence) {
  return lock.holder.kernel != this_kernel() && now - lock.refreshed > silence;
}

// Another process may have taken the lock since it was read: then it gets it back.
void remove_lock(const Lock& lock) {
  const fs::path aside = fmt::format("{}.gone-{}", lock.path.string(), ::getpid());
  if (::rename(lock.path.c_str(), aside.c_str()) != 0) {
    return;
  }
  const std::optional<Lock> taken = read_lock(aside);
  if (taken.has_value() && taken->content != lock.content) {
    [[maybe_unused]] const int ignored = ::link(aside.c_str(), lock.path.c_str());
  }
  ::unlink(aside.c_str());
}

// Processes of one host claim in turn; where the file system knows no such thing, links decide.
class Turn {
 public:
  explicit Turn(const fs::path& folder)
      : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ >= 0) {
      [[maybe_unused]] const int ignored = ::flock(descriptor_, LOCK_EX);
    }
  }
  ~Turn() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int descriptor_;
};

// Whether `path` is now another name of `candidate`, or a file of the same content.
bool take(const fs::path& candidate, const fs::path& path) {
  if (::link(candidate.c_str(), path.c_str()) == 0) {
    return true;
  }
  const int error = errno;
  if (error == EEXIST) {
    return false;
  }
  if (error != EPERM && error != ENOTSUP && error != ENOSYS && error != EMLINK) {
    fail("write", path, error);
  }
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return false;
  }
  const std::string content = read_lock(candidate).value_or(Lock()).content;
  const bool written = ::write(descriptor, content.data(), content.size()) == std::ssize(content);
  ::close(descriptor);
  return written;
}

// A complete file, so that no lock is ever seen half-written.
void write_candidate(const fs::path& path, const std::string& content) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0 ||
      ::write(descriptor, content.data(), content.size()) != std::ssize(content) ||
      ::fsync(descriptor) != 0) {
    const int error = errno;
    if (descriptor >= 0) {
      ::close(descriptor);
    }
    fail("write", path, error);
  }
  ::close(descriptor);
}

// The file system's clock.
nanoseconds now_of(const fs::path& candidate) {
  [[maybe_unused]] const int ignored = ::utimensat(AT_FDCWD, candidate.c_str(), nullptr, 0);
  const std::optional<Lock> touched = read_lock(candidate);
  return touched.has_value() ? touched->refreshed : nanoseconds(0);
}

std::string in_use_by(const fs::path& folder, const std::vector<Lock>& living) {
  std::vector<std::string> names;
  for (const Lock& lock : living) {
    names.push_back(to_text(lock.holder));
  }
  return fmt::format("'{}' is in use by {}; wait for its end or choose another folder",
                     folder.string(),
                     fmt::join(names, ", "));
}

}  // namespace

std::string to_text(const LockHolder& holder) {
  if (holder.process == 0) {
    return "a process that its lock does not name";
  }
  return fmt::format("process {} on host {}{}, since {}",
                     holder.process,
                     holder.host,
                     holder.member == 0 ? "" : fmt::format(" (rank {})", holder.member),
                     holder.since);
}

FolderLock::FolderLock(std::filesystem::path folder, LockOptions options)
    : folder_(std::move(folder)), options_(std::move(options)) {
  std::error_code error;
  made_folder_ = fs::create_directories(folder_, error);
  if (error) {
    fail("create folder", folder_, error.value());
  }
  const LockHolder own = this_process(options_.member);
  path_ = folder_ / (options_.member == 0 ? std::string(kLockName)
                                          : fmt::format("{}.{}", kLockName, options_.member));
  const fs::path candidate =
      folder_ / fmt::format(".{}.{}-{}-{}", kLockName, own.host, own.process, options_.member);
  write_candidate(candidate, encode(own));
  try {
    claim(candidate);
  } catch (...) {
    ::unlink(candidate.c_str());
    throw;
  }
  ::unlink(candidate.c_str());
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    fail("open", path_, errno);
  }
  thread_ = std::thread([this] { keep(); });
}

void FolderLock::claim(const std::filesystem::path& candidate) {
  const Clock::time_point begin = Clock::now();
  nanoseconds first_look{0};
  while (true) {
    std::vector<Lock> living;
    bool unsure = false;  // a silence that may yet turn out to be the last one
    {
      const Turn turn(folder_);
      const nanoseconds now = now_of(candidate);
      first_look = first_look == nanoseconds(0) ? now : first_look;
      for (const Lock& lock : locks_in(folder_)) {
        if (options_.member != 0 && lock.path != path_) {
          continue;  // of the claim that this process belongs to
        }
        if (is_known_dead(lock) || is_silent(lock, now, options_.silence)) {
          remove_lock(lock);
        } else {
          living.push_back(lock);
          unsure = unsure || (lock.holder.kernel != this_kernel() && lock.refreshed < first_look);
        }
      }
      if (living.empty() && take(candidate, path_)) {
        return;
      }
    }
    if (Clock::now() - begin >
        (unsure ? options_.silence + options_.patience : options_.patience)) {
      throw InvalidInput(in_use_by(folder_, living));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

FolderLock::~FolderLock() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
  struct stat named {};
  struct stat own {};
  if (::stat(path_.c_str(), &named) == 0 && ::fstat(descriptor_, &own) == 0 &&
      named.st_ino == own.st_ino) {
    ::unlink(path_.c_str());
  }
  ::close(descriptor_);
  if (made_folder_) {
    std::error_code ignored;
    fs::remove(folder_, ignored);
  }
}

void FolderLock::keep() {
  MutexLock lock(mutex_);
  while (!changed_.wait_for(
      lock.native(), options_.beat, [&]() ENTRAIN_REQUIRES(mutex_) { return closing_; })) {
    struct stat named {};
    struct stat own {};
    const bool gone = ::stat(path_.c_str(), &named) != 0 && errno == ENOENT;
    if (::fstat(descriptor_, &own) != 0) {
      continue;  // the file system is not there; it may come back
    }
    if (gone || (named.st_ino != 0 && named.st_ino != own.st_ino)) {
      lock.unlock();
      if (options_.lost) {
        options_.lost(fmt::format("another process took '{}', or it was removed", path_.string()));
      }
      return;
    }
    ::futimens(descriptor_, nullptr);
  }
}

std::string in_use(const std::filesystem::path& folder) {
  const nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  std::vector<Lock> living = locks_in(folder);
  std::erase_if(living, [&](const Lock& lock) {
    return is_known_dead(lock) || is_silent(lock, now, LockOptions().silence);
  });
  return living.empty() ? std::string() : in_use_by(folder, living);
}

void remove_dead_locks(const std::filesystem::path& folder) {
  const Turn turn(folder);
  for (const Lock& lock : locks_in(folder)) {
    if (is_known_dead(lock)) {
      remove_lock(lock);
    }
  }
}

std::vector<LockHolder> dead_holders(const std::filesystem::path& folder) {
  std::vector<LockHolder> dead;
  for (const Lock& lock : locks_in(folder)) {
    if (is_known_dead(lock)) {
      dead.push_back(lock.holder);
    }
  }
  return dead;
}

}  // namespace entrain
