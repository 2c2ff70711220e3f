// Checks of ranks that are processes, for tests/distributed/process_communicator_test.py: a Python
// module
// whose functions every rank of a group calls together.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/comm/c10d_comm.h"
#include "entrain/engine/models/live_bytes.h"

#include "tests/distributed/process_devices.h"
#include "tests/distributed/process_expect.h"
#include "tests/distributed/process_gradients.h"

namespace entrain {
namespace {

using engine::C10dComm;
using engine::Comm;
using engine::CommAborted;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kDeadline{20'000};

template <class Error>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  throw std::runtime_error("no error of the expected type");
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    expect(text.find(word) != std::string::npos, concat("'", word, "' is missing in: ", text));
  }
}

std::vector<int> all_ranks(const Comm& comm) {
  std::vector<int> ranks(static_cast<std::size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// What rank `rank` brings; every rank can compute everybody's.
at::Tensor input_of(int rank, std::int64_t size) {
  Rng rng(static_cast<std::uint64_t>(size), static_cast<std::uint64_t>(rank));
  at::Tensor tensor = at::empty({size});
  for (std::int64_t i = 0; i < size; ++i) {
    tensor.data_ptr<float>()[i] = static_cast<float>(rng.uniform() - 0.5);
  }
  return tensor;
}

at::Tensor plain_sum(const std::vector<int>& ranks, std::int64_t size) {
  at::Tensor sum = input_of(ranks.front(), size);
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    sum += input_of(ranks[i], size);
  }
  return sum;
}

// From left to right, in rank order, over all ranks and over two halves at the same time.
void collectives(C10dComm& comm) {
  const int rank = comm.rank();
  const std::vector<int> half = rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
  for (const std::vector<int>& group : {all_ranks(comm), half, std::vector<int>{rank}}) {
    for (const std::int64_t size : {1, 3, 112, 113, 1000, 4096, 4099, 300'001}) {
      at::Tensor tensor = input_of(rank, size);
      comm.all_reduce_sum(tensor, group);
      expect(at::equal(tensor, plain_sum(group, size)), concat("all_reduce_sum of ", size));
    }
    const auto members = static_cast<std::int64_t>(group.size());
    const std::int64_t size = 50'021;
    at::Tensor whole = input_of(rank, size * members);
    const at::Tensor slice = comm.reduce_scatter_sum(whole, group);
    whole.zero_();  // allowed from here on
    const auto member = std::find(group.begin(), group.end(), rank) - group.begin();
    expect(at::equal(slice, plain_sum(group, size * members).narrow(0, size * member, size)),
           "reduce_scatter_sum");
    at::Tensor own = input_of(rank, 100'003);
    const at::Tensor joined = comm.all_gather(own, group);
    own.zero_();
    for (std::size_t m = 0; m < group.size(); ++m) {
      expect(at::equal(joined.narrow(0, static_cast<std::int64_t>(m) * 100'003, 100'003),
                       input_of(group[m], 100'003)),
             "all_gather");
    }
    for (const int root : group) {
      at::Tensor sent = input_of(rank, 1'000);
      comm.broadcast(sent, root, group);
      expect(at::equal(sent, input_of(root, 1'000)), "broadcast");
      sent.zero_();
    }
    comm.barrier(group);
  }
}

// Large messages in both directions before any receive, channels taken in another order than sent,
// and a channel that waits while another goes on.
void channels(C10dComm& comm) {
  const int peer = comm.rank() ^ 1;
  const int rank = comm.rank();
  const std::int64_t size = 2'000'000;
  for (int message = 0; message < 3; ++message) {
    for (const int channel : {0, 1}) {
      comm.send({rank, peer, channel},
                static_cast<std::uint64_t>(10 * message + channel),
                at::full({size}, static_cast<float>(100 * rank + 10 * message + channel)));
    }
  }
  auto late = comm.post_receive({peer, rank, 7}, 5, {2}, at::kInt);  // sent at the very end
  for (const int channel : {1, 0}) {
    std::vector<std::unique_ptr<engine::PendingReceive>> receives;
    for (int message = 0; message < 3; ++message) {
      receives.push_back(comm.post_receive({peer, rank, channel},
                                           static_cast<std::uint64_t>(10 * message + channel),
                                           {size},
                                           at::kFloat));
    }
    for (const int message : {2, 0, 1}) {
      const at::Tensor tensor = receives[static_cast<std::size_t>(message)]->wait();
      const auto value = static_cast<float>(100 * peer + 10 * message + channel);
      expect(at::equal(tensor, at::full({size}, value)), concat("message ", message));
    }
  }
  comm.send({rank, peer, 7}, 5, at::full({2}, rank, at::kInt));
  expect(late->wait()[1].item<int>() == peer, "the late channel");
  comm.send({rank, peer, 0}, 1, at::empty({0, 4}));
  const at::Tensor empty = comm.post_receive({peer, rank, 0}, 1, {0, 4}, at::kFloat)->wait();
  expect(empty.sizes() == at::IntArrayRef({0, 4}), "an empty tensor");
}

void thousands_of_messages(C10dComm& comm) {
  for (int round = 0; round < 60; ++round) {
    const int burst = 1 + round % 4;
    std::vector<std::unique_ptr<engine::PendingReceive>> receives;
    std::vector<float> expected;
    for (int peer = 0; peer < comm.size(); ++peer) {
      for (int i = 0; peer != comm.rank() && i < burst; ++i) {
        const auto tag = static_cast<std::uint64_t>(100 * round + i);
        comm.send({comm.rank(), peer, i % 2},
                  tag,
                  at::full({i + 1}, static_cast<float>(100 * comm.rank() + i)));
        receives.push_back(comm.post_receive({peer, comm.rank(), i % 2}, tag, {i + 1}, at::kFloat));
        expected.push_back(static_cast<float>(100 * peer + i));
      }
    }
    for (std::size_t k = receives.size(); k-- > 0;) {
      expect(receives[k]->wait()[0].item<float>() == expected[k], "a message");
    }
    at::Tensor one = at::ones({1});
    comm.all_reduce_sum(one, all_ranks(comm));
    expect(one.item<float>() == static_cast<float>(comm.size()), "a sum");
  }
}

// Whose thread frees a message decides in whose books it stands: never the sender's, where it was
// given away, and the receiver's without having been noted there.
void freed_elsewhere(C10dComm& comm) {
  constexpr int kMessages = 2000;
  constexpr std::int64_t kBytes = 64 * 4;
  const int peer = comm.rank() ^ 1;
  const engine::LiveBytes live;
  for (int i = 0; i < kMessages; ++i) {
    const auto tag = static_cast<std::uint64_t>(i);
    at::Tensor message = at::empty({kBytes / 4});
    comm.send({comm.rank(), peer, 0}, tag, std::move(message));
    comm.post_receive({peer, comm.rank(), 0}, tag, {kBytes / 4}, at::kFloat)->wait();
    expect(live.bytes() == 0, concat("message ", i, ": ", live.bytes(), " bytes in the books"));
  }
  for (const std::int64_t size : {4, 400, 40'000}) {
    at::Tensor tensor = at::ones({size});
    comm.all_reduce_sum(tensor, all_ranks(comm));
    comm.broadcast(tensor, 1, all_ranks(comm));
    const at::Tensor slice = comm.reduce_scatter_sum(tensor, all_ranks(comm));
    const at::Tensor joined = comm.all_gather(tensor, all_ranks(comm));
    const auto held = static_cast<std::int64_t>(tensor.nbytes() + slice.nbytes() + joined.nbytes());
    expect(live.bytes() == held, concat(live.bytes(), " bytes in the books, held are ", held));
  }
}

// A refused message may still be on its way; those behind it arrive all the same.
void mismatches(C10dComm& comm) {
  if (comm.rank() == 0) {
    comm.send({0, 1, 3}, 11, at::ones({2, 3}));
    comm.send({0, 1, 3}, 12, at::ones({2, 3}));
    comm.send({0, 1, 4}, 13, at::ones({2, 3}));
    comm.send({0, 1, 5}, 14, at::ones({1, 3}));
    comm.send({0, 1, 5}, 15, at::ones({300, 3}));
  } else if (comm.rank() == 1) {
    auto wrong_tag = comm.post_receive({0, 1, 3}, 99, {2, 3}, at::kFloat);
    auto wrong_shape = comm.post_receive({0, 1, 3}, 12, {3, 2}, at::kFloat);
    auto wrong_type = comm.post_receive({0, 1, 4}, 13, {2, 3}, at::kInt);
    expect_words(error_of<InternalError>([&] { wrong_tag->wait(); }),
                 {"message 0 of channel 3 from rank 0 to rank 1", "tag 11", "expects 99"});
    expect_words(error_of<InternalError>([&] { wrong_shape->wait(); }), {"[2, 3]", "[3, 2]"});
    expect_words(error_of<InternalError>([&] { wrong_type->wait(); }), {"Float", "Int"});
    auto too_short = comm.post_receive({0, 1, 5}, 14, {2, 3}, at::kFloat);
    auto too_long = comm.post_receive({0, 1, 5}, 15, {2, 3}, at::kFloat);
    expect_words(error_of<InternalError>([&] { too_short->wait(); }), {"[1, 3]", "[2, 3]"});
    expect_words(error_of<InternalError>([&] { too_long->wait(); }), {"[300, 3]", "[2, 3]"});
  }
  comm.barrier(all_ranks(comm));
  // Collectives whose members bring different sizes: each member refuses what comes to it, names
  // both sizes and lives. Larger than a receive has room for, and smaller; at every size of tensor.
  const std::vector<int> pair = comm.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
  const std::int64_t more = comm.rank() % 2;
  for (const std::int64_t size : {6, 4'000, 300'000}) {
    const auto refused = [&](const std::string& own, const std::function<void()>& call) {
      expect_words(error_of<InternalError>(call),
                   {concat("collective: rank ", comm.rank() ^ 1, " has"), own});
    };
    const auto brings = [&](std::int64_t length) { return concat("[", length, "]"); };
    at::Tensor own = at::ones({size + 2 * more});
    refused(brings(size <= 4'096 ? own.numel() : own.numel() / 2),
            [&] { comm.all_reduce_sum(own, pair); });
    refused(brings(own.numel() / 2), [&] { comm.reduce_scatter_sum(own, pair); });
    refused(brings(own.numel()), [&] { comm.all_gather(own, pair); });
    if (more == 1) {
      refused(brings(own.numel()), [&] { comm.broadcast(own, pair.front(), pair); });
    } else {
      comm.broadcast(own, pair.front(), pair);
    }
  }
  comm.barrier(all_ranks(comm));
  // Nobody takes the refused messages, and their sender would wait for that at its end: once all
  // others are through, it gives up.
  if (comm.rank() != 0) {
    comm.send({comm.rank(), 0, 6}, 16, at::ones({1}));
    return;
  }
  for (int rank = 1; rank < comm.size(); ++rank) {
    comm.post_receive({rank, 0, 6}, 16, {1}, at::kFloat)->wait();
  }
  comm.abort("the refused messages end here");
}

// Rank 1 waits for what never comes; the others, in other calls, learn what it waited for.
void deadline(const std::string& group) {
  C10dComm comm(group, milliseconds(1'500));
  comm.barrier(all_ranks(comm));
  const Clock::time_point start = Clock::now();
  if (comm.rank() == 1) {
    const std::string message = error_of<SystemFailure>([&] {
      comm.post_receive({0, 1, 2}, 1, {1}, at::kFloat)->wait();
    });
    expect_words(message, {"rank 1", "message number 0", "channel 2 from rank 0", "1.5"});
    comm.abort(message);
    return;
  }
  const std::string message = error_of<CommAborted>([&] {
    while (true) {  // each wait is shorter than the deadline
      std::this_thread::sleep_for(milliseconds(100));
      comm.barrier({comm.rank()});
      comm.send({comm.rank(), (comm.rank() + 1) % 4, 0}, 1, at::ones({1}));
    }
  });
  expect_words(message, {"another rank failed", "rank 1", "channel 2 from rank 0"});
  expect(Clock::now() - start < milliseconds(4'000), "learnt too late");
}

// Rank 2 runs into its deadline in a barrier with rank 0, which does `meanwhile`, and tells
// `words`.
void expect_of_rank_2(C10dComm& comm,
                      const std::function<void()>& meanwhile,
                      const std::vector<std::string>& words) {
  const auto wait = [&] {
    if (comm.rank() == 2) {
      comm.barrier({0, 2});
    } else if (comm.rank() == 0) {
      meanwhile();
    }
    while (true) {  // until another's reason comes
      std::this_thread::sleep_for(milliseconds(100));
      comm.send({comm.rank(), comm.rank() ^ 2, 0}, 1, at::ones({1}));
    }
  };
  std::string message;
  if (comm.rank() == 2) {
    message = error_of<SystemFailure>(wait);
    comm.abort(message);
  } else {
    message = error_of<CommAborted>(wait);
  }
  expect_words(message, words);
}

// Rank 2 waits for rank 0, which waits for rank 1, which does not wait: the first to reach its
// deadline tells at whom that ends.
void chain_of_waits(const std::string& group) {
  C10dComm comm(group, milliseconds(4'000));
  comm.barrier(all_ranks(comm));
  const auto wait_for_rank_1 = [&] {
    std::this_thread::sleep_for(milliseconds(500));
    comm.post_receive({1, 0, 2}, 1, {1}, at::kFloat)->wait();
  };
  expect_of_rank_2(comm,
                   wait_for_rank_1,
                   {"rank 2: no barrier with rank 0",
                    "rank 0 waits for rank 1 (message number 0 on channel 2",
                    "rank 1 is not known to wait"});
}

// Rank 0 has waited for so long that others were told, and waits no longer.
void ended_wait(const std::string& group) {
  C10dComm comm(group, milliseconds(2'000));
  comm.barrier(all_ranks(comm));
  if (comm.rank() == 1) {
    std::this_thread::sleep_for(milliseconds(1'300));
    comm.send({1, 0, 2}, 1, at::ones({1}));
  } else if (comm.rank() == 0) {
    comm.post_receive({1, 0, 2}, 1, {1}, at::kFloat)->wait();
  }
  comm.barrier(all_ranks(comm));
  expect_of_rank_2(
      comm, [] {}, {"rank 2: no barrier with rank 0", "; rank 0 is not known to wait"});
}

void abort_stops_all(C10dComm& comm) {
  comm.barrier(all_ranks(comm));
  const Clock::time_point start = Clock::now();
  if (comm.rank() == 2) {
    comm.abort("rank 2 is on fire");
    comm.abort("a later reason");
    return;
  }
  expect_words(error_of<CommAborted>([&] { comm.barrier(all_ranks(comm)); }), {"on fire"});
  expect_words(error_of<CommAborted>([&] {
                 comm.send({comm.rank(), 2, 0}, 1, at::ones({1}));
               }),
               {"on fire"});
  expect(Clock::now() - start < milliseconds(2'000), "stopped too late");
}

// Rank 3 exits without an abort.
void death(C10dComm& comm) {
  comm.barrier(all_ranks(comm));
  if (comm.rank() == 3) {
    ::_exit(0);
  }
  const Clock::time_point start = Clock::now();
  const std::string message = error_of<SystemFailure>([&] {
    try {
      comm.barrier(all_ranks(comm));
    } catch (const std::exception& error) {
      comm.abort(error.what());
      throw;
    }
  });
  expect_words(message, {"lost rank 3", "barrier"});
  expect(Clock::now() - start < milliseconds(5'000), "noticed too late");
}

void run(const std::string& check,
         const std::string& group,
         const std::vector<std::string>& more_groups) {
  at::set_num_threads(1);
  const std::map<std::string, void (*)(const std::string&)> of_deadlines = {
      {"deadline", deadline}, {"chain_of_waits", chain_of_waits}, {"ended_wait", ended_wait}};
  if (of_deadlines.contains(check)) {
    of_deadlines.at(check)(group);
    return;
  }
  if (check == "lost_transfer") {
    check_lost_transfer(group, more_groups);
    return;
  }
  C10dComm comm(group, kDeadline);
  const std::map<std::string, std::function<void(C10dComm&)>> checks = {
      {"collectives", collectives},
      {"channels", channels},
      {"thousands_of_messages", thousands_of_messages},
      {"freed_elsewhere", freed_elsewhere},
      {"mismatches", mismatches},
      {"abort_stops_all", abort_stops_all},
      {"death", death},
      {"device_messages", check_device_messages},
      {"device_runs", check_device_runs},
      {"device_links", [&](C10dComm& each) { check_device_links(each, more_groups); }},
      {"shared_lanes", check_lanes_of_several_stages},
      {"covering_gradients", check_covering_steps}};
  expect(checks.contains(check), "no check " + check);
  try {
    checks.at(check)(comm);
  } catch (const std::exception& error) {
    comm.abort(concat("check ", check, " failed: ", error.what()));
    throw;
  }
}

}  // namespace
}  // namespace entrain

PYBIND11_MODULE(entrain_process_checks, module) {
  module.def("run", &entrain::run, pybind11::call_guard<pybind11::gil_scoped_release>());
}
