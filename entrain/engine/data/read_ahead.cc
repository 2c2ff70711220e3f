#include "entrain/engine/data/read_ahead.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/thread_priority.h"
#include "entrain/core/base/thread_safety.h"

#include "entrain/engine/data/fed_pieces.h"
#include "entrain/engine/data/feed_client.h"
#include "entrain/engine/data/sample_reader.h"
#include "entrain/engine/data/step_pieces.h"

namespace entrain::engine {

struct ReadAhead::State {
  // One of the threads, with what only it uses.
  struct Decoder {
    Decoder(const Index& index, const ModelSpec& model, bool blank) : reader(index, model, blank) {}
    SampleReader reader;
    int sample = -1;  // that it decodes pieces of, into Index::samples; under the mutex
    std::thread thread;
  };

  State(const Index& given_index, const ModelSpec& given_model, const ReadAheadOptions& given)
      : index(given_index), model(given_model), options(given) {
    for (int i = 0; i < options.threads; ++i) {
      decoders.emplace_back(index, model, given.blank);
    }
    if (options.feed != nullptr && !options.feed->addresses.empty()) {
      shared->patience = options.feed->deadline / 2;
      fed.emplace(shared, model, options.feed->expected);
      client.emplace(*options.feed, options.memory_bytes, *fed);
    }
  }

  const Index& index;
  const ModelSpec& model;
  ReadAheadOptions options;
  std::deque<Decoder> decoders;
  std::shared_ptr<SharedPieces> shared = std::make_shared<SharedPieces>();
  // With pieces not yet begun.
  std::deque<std::shared_ptr<StepPieces>> steps ENTRAIN_GUARDED_BY(shared->mutex);
  std::optional<FedPieces> fed;
  std::optional<FeedClient> client;
  Mutex queue_mutex;
  // [replica, lane, step] with readers to come.
  std::map<std::tuple<int, int, std::int64_t>, std::weak_ptr<StepPieces>> joined
      ENTRAIN_GUARDED_BY(queue_mutex);

  // Whether another thread is at pieces of that sample.
  [[nodiscard]] bool is_left_to_another(const Piece& piece, const Decoder& own) const
      ENTRAIN_REQUIRES(shared->mutex) {
    return std::any_of(decoders.begin(), decoders.end(), [&](const Decoder& other) {
      return &other != &own && other.sample == piece.index_sample;
    });
  }

  // The next piece to decode, nullptr when there is none or no memory for it. `keep`: whether there
  // is memory for what is decoded, or it is only to be checked.
  Piece* choose(const Decoder& own, std::shared_ptr<StepPieces>& owner, bool& keep)
      ENTRAIN_REQUIRES(shared->mutex) {
    keep = true;
    Piece* piece = choose_to_keep(own, owner);
    if (piece == nullptr && options.check_steps) {
      keep = false;
      piece = choose_to_check(own, owner);
    }
    return piece;
  }

  Piece* choose_to_check(const Decoder& own, std::shared_ptr<StepPieces>& owner)
      ENTRAIN_REQUIRES(shared->mutex) {
    for (const auto& step : steps) {
      if (!step->here) {
        continue;
      }
      while (step->next_check < step->pieces.size() && step->pieces[step->next_check].checked) {
        ++step->next_check;
      }
      for (std::size_t i = step->next_check; i < step->pieces.size(); ++i) {
        Piece& piece = step->pieces[i];
        if (!piece.checked && piece.status == PieceStatus::kWaiting &&
            !is_left_to_another(piece, own)) {
          owner = step;
          return &piece;
        }
      }
    }
    return nullptr;
  }

  Piece* choose_to_keep(const Decoder& own, std::shared_ptr<StepPieces>& owner)
      ENTRAIN_REQUIRES(shared->mutex) {
    for (const auto& step : steps) {
      while (!step->wanted.empty()) {
        Piece& piece = step->pieces[step->wanted.front()];
        step->wanted.pop_front();
        if (piece.status == PieceStatus::kWaiting) {
          owner = step;
          return &piece;
        }
      }
    }
    for (auto step = steps.begin(); step != steps.end();) {
      StepPieces& pieces = **step;
      while (pieces.next < pieces.pieces.size() &&
             pieces.pieces[pieces.next].status != PieceStatus::kWaiting) {
        ++pieces.next;
      }
      for (std::size_t i = pieces.next; pieces.here && i < pieces.pieces.size(); ++i) {
        Piece& piece = pieces.pieces[i];
        if (piece.status == PieceStatus::kWaiting && !is_left_to_another(piece, own)) {
          const bool fits =
              shared->held_bytes == 0 || shared->held_bytes + piece.bytes <= options.memory_bytes;
          owner = *step;
          return fits ? &piece : nullptr;
        }
      }
      step = is_done(pieces) ? steps.erase(step) : std::next(step);
    }
    return nullptr;
  }

  // Whether no thread has anything to do with it any more.
  static bool is_done(const StepPieces& step) {
    return step.dropped ||
           (step.next == step.pieces.size() &&
            std::all_of(step.pieces.begin(), step.pieces.end(), [](const Piece& piece) {
              return piece.status == PieceStatus::kReady || piece.status == PieceStatus::kTaken;
            }));
  }

