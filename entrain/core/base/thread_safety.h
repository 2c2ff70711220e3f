// Mutexes that say what they guard: Clang's thread-safety analysis, which `make check` runs,
// refuses code that reads or writes what a mutex guards without holding it. Other compilers ignore
// it.
//
//   Mutex mutex_;
//   int count_ ENTRAIN_GUARDED_BY(mutex_) = 0;
//   void add() ENTRAIN_REQUIRES(mutex_);
//   ready_.wait(lock.native(), [&]() ENTRAIN_REQUIRES(mutex_) { return count_ > 0; });
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define ENTRAIN_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define ENTRAIN_THREAD_ANNOTATION(x)
#endif

// Of data: who reads or writes it holds the mutex.
#define ENTRAIN_GUARDED_BY(mutex) ENTRAIN_THREAD_ANNOTATION(guarded_by(mutex))
// Of a function: its caller holds the mutex.
#define ENTRAIN_REQUIRES(...) ENTRAIN_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))

namespace entrain {

class ENTRAIN_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() ENTRAIN_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() ENTRAIN_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a mutex to the end of the scope, but between unlock() and lock().
class ENTRAIN_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ENTRAIN_THREAD_ANNOTATION(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  ~MutexLock() ENTRAIN_THREAD_ANNOTATION(release_capability()) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() ENTRAIN_THREAD_ANNOTATION(acquire_capability()) { lock_.lock(); }
  void unlock() ENTRAIN_THREAD_ANNOTATION(release_capability()) { lock_.unlock(); }
  // For waiting on a condition variable.
  [[nodiscard]] std::unique_lock<std::mutex>& native() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace entrain
