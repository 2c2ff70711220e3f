// Puts what a feed sends into the steps that wait for it. Internal to read_ahead.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "entrain/engine/data/feed_messages.h"
#include "entrain/engine/data/step_pieces.h"

namespace entrain::engine {

class FedPieces {
 public:
  // `expected`: a feed serves from the beginning. Requires  `model` outlives it.
  FedPieces(std::shared_ptr<SharedPieces> shared, const ModelSpec& model, bool expected)
      : shared_(std::move(shared)), model_(model), live_(expected) {}

  // A step that was queued, with what has come for it already. Steps come in rising order.
  void add(const std::shared_ptr<StepPieces>& step);

  // The rest is called on the client's thread.

  // The first piece that is not here yet; nothing before the first step is known.
  std::optional<FeedPosition> position();
  // A feed serves from now on, or none does: everything not here yet is to be decoded here, and
  // pieces of steps not yet known are dropped. Before the first call none does, unless one is
  // expected.
  void live(bool is_live);
  // Its credit_of() is released() when the piece is used or dropped.
  //
  // Throws  InvalidInput: nothing that a feed of this run would send.
  void take(FedPiece piece);
  void take(const FedStep& step);
  // Bytes taken and not released; and released since the beginning.
  std::int64_t held();
  std::int64_t released();
  // Why the feed must not serve any longer: the first step whose digest differs. Asked once each.
  std::optional<std::string> objection();

 private:
  struct Early {
    FedPiece piece;
    std::int64_t bytes = 0;
  };

  StepPieces* find(std::int64_t step) ENTRAIN_REQUIRES(shared_->mutex);
  void forget_finished() ENTRAIN_REQUIRES(shared_->mutex);
  // Whether the feed means the same step; objects otherwise.
  bool is_same(const StepPieces& step, const std::string& digest) ENTRAIN_REQUIRES(shared_->mutex);
  void put(StepPieces& step, FedPiece&& fed, std::int64_t bytes) ENTRAIN_REQUIRES(shared_->mutex);
  void put(StepPieces& step, const FedStep& fed) ENTRAIN_REQUIRES(shared_->mutex);

  std::shared_ptr<SharedPieces> shared_;
  const ModelSpec& model_;
  // Not dropped, in rising order.
  std::vector<std::shared_ptr<StepPieces>> steps_ ENTRAIN_GUARDED_BY(shared_->mutex);
  std::int64_t next_step_ ENTRAIN_GUARDED_BY(shared_->mutex) = -1;  // after the last added
  bool live_ ENTRAIN_GUARDED_BY(shared_->mutex);
  // Of steps that are not queued yet.
  std::multimap<std::int64_t, Early> early_ ENTRAIN_GUARDED_BY(shared_->mutex);
  std::map<std::int64_t, FedStep> early_steps_ ENTRAIN_GUARDED_BY(shared_->mutex);
  std::optional<std::string> objection_ ENTRAIN_GUARDED_BY(shared_->mutex);
};

}  // namespace entrain::engine