  // Decodes without the lock: only this thread accesses a piece being decoded.
  static void decode(SampleReader& reader, Piece& piece) {
    try {
      if (piece.is_text()) {
        piece.text = reader.text(piece.index_sample);
      } else {
        piece.segment = reader.segment(piece.index_sample, piece.need.module, piece.need.segment);
      }
    } catch (const c10::Error& error) {
      piece.error = std::make_exception_ptr(SystemFailure(
          concat("decoding sample ", piece.index_sample, ": ", error.what_without_backtrace())));
    } catch (...) {
      piece.error = std::current_exception();
    }
  }

  void run(Decoder& own) {
    // Lower priority: the computing threads need the cores.
    run_in_background();
    at::set_num_threads(1);
    const at::NoGradGuard no_grad;
    MutexLock lock(shared->mutex);
    while (true) {
      std::shared_ptr<StepPieces> owner;
      Piece* piece = nullptr;
      bool keep = true;
      shared->work_changed.wait(lock.native(), [&]() ENTRAIN_REQUIRES(shared->mutex) {
        return shared->stopped || (piece = choose(own, owner, keep)) != nullptr;
      });
      if (shared->stopped) {
        return;
      }
      piece->status = PieceStatus::kDecoding;
      if (keep) {
        shared->held_bytes += piece->bytes;
      }
      own.sample = piece->index_sample;
      lock.unlock();
      const auto begun = std::chrono::steady_clock::now();
      decode(own.reader, *piece);
      const auto decoding = std::chrono::steady_clock::now() - begun;
      lock.lock();
      owner->times.decoding += decoding;
      piece->checked = true;
      own.sample = -1;
      if (decoders.size() > 1) {
        shared->work_changed.notify_all();  // its sample's other pieces are anybody's again
      }
      if (!keep && !piece->wanted && piece->error == nullptr) {
        piece->segment = {};
        piece->status = PieceStatus::kWaiting;
        const auto place = static_cast<std::size_t>(piece - owner->pieces.data());
        owner->next = owner->dropped ? owner->next : std::min(owner->next, place);
        shared->piece_changed.notify_all();
        continue;
      }
      if (!keep) {
        shared->held_bytes += piece->bytes;  // a consumer waits for it, or it is an error
      }
      piece->status = PieceStatus::kReady;
      owner->times.count(piece->segment);
      if (owner->dropped) {
        shared->held_bytes -= piece->bytes;
      } else {
        shared->ready_bytes += piece->bytes;
      }
      shared->piece_changed.notify_all();
    }
  }
};

ReadAhead::ReadAhead(const Index& index, const ModelSpec& model, const ReadAheadOptions& options) {
  if (options.memory_bytes < 1 || options.threads < 1) {
    throw InvalidInput(concat("read-ahead memory of ",
                              options.memory_bytes,
                              " bytes and ",
                              options.threads,
                              " threads; both must be at least 1"));
  }
  if (index.tokens == nullptr && !index.text_digest.empty() && index.text_digest != text_digest()) {
    throw InvalidInput(concat("index '",
                              index.path.string(),
                              "' has lengths by another tokenizer or chat layout (digest ",
                              index.text_digest,
                              ", here ",
                              text_digest(),
                              "); make it anew"));
  }
  state_ = std::make_unique<State>(index, model, options);
  for (State::Decoder& decoder : state_->decoders) {
    decoder.thread = std::thread([state = state_.get(), &decoder] { state->run(decoder); });
  }
}

ReadAhead::~ReadAhead() {
  state_->client.reset();
  {
    const MutexLock lock(state_->shared->mutex);
    state_->shared->stopped = true;
  }
  state_->shared->work_changed.notify_all();
  state_->shared->piece_changed.notify_all();
  for (State::Decoder& decoder : state_->decoders) {
    decoder.thread.join();
  }
}

std::shared_ptr<StepData> ReadAhead::queue(StepNeeds needs) {
  const MutexLock queue_lock(state_->queue_mutex);
  const std::tuple key(needs.replica, needs.lane, needs.step);
  if (const auto known = state_->joined.find(key);
      needs.readers > 1 && known != state_->joined.end()) {
    if (const auto shared = known->second.lock(); shared != nullptr) {
      if (auto data = data_of(state_->shared, shared); data != nullptr) {
        return data;
      }
    }
  }
  std::shared_ptr<StepPieces> step = pieces_of(needs, state_->index, state_->model);
  if (needs.readers > 1) {
    std::erase_if(state_->joined, [](const auto& entry) { return entry.second.expired(); });
    state_->joined[key] = step;
  }
  auto data = data_of(state_->shared, step);
  if (state_->fed.has_value()) {
    state_->fed->add(step);
  }
  {
    const MutexLock lock(state_->shared->mutex);
    state_->steps.push_back(std::move(step));
  }
  state_->shared->work_changed.notify_all();
  return data;
}

std::int64_t ReadAhead::ready_bytes() const {
  const MutexLock lock(state_->shared->mutex);
  return state_->shared->ready_bytes;
}

}  // namespace entrain::engine
