// A body that runs on every rank of a tensor group, a thread each, for the tests of what lies on
// several ranks.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>

#include "entrain/engine/comm/thread_comm.h"
#include "entrain/engine/models/tensor_group.h"

namespace entrain::oracle {

// Throws  the first failure of a rank that was not stopped by another's.
inline void on_tensor_ranks(int num_ranks,
                            const std::function<void(const engine::TensorGroupPtr&)>& body) {
  engine::ThreadCommGroup comms(num_ranks, std::chrono::seconds(20));
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(num_ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      engine::TensorGroup group;
      group.comm = &comms.comm(rank);
      group.ranks.resize(static_cast<std::size_t>(num_ranks));
      std::iota(group.ranks.begin(), group.ranks.end(), 0);
      group.index = rank;
      try {
        body(std::make_shared<const engine::TensorGroup>(group));
      } catch (const engine::CommAborted&) {
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
        comms.abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) {
      std::rethrow_exception(error);
    }
  }
}

}  // namespace entrain::oracle
