#include "entrain/engine/data/fed_pieces.h"

#include <algorithm>
#include <iterator>

#include "entrain/core/base/text.h"

namespace entrain::engine {

void FedPieces::add(const std::shared_ptr<StepPieces>& step) {
  const MutexLock lock(shared_->mutex);
  forget_finished();
  steps_.push_back(step);
  next_step_ = step->step + 1;
  step->here = !live_;
  const auto last = early_.upper_bound(step->step);
  for (auto early = early_.begin(); early != last; ++early) {
    if (early->first == step->step) {
      put(*step, std::move(early->second.piece), early->second.bytes);
    } else {
      shared_->release_message(early->second.bytes);  // of a step that was left out
    }
  }
  early_.erase(early_.begin(), last);
  if (const auto known = early_steps_.find(step->step); known != early_steps_.end()) {
    put(*step, known->second);
  }
  early_steps_.erase(early_steps_.begin(), early_steps_.upper_bound(step->step));
}

std::optional<FeedPosition> FedPieces::position() {
  const MutexLock lock(shared_->mutex);
  forget_finished();
  if (next_step_ < 0) {
    return std::nullopt;
  }
  for (const auto& step : steps_) {
    const auto waiting =
        std::find_if(step->pieces.begin(), step->pieces.end(), [](const Piece& piece) {
          return piece.status == PieceStatus::kWaiting;
        });
    if (waiting != step->pieces.end()) {
      return FeedPosition{step->step, waiting - step->pieces.begin()};
    }
  }
  return FeedPosition{next_step_, 0};
}

void FedPieces::live(bool is_live) {
  const MutexLock lock(shared_->mutex);
  live_ = is_live;
  for (const auto& step : steps_) {
    step->here = !is_live;
    for (std::size_t i = 0; !is_live && i < step->pieces.size(); ++i) {
      if (step->pieces[i].wanted) {
        shared_->decode_here(*step, i);
      }
    }
  }
  if (!is_live) {
    for (const auto& [step, early] : early_) {
      shared_->release_message(early.bytes);
    }
    early_.clear();
    early_steps_.clear();
    objection_.reset();
  }
  shared_->work_changed.notify_all();
}

void FedPieces::take(FedPiece piece) {
  if (const auto* pixels = std::get_if<PackedPixels>(&piece.content); pixels != nullptr) {
    piece.content = unpacked(*pixels, model_);
  }
  const std::int64_t bytes = credit_of(piece);
  const MutexLock lock(shared_->mutex);
  shared_->fed_held += bytes;
  const std::int64_t number = piece.position.step;
  if (StepPieces* step = find(number); step != nullptr) {
    put(*step, std::move(piece), bytes);
  } else if (number >= next_step_) {
    early_.emplace(number, Early{std::move(piece), bytes});
  } else {
    shared_->release_message(bytes);  // of a step that is over
  }
}

void FedPieces::take(const FedStep& fed) {
  const MutexLock lock(shared_->mutex);
  if (StepPieces* step = find(fed.step); step != nullptr) {
    put(*step, fed);
  } else if (fed.step >= next_step_) {
    early_steps_.insert_or_assign(fed.step, fed);
  }
}

std::int64_t FedPieces::held() {
  const MutexLock lock(shared_->mutex);
  return shared_->fed_held;
}

std::int64_t FedPieces::released() {
  const MutexLock lock(shared_->mutex);
  return shared_->fed_released;
}

std::optional<std::string> FedPieces::objection() {
  const MutexLock lock(shared_->mutex);
  return std::exchange(objection_, std::nullopt);
}

StepPieces* FedPieces::find(std::int64_t step) {
  const auto found = std::find_if(
      steps_.begin(), steps_.end(), [&](const auto& queued) { return queued->step == step; });
  return found == steps_.end() || (*found)->dropped ? nullptr : found->get();
}

void FedPieces::forget_finished() {
  std::erase_if(steps_, [](const auto& step) { return step->dropped; });
}

bool FedPieces::is_same(const StepPieces& step, const std::string& digest) {
  if (digest == step.digest) {
    return true;
  }
  objection_ = concat("it has step ",
                      step.step,
                      " as ",
                      digest,
                      ", this run as ",
                      step.digest,
                      "; are versions and the machines' arithmetic equal?");
  return false;
}

void FedPieces::put(StepPieces& step, FedPiece&& fed, std::int64_t bytes) {
  const std::int64_t number = fed.position.piece;
  if (!is_same(step, fed.digest) || number >= std::ssize(step.pieces)) {
    shared_->release_message(bytes);
    return;
  }
  Piece& piece = step.pieces[static_cast<std::size_t>(number)];
  auto* segment = std::get_if<SegmentData>(&fed.content);
  auto* text = std::get_if<SampleTokens>(&fed.content);
  const bool fits =
      piece.is_text()
          ? text != nullptr
          : segment != nullptr && static_cast<std::int64_t>(segment->input.nbytes()) == piece.bytes;
  if (piece.status != PieceStatus::kWaiting || !fits) {
    shared_->release_message(bytes);
    shared_->decode_here(step, static_cast<std::size_t>(number));
    return;
  }
  if (piece.is_text()) {
    piece.text = std::move(*text);
    shared_->release_message(bytes);
  } else {
    piece.segment = std::move(*segment);
    piece.fed_bytes = bytes;
  }
  piece.status = PieceStatus::kReady;
  piece.checked = true;
  ++step.times.fed;
  shared_->held_bytes += piece.bytes;
  shared_->ready_bytes += piece.bytes;
  shared_->piece_changed.notify_all();
}

void FedPieces::put(StepPieces& step, const FedStep& fed) {
  if (!is_same(step, fed.digest)) {
    return;
  }
  if (fed.sound) {
    for (Piece& piece : step.pieces) {
      piece.checked = true;
    }
    shared_->piece_changed.notify_all();
  } else {
    step.here = true;
    shared_->work_changed.notify_all();
  }
}

}  // namespace entrain::engine
