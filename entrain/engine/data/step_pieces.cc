#include "entrain/engine/data/step_pieces.h"

#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

class QueuedPieces : public StepData {
 public:
  // `is_first`: of the step's readers.
  QueuedPieces(std::shared_ptr<SharedPieces> shared,
               std::shared_ptr<StepPieces> step,
               bool is_first)
      : shared_(std::move(shared)),
        step_(std::move(step)),
        is_first_(is_first),
        taken_(step_->pieces.size()) {}

  ~QueuedPieces() override {
    const MutexLock lock(shared_->mutex);
    step_->dropped = ++step_->destroyed == step_->made;
    if (step_->dropped) {
      step_->next = step_->pieces.size();
      step_->next_check = step_->pieces.size();
      step_->wanted.clear();
    }
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      Piece& piece = step_->pieces[i];
      if (step_->dropped) {
        shared_->drop(piece);
      } else if (!taken_[i]) {
        shared_->release(piece);
      }
    }
    shared_->work_changed.notify_all();
  }
  QueuedPieces(const QueuedPieces&) = delete;
  QueuedPieces& operator=(const QueuedPieces&) = delete;

  SegmentData segment(int module, int sample, int segment) override {
    MutexLock lock(shared_->mutex);
    const std::size_t place = wait_for(lock, module, sample, segment);
    Piece& piece = step_->pieces[place];
    taken_[place] = true;
    SegmentData data = piece.segment;
    shared_->release(piece);
    shared_->work_changed.notify_all();
    return data;
  }

  const TokenizedSample& text(int sample) override {
    MutexLock lock(shared_->mutex);
    return step_->pieces[wait_for(lock, -1, sample, -1)].text.tokens;
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
    DataTimes times = step_->times;
    if (!is_first_) {  // what was done for all of them counts once
      times.decoding = {};
      times.images = times.clips = times.patches = 0;
    }
    times.waited = waited_;
    return times;
  }

  std::string kind(int sample) override {
    MutexLock lock(shared_->mutex);
    return step_->pieces[wait_for(lock, -1, sample, -1)].text.kind;
  }

 private:
  // The place of a piece that is ready; throws its error.
  std::size_t wait_for(MutexLock& lock, int module, int sample, int segment)
      ENTRAIN_REQUIRES(shared_->mutex) {
    const auto found = step_->positions.find({module, sample, segment});
    const auto name = [&] {
      return segment < 0 ? concat("text of sample ", sample)
                         : concat("segment ", segment, " of sample ", sample, ", module ", module);
    };
    ENTRAIN_INVARIANT(found != step_->positions.end(),
                      concat(name(), " is not among the needs of this step"));
    Piece& piece = step_->pieces[found->second];
    ENTRAIN_INVARIANT(!taken_[found->second], concat(name(), " was taken before"));
    const bool is_first = !std::exchange(piece.wanted, true);
    const auto is_here = [&]() ENTRAIN_REQUIRES(shared_->mutex) {
      return piece.status == PieceStatus::kReady || shared_->stopped;
    };
    const auto asked = std::chrono::steady_clock::now();
    if (is_first && (step_->here ||
                     !shared_->piece_changed.wait_for(lock.native(), shared_->patience, is_here))) {
      shared_->decode_here(*step_, found->second);
    }
    shared_->piece_changed.wait(lock.native(), is_here);
    waited_ += std::chrono::steady_clock::now() - asked;
    if (piece.status != PieceStatus::kReady) {
      throw SystemFailure(concat("reading of data was stopped while ", name(), " was awaited"));
    }
    if (piece.error) {
      std::rethrow_exception(piece.error);
    }
    return found->second;
  }

  std::shared_ptr<SharedPieces> shared_;
  std::shared_ptr<StepPieces> step_;
  bool is_first_;
  std::vector<bool> taken_ ENTRAIN_GUARDED_BY(shared_->mutex);  // [piece], by this reader
  std::chrono::nanoseconds waited_ ENTRAIN_GUARDED_BY(shared_->mutex){0};
};

}  // namespace

void SharedPieces::release(Piece& piece) {
  if (--piece.takers == 0) {
    drop(piece);
  }
}

void SharedPieces::drop(Piece& piece) {
  if (piece.status != PieceStatus::kReady) {
    return;
  }
  piece.status = PieceStatus::kTaken;
  piece.segment = {};
  held_bytes -= piece.bytes;
  ready_bytes -= piece.bytes;
  release_message(std::exchange(piece.fed_bytes, 0));
}

void SharedPieces::decode_here(StepPieces& step, std::size_t piece) {
  if (step.pieces[piece].status == PieceStatus::kWaiting) {
    step.wanted.push_back(piece);
    work_changed.notify_all();
  }
}

void SharedPieces::release_message(std::int64_t bytes) {
  fed_held -= bytes;
  fed_released += bytes;
}

std::shared_ptr<StepPieces> pieces_of(const StepNeeds& needs,
                                      const Index& index,
                                      const ModelSpec& model) {
  auto step = std::make_shared<StepPieces>();
  step->step = needs.step;
  step->digest = needs.digest;
  step->readers = needs.readers;
  const auto add = [&](SegmentNeed need) {
    ENTRAIN_INVARIANT(
        need.sample >= 0 && need.sample < std::ssize(needs.batch),
        concat("a need for sample ", need.sample, " of a global batch of ", needs.batch.size()));
    Piece& piece = step->pieces.emplace_back();
    piece.takers = needs.readers;
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
  const std::vector<std::int64_t> bytes = segment_bytes(needs, index, model);
  for (std::size_t i = 0; i < needs.segments.size(); ++i) {
    add(needs.segments[i])->bytes = bytes[i];
  }
  step->times.pieces = std::ssize(step->pieces);
  return step;
}

std::shared_ptr<StepData> data_of(std::shared_ptr<SharedPieces> shared,
                                  std::shared_ptr<StepPieces> step) {
  bool is_first = false;
  {
    const MutexLock lock(shared->mutex);
    if (step->dropped || step->made == step->readers) {
      return nullptr;
    }
    is_first = step->made++ == 0;
  }
  return std::make_shared<QueuedPieces>(std::move(shared), std::move(step), is_first);
}

}  // namespace entrain::engine
