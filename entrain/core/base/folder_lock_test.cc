#include "entrain/core/base/folder_lock.h"

#include <atomic>
#include <csignal>
#include <fstream>
#include <future>
#include <optional>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

class FolderLocks : public testing::Test {
 protected:
  FolderLocks() {
    std::string pattern = (fs::temp_directory_path() / "entrain-lock-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    run_ = folder_ / "run";
  }
  ~FolderLocks() override { fs::remove_all(folder_); }

  [[nodiscard]] static LockOptions impatient(int member = 0) {
    LockOptions options;
    options.member = member;
    options.patience = milliseconds(50);
    options.beat = milliseconds(20);
    options.silence = milliseconds(500);
    return options;
  }
  [[nodiscard]] std::string refusal() const {
    try {
      const FolderLock second(run_, impatient());
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "taken";
  }
  // A lock as another process leaves it, `age` old.
  void leave(const std::string& name,
             const std::string& kernel,
             std::int64_t process,
             std::uint64_t started,
             std::chrono::seconds age) const {
    fs::create_directories(run_);
    const Json json = {{"host", "alpha"},
                       {"kernel", kernel},
                       {"process", process},
                       {"started", started},
                       {"since", "2026-01-02T03:04:05Z"},
                       {"member", 0}};
    write_file(run_ / name, json.dump());
    fs::last_write_time(run_ / name, fs::file_time_type::clock::now() - age);
  }
  [[nodiscard]] static std::string own_kernel(const fs::path& run) {
    const FolderLock lock(run, impatient());
    return Json::parse(read_file(run / kLockName)).at("kernel").get<std::string>();
  }

  fs::path folder_;
  fs::path run_;
};

TEST_F(FolderLocks, AreHeldByOneAtATimeAndNamed) {
  {
    const FolderLock lock(run_, impatient());
    const std::string message = refusal();
    EXPECT_NE(message.find("run' is in use by process " + std::to_string(::getpid())),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("since 20"), std::string::npos) << message;
    EXPECT_EQ(in_use(run_), message);
  }
  EXPECT_EQ(in_use(run_), "");
  EXPECT_FALSE(fs::exists(run_)) << "made for the lock, and nothing else was in it";
  fs::create_directories(run_);
  EXPECT_EQ(refusal(), "taken");
  EXPECT_TRUE(fs::exists(run_)) << "was there before";
  EXPECT_TRUE(fs::is_empty(run_));
}

TEST_F(FolderLocks, CoverEveryMember) {
  std::optional<FolderLock> first(std::in_place, run_, impatient());
  const FolderLock member(run_, impatient(3));
  first.reset();
  EXPECT_NE(refusal().find("(rank 3)"), std::string::npos) << refusal();
}

TEST_F(FolderLocks, WaitForAHolderThatIsAboutToEnd) {
  std::optional<FolderLock> first(std::in_place, run_, impatient());
  LockOptions patient = impatient();
  patient.patience = std::chrono::minutes(1);
  auto second = std::async(std::launch::async, [&] { const FolderLock lock(run_, patient); });
  EXPECT_EQ(second.wait_for(milliseconds(200)), std::future_status::timeout);
  first.reset();
  second.get();
}

TEST_F(FolderLocks, OfKilledProcessesAreTakenAtOnce) {
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(run_, impatient());
    std::ofstream(folder_ / "ready") << "x";
    ::pause();
  }
  while (!fs::exists(folder_ / "ready")) {
    ::usleep(1000);
  }
  EXPECT_NE(refusal().find("process " + std::to_string(child)), std::string::npos);
  EXPECT_TRUE(dead_holders(run_).empty());
  ::kill(child, SIGSTOP);
  EXPECT_NE(refusal(), "taken") << "a stopped process still lives";
  ::kill(child, SIGKILL);
  while (dead_holders(run_).empty()) {  // not yet waited for: it is dead all the same
    ::usleep(1000);
  }
  EXPECT_EQ(dead_holders(run_).front().process, child);
  EXPECT_EQ(refusal(), "taken");
  ::waitpid(child, nullptr, 0);
}

TEST_F(FolderLocks, OfAnotherProcessWithTheSameNumberAreNone) {
  leave(kLockName, own_kernel(run_), ::getpid(), 1, std::chrono::seconds(0));
  EXPECT_EQ(in_use(run_), "");
  EXPECT_EQ(refusal(), "taken");
}

TEST_F(FolderLocks, OfOtherHostsAreGoneAfterASilence) {
  leave(kLockName, "another kernel", 1, 1, std::chrono::seconds(3600));
  EXPECT_EQ(refusal(), "taken");
  leave("run.lock.1", "another kernel", 1, 1, std::chrono::seconds(3600));
  EXPECT_EQ(in_use(run_), "");
  leave("run.lock.2", "another kernel", 1, 1, std::chrono::seconds(0));
  EXPECT_NE(in_use(run_).find("process 1 on host alpha"), std::string::npos) << in_use(run_);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(refusal(), "taken");  // after waiting for the silence
  EXPECT_GT(std::chrono::steady_clock::now() - begin, milliseconds(400));
}

TEST_F(FolderLocks, OfOtherHostsThatBeatAreRespected) {
  leave(kLockName, "another kernel", 77, 1, std::chrono::seconds(0));
  std::atomic<bool> done{false};
  std::thread beats([&] {
    while (!done) {
      [[maybe_unused]] const int ignored =
          ::utimensat(AT_FDCWD, (run_ / kLockName).c_str(), nullptr, 0);
      ::usleep(20'000);
    }
  });
  const std::string message = refusal();
  done = true;
  beats.join();
  EXPECT_NE(message.find("process 77 on host alpha, since 2026-01-02T03:04:05Z"), std::string::npos)
      << message;
}

TEST_F(FolderLocks, ThatWereTakenAreNoticedByTheirHolder) {
  std::promise<std::string> lost;
  LockOptions options = impatient();
  options.lost = [&](const std::string& why) { lost.set_value(why); };
  const FolderLock lock(run_, options);
  leave(kLockName, "another kernel", 5, 1, std::chrono::seconds(0));  // renamed over it
  EXPECT_NE(lost.get_future().get().find("another process took"), std::string::npos);
}

TEST_F(FolderLocks, ThatCannotBeReadEndByTheirSilence) {
  fs::create_directories(run_);
  std::ofstream(run_ / kLockName) << "{\"host";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(refusal(), "taken");
  EXPECT_GT(std::chrono::steady_clock::now() - begin, milliseconds(300));
}

TEST_F(FolderLocks, RefuseAFolderThatCannotBeMade) {
  std::ofstream(folder_ / "file") << "in the way";
  EXPECT_THROW(FolderLock(folder_ / "file" / "run", impatient()), SystemFailure);
}

// The one that has it holds it until all others have given up.
TEST_F(FolderLocks, GoToExactlyOneOfManyAtOnce) {
  leave(kLockName, own_kernel(run_), ::getpid(), 1, std::chrono::seconds(0));  // stale
  constexpr int kProcesses = 8;
  for (int i = 0; i < kProcesses; ++i) {
    if (::fork() == 0) {
      int code = 1;
      try {
        const FolderLock lock(run_, impatient());
        for (int wait = 0; wait < 20'000 && !fs::exists(folder_ / "done"); ++wait) {
          ::usleep(1000);
        }
        code = 0;
      } catch (const std::exception&) {
      }
      ::_exit(code);
    }
  }
  int taken = 0;
  for (int ended = 0; ended < kProcesses; ++ended) {
    if (ended + 1 == kProcesses) {
      std::ofstream(folder_ / "done") << "x";
    }
    int status = 0;
    ::waitpid(-1, &status, 0);
    taken += status == 0 ? 1 : 0;
  }
  EXPECT_EQ(taken, 1);
}

}  // namespace
}  // namespace entrain
