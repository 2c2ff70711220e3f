#include "entrain/engine/data/read_ahead.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <set>
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

#include "entrain/engine/data/sample_reader.h"

namespace entrain::engine {
namespace {

enum class Status : std::uint8_t { kWaiting, kDecoding, kReady, kTaken };

// One thing to decode: a segment, or a sample's text.
struct Piece {
  SegmentNeed need;      // text: module and segment are -1
  int index_sample = 0;  // into Index::samples
  bool wanted = false;   // a consumer waits for it
  Status status = Status::kWaiting;
  std::int64_t bytes = 0;  // of its tensor; counted from the start of decoding until taken
  bool checked = false;    // decoded once, whether kept or not
  std::exception_ptr error;
  SegmentData segment;
  SampleTokens text;

  [[nodiscard]] bool is_text() const { return need.segment < 0; }
};

// Shared by the reader, its threads and every StepData.
struct Shared {
  Mutex mutex;                            // of all StepPieces, too
  std::condition_variable work_changed;   // wakes the thread
  std::condition_variable piece_changed;  // wakes consumers
  bool stopped ENTRAIN_GUARDED_BY(mutex) = false;
  std::int64_t held_bytes ENTRAIN_GUARDED_BY(mutex) = 0;   // patches being decoded or ready
  std::int64_t ready_bytes ENTRAIN_GUARDED_BY(mutex) = 0;  // patches ready
};

// Pieces of one step, in the order of need; texts first, they are small and all are kept.
struct StepPieces {
  std::vector<Piece> pieces;
  std::map<std::tuple<int, int, int>, std::size_t> positions;  // (module, sample, segment)
  std::size_t next = 0;                                        // first piece not yet begun
  std::size_t next_check = 0;                                  // first piece not yet checked
  DataTimes times;
  std::deque<std::size_t> wanted;  // waited for and not yet begun, in order of request
  bool dropped = false;            // the StepData was destroyed
};

class QueuedStep : public StepData {
 public:
  QueuedStep(std::shared_ptr<Shared> shared, std::shared_ptr<StepPieces> step)
      : shared_(std::move(shared)), step_(std::move(step)) {}

  ~QueuedStep() override {
    const MutexLock lock(shared_->mutex);
    step_->dropped = true;
    step_->next = step_->pieces.size();
    step_->next_check = step_->pieces.size();
    step_->wanted.clear();
    for (Piece& piece : step_->pieces) {
      if (piece.status == Status::kReady) {
        shared_->held_bytes -= piece.bytes;
        shared_->ready_bytes -= piece.bytes;
      }
    }
    shared_->work_changed.notify_all();
  }
  QueuedStep(const QueuedStep&) = delete;
  QueuedStep& operator=(const QueuedStep&) = delete;

  SegmentData segment(int module, int sample, int segment) override {
    MutexLock lock(shared_->mutex);
    Piece& piece = wait_for(lock, module, sample, segment);
    piece.status = Status::kTaken;
    shared_->held_bytes -= piece.bytes;
    shared_->ready_bytes -= piece.bytes;
    shared_->work_changed.notify_all();
    return std::exchange(piece.segment, {});
  }

  const TokenizedSample& text(int sample) override {
    MutexLock lock(shared_->mutex);
    return wait_for(lock, -1, sample, -1).text.tokens;
  }

  std::optional<std::string> problem() override {
    MutexLock lock(shared_->mutex);
    for (const Piece& piece : step_->pieces) {
      shared_->piece_changed.wait(lock.native(), [&]() ENTRAIN_REQUIRES(shared_->mutex) {
        return piece.checked || shared_->stopped;
      });
      if (!piece.checked) {
        throw SystemFailure("reading of data was stopped while a step was checked");
      }
      try {
        if (piece.error) {
          std::rethrow_exception(piece.error);
        }
      } catch (const InvalidInput& error) {
        return error.what();
      } catch (const SystemFailure& error) {
        return error.what();
      }
    }
    return std::nullopt;
  }

  DataTimes times() override {
    const MutexLock lock(shared_->mutex);
    return step_->times;
  }

  std::string kind(int sample) override {
    MutexLock lock(shared_->mutex);
    return wait_for(lock, -1, sample, -1).text.kind;
  }

 private:
  // Returns a piece that is ready, or throws its error.
  Piece& wait_for(MutexLock& lock, int module, int sample, int segment)
      ENTRAIN_REQUIRES(shared_->mutex) {
    const auto found = step_->positions.find({module, sample, segment});
    const auto name = [&] {
      return segment < 0 ? concat("text of sample ", sample)
                         : concat("segment ", segment, " of sample ", sample, ", module ", module);
    };
    ENTRAIN_INVARIANT(found != step_->positions.end(),
                      concat(name(), " is not among the needs of this step"));
    Piece& piece = step_->pieces[found->second];
    ENTRAIN_INVARIANT(piece.status != Status::kTaken, concat(name(), " was taken before"));
    if (!piece.wanted) {
      piece.wanted = true;
      if (piece.status == Status::kWaiting) {
        step_->wanted.push_back(found->second);
        shared_->work_changed.notify_all();
      }
    }
    const auto asked = std::chrono::steady_clock::now();
    shared_->piece_changed.wait(lock.native(), [&]() ENTRAIN_REQUIRES(shared_->mutex) {
      return piece.status == Status::kReady || shared_->stopped;
    });
    step_->times.waited += std::chrono::steady_clock::now() - asked;
    if (piece.status != Status::kReady) {
      throw SystemFailure(concat("reading of data was stopped while ", name(), " was awaited"));
    }
    if (piece.error) {
      std::rethrow_exception(piece.error);
    }
    return piece;
  }

