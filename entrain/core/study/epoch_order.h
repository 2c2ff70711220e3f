// The balanced order of a whole epoch for trainers that read it from files.
//
// Read first: EpochOrder, balanced_epoch().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/study/audit.h"
#include "entrain/core/study/study.h"

namespace entrain {

struct EpochOrder {
  int ranks = 1;
  int microbatches = 1;
  // [step][microbatch · ranks + rank] rows of the study.
  std::vector<std::vector<std::vector<int>>> steps;
};

// Every sample once in the order of epoch_rows(), the last ones that fill no step left out; within
// a step as balance() assigns them. Limits as in audit(). Shows progress on standard error.
//
// Throws  InvalidInput where the study's samples fill no step, or its global batch is no multiple
// of
//         ranks × microbatches; NothingFits naming samples that exceed a limit
//         alone, or the step where limits cannot be kept.
EpochOrder balanced_epoch(const Study& study, const AuditRequest& request, int epoch);

// A line for each microbatch: {"step": 0, "microbatch": 0, "rank": 0, "samples": ["id", …]}.
std::string order_lines(const EpochOrder& order, const std::vector<std::string>& ids);

// numpy's file of int64 [sample, 4]: step, microbatch, rank, row of the index.
std::string order_npy(const EpochOrder& order);

// XTuner's preset packs (docs/design/custom_pack_sampler.md there): a pack is a microbatch, and the
// order is such that rank r of n, which takes every n-th pack, gets its own. Needs tokens of every
// sample as the trainer's tokenizer counts them.
struct PresetPacks {
  std::string boundaries;     // boundaries.npy, int64 [pack + 1]
  std::string samples;        // samples.npy, int64 [slice, 6]
  std::string paths;          // paths.json
  std::string sampler_order;  // sampler_order.npy, int64 [pack]
};
PresetPacks preset_packs(const EpochOrder& order,
                         const std::vector<std::int64_t>& tokens,
                         const std::string& path);

}  // namespace entrain
