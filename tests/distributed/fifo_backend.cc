#include "tests/distributed/fifo_backend.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <stdexcept>
#include <thread>
#include <utility>

namespace entrain::oracle {
namespace {

constexpr int kHelloTag = 1;
constexpr int kReadyTag = 2;
constexpr int kDataTag = 3;
constexpr std::chrono::hours kForever{24 * 365};

class FifoWork : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    std::unique_lock lock(mutex_);
    cv_.wait(lock, [&] { return completed_; });
    if (exception_ != nullptr) {
      std::rethrow_exception(exception_);
    }
    return true;
  }
  void end(std::exception_ptr error = nullptr) { finish(std::move(error)); }
};

}  // namespace

// To one peer: a thread that does what was asked for, one after another.
class FifoBackend::Connection {
 public:
  Connection(c10d::Backend& host, int peer, std::atomic<bool>& losing)
      : host_(host), peer_(peer), losing_(losing) {
    const bool first = host.getRank() < peer;
    pass(/*sends=*/first, at::zeros({1}), kHelloTag);  // the peer comes when it comes
    pass(/*sends=*/!first, at::zeros({1}), kHelloTag);
    thread_ = std::thread([this] { work(); });
  }
  ~Connection() {
    abort();
    thread_.join();
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  c10::intrusive_ptr<c10d::Work> ask(bool sends, at::Tensor tensor) {
    auto work = c10::make_intrusive<FifoWork>();
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back({sends, std::move(tensor), work});
    }
    changed_.notify_all();
    return work;
  }

  void abort() {
    {
      const std::lock_guard lock(mutex_);
      aborted_ = true;
      if (current_ != nullptr) {
        current_->abort();
      }
    }
    changed_.notify_all();
  }

 private:
  struct Asked {
    bool sends = false;
    at::Tensor tensor;
    c10::intrusive_ptr<FifoWork> work;
  };

  void pass(bool sends, at::Tensor tensor, int tag) {
    std::vector<at::Tensor> tensors = {std::move(tensor)};
    const auto work = sends ? host_.send(tensors, peer_, tag) : host_.recv(tensors, peer_, tag);
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) {
        work->abort();
      }
      current_ = work;
    }
    const bool done = work->wait(kForever);
    const std::lock_guard lock(mutex_);
    current_ = nullptr;
    if (!done || aborted_) {
      throw std::runtime_error("connection aborted");
    }
  }

  void run(const Asked& asked) {
    at::Tensor token = at::zeros({1});
    if (asked.sends) {
      pass(/*sends=*/false, token, kReadyTag);
      if (!losing_) {
        pass(/*sends=*/true, asked.tensor.cpu(), kDataTag);
      }
      return;
    }
    pass(/*sends=*/true, token, kReadyTag);
    const at::Tensor host = at::empty(asked.tensor.sizes(), asked.tensor.scalar_type());
    pass(/*sends=*/false, host, kDataTag);
    at::Tensor(asked.tensor).copy_(host);
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return aborted_ || !asked_.empty(); });
      if (aborted_) {
        break;
      }
      Asked asked = std::move(asked_.front());
      asked_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        run(asked);
      } catch (const std::exception&) {
        error = std::current_exception();
      }
      asked.tensor = at::Tensor();  // whoever waits may be the last to hold it
      asked.work->end(error);
      lock.lock();
    }
    for (const Asked& asked : asked_) {
      asked.work->end(std::make_exception_ptr(std::runtime_error("connection aborted")));
    }
  }

  c10d::Backend& host_;
  int peer_;
  std::atomic<bool>& losing_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Asked> asked_;
  c10::intrusive_ptr<c10d::Work> current_;
  bool aborted_ = false;
  std::thread thread_;
};

FifoBackend::FifoBackend(c10::intrusive_ptr<c10d::Backend> host)
    : Backend(host->getRank(), host->getSize()), host_(std::move(host)) {}

FifoBackend::~FifoBackend() = default;

FifoBackend::Connection& FifoBackend::connection_to(int peer) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Connection>& connection = connections_[peer];
  if (connection == nullptr) {
    connection = std::make_unique<Connection>(*host_, peer, losing_);
  }
  return *connection;
}

c10::intrusive_ptr<c10d::Work> FifoBackend::send(std::vector<at::Tensor>& tensors,
                                                 int target,
                                                 int /*tag*/) {
  return connection_to(target).ask(/*sends=*/true, tensors.at(0));
}

c10::intrusive_ptr<c10d::Work> FifoBackend::recv(std::vector<at::Tensor>& tensors,
                                                 int source,
                                                 int /*tag*/) {
  return connection_to(source).ask(/*sends=*/false, tensors.at(0));
}

void FifoBackend::abort() {
  const std::lock_guard lock(mutex_);
  for (const auto& [peer, connection] : connections_) {
    connection->abort();
  }
}

}  // namespace entrain::oracle