  std::shared_ptr<Shared> shared_;
  std::shared_ptr<StepPieces> step_;
};

std::shared_ptr<StepPieces> pieces_of(const StepNeeds& needs,
                                      const Index& index,
                                      const ModelSpec& model) {
  auto step = std::make_shared<StepPieces>();
  std::map<int, SampleWork> works;  // by index sample
  const auto add = [&](SegmentNeed need) {
    ENTRAIN_INVARIANT(
        need.sample >= 0 && need.sample < std::ssize(needs.batch),
        concat("a need for sample ", need.sample, " of a global batch of ", needs.batch.size()));
    Piece& piece = step->pieces.emplace_back();
    piece.need = need;
    piece.index_sample = needs.batch[static_cast<std::size_t>(need.sample)];
    const bool fresh =
        step->positions
            .emplace(std::tuple(need.module, need.sample, need.segment), step->pieces.size() - 1)
            .second;
    ENTRAIN_INVARIANT(fresh, concat("sample ", need.sample, " is needed twice"));
    return &piece;
  };
  for (const int sample : needs.texts) {
    add({-1, sample, -1});
  }
  for (const SegmentNeed& need : needs.segments) {
    Piece* piece = add(need);
    const auto [work, fresh] = works.try_emplace(piece->index_sample);
    if (fresh) {
      work->second =
          sample_work(model, index.samples.at(static_cast<std::size_t>(piece->index_sample)));
    }
    const EncoderSpec& encoder = model.encoders.at(static_cast<std::size_t>(need.module));
    const std::int64_t tokens = work->second.segments[static_cast<std::size_t>(need.module)]
                                    .at(static_cast<std::size_t>(need.segment))
                                    .tokens;
    const std::int64_t values_per_token = encoder.modality == Modality::kVision
                                              ? patch_values(encoder)
                                              : std::int64_t{2} * encoder.mel_bands;
    piece->bytes = tokens * values_per_token * static_cast<std::int64_t>(sizeof(float));
  }
  return step;
}

}  // namespace

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
  }

  const Index& index;
  const ModelSpec& model;
  ReadAheadOptions options;
  std::deque<Decoder> decoders;
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  // With pieces not yet begun.
  std::deque<std::shared_ptr<StepPieces>> steps ENTRAIN_GUARDED_BY(shared->mutex);

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
      while (step->next_check < step->pieces.size() && step->pieces[step->next_check].checked) {
        ++step->next_check;
      }
      for (std::size_t i = step->next_check; i < step->pieces.size(); ++i) {
        Piece& piece = step->pieces[i];
        if (!piece.checked && piece.status == Status::kWaiting && !is_left_to_another(piece, own)) {
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
        if (piece.status == Status::kWaiting) {
          owner = step;
          return &piece;
        }
      }
    }
    for (auto step = steps.begin(); step != steps.end();) {
      StepPieces& pieces = **step;
      while (pieces.next < pieces.pieces.size() &&
             pieces.pieces[pieces.next].status != Status::kWaiting) {
        ++pieces.next;
      }
      for (std::size_t i = pieces.next; i < pieces.pieces.size(); ++i) {
        Piece& piece = pieces.pieces[i];
        if (piece.status == Status::kWaiting && !is_left_to_another(piece, own)) {
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
              return piece.status == Status::kReady || piece.status == Status::kTaken;
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
      piece->status = Status::kDecoding;
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
        piece->status = Status::kWaiting;
        const auto place = static_cast<std::size_t>(piece - owner->pieces.data());
        owner->next = owner->dropped ? owner->next : std::min(owner->next, place);
        shared->piece_changed.notify_all();
        continue;
      }
      if (!keep) {
        shared->held_bytes += piece->bytes;  // a consumer waits for it, or it is an error
      }
      piece->status = Status::kReady;
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
  std::shared_ptr<StepPieces> step = pieces_of(needs, state_->index, state_->model);
  auto data = std::make_shared<QueuedStep>(state_->shared, step);
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

StepNeeds needs_of(
    const Program& program, int replica, int lane, std::vector<int> batch, bool text_positions) {
  StepNeeds needs;
  needs.batch = std::move(batch);
  const ReplicaProgram& part = program.replicas.at(static_cast<std::size_t>(replica));
  const int llm = program.llm_module();
  const int last_llm_stage = program.num_stages.at(static_cast<std::size_t>(llm)) - 1;
  std::set<int> seen;  // samples of texts
  for (const Operation& operation : part.lanes.at(static_cast<std::size_t>(lane))) {
    const UnitKey& unit = operation.unit;
    if (operation.kind != OperationKind::kForward) {
      continue;
    }
    if (unit.module != llm && unit.stage == 0) {
      for (const WorkItem& item : group_of(part, unit).items) {
        needs.segments.push_back({unit.module, item.sample, item.segment});
      }
    }
    if (unit.module == llm && (text_positions || unit.stage == 0 || unit.stage == last_llm_stage)) {
      for (const WorkItem& item : group_of(part, unit).items) {
        if (seen.insert(item.sample).second) {
          needs.texts.push_back(item.sample);
        }
      }
    }
  }
  return needs;
}

}  // namespace entrain::engine
