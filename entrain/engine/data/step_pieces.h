// The pieces of queued steps and their states, shared by those who decode them and those who wait.
// Internal to read_ahead.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "entrain/core/base/thread_safety.h"

#include "entrain/engine/data/step_data.h"
#include "entrain/engine/data/step_needs.h"

namespace entrain::engine {

enum class PieceStatus : std::uint8_t { kWaiting, kDecoding, kReady, kTaken };

// One thing to decode: a segment, or a sample's text.
struct Piece {
  SegmentNeed need;      // text: module and segment are -1
  int index_sample = 0;  // into Index::samples
  bool wanted = false;   // a consumer waits for it
  PieceStatus status = PieceStatus::kWaiting;
  int takers = 1;              // that have not taken it yet
  std::int64_t bytes = 0;      // of its tensor; counted from the start of decoding until taken
  bool checked = false;        // decoded once, whether kept or not
  bool fed = false;            // by a feed
  std::int64_t fed_bytes = 0;  // of its message, to be released
  std::exception_ptr error;
  SegmentData segment;
  SampleTokens text;

  [[nodiscard]] bool is_text() const { return need.segment < 0; }
};

struct StepPieces;

// Shared by the reader, its threads, its feed and every StepData.
struct SharedPieces {
  Mutex mutex;                            // of all StepPieces, too
  std::condition_variable work_changed;   // wakes the threads
  std::condition_variable piece_changed;  // wakes consumers
  bool stopped ENTRAIN_GUARDED_BY(mutex) = false;
  std::int64_t held_bytes ENTRAIN_GUARDED_BY(mutex) = 0;   // patches being decoded or ready
  std::int64_t ready_bytes ENTRAIN_GUARDED_BY(mutex) = 0;  // patches ready
  // Of messages of a feed.
  std::int64_t fed_held ENTRAIN_GUARDED_BY(mutex) = 0;
  std::int64_t fed_released ENTRAIN_GUARDED_BY(mutex) = 0;

  // How long a consumer waits for a feed before its piece is decoded here as well.
  std::chrono::milliseconds patience{0};

  // Before any other work. Nothing if it has begun.
  void decode_here(StepPieces& step, std::size_t piece) ENTRAIN_REQUIRES(mutex);
  // One of its takers has taken the piece, or will not; after the last it is dropped.
  void release(Piece& piece) ENTRAIN_REQUIRES(mutex);
  // If it is ready, it is not any more.
  void drop(Piece& piece) ENTRAIN_REQUIRES(mutex);
  void release_message(std::int64_t bytes) ENTRAIN_REQUIRES(mutex);
};

// Pieces of one step, in the order of need; texts first, they are small and all are kept.
struct StepPieces {
  std::int64_t step = -1;
  std::string digest;  // of the step
  std::vector<Piece> pieces;
  std::map<std::tuple<int, int, int>, std::size_t> positions;  // (module, sample, segment)
  std::size_t next = 0;                                        // first piece not yet begun
  std::size_t next_check = 0;                                  // first piece not yet checked
  DataTimes times;
  std::deque<std::size_t> wanted;  // to be decoded here and not yet begun, in order of request
  bool here = true;                // decoded ahead here: no feed serves, or it could not
  int readers = 1;                 // StepData of it that will be made
  int made = 0;                    // of these
  int destroyed = 0;               // of those made
  bool dropped = false;            // all that were made are destroyed
};

std::shared_ptr<StepPieces> pieces_of(const StepNeeds& needs,
                                      const Index& index,
                                      const ModelSpec& model);

// A step's data for one of its readers; null if all have theirs or the step was dropped.
std::shared_ptr<StepData> data_of(std::shared_ptr<SharedPieces> shared,
                                  std::shared_ptr<StepPieces> step);

}  // namespace entrain::engine
