// The inputs of a study: samples with costs (from an index, a model and a profile, or from a cost
// table), global batches drawn from them or given, and a plan.
//
// Read first: load_study(), draw_batch(), batch_costs().
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "entrain/core/cost/analytic.h"
#include "entrain/core/cost/cost_table.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/dataset/hold.h"
#include "entrain/core/dataset/mixture.h"
#include "entrain/core/planner/lane_split.h"
#include "entrain/core/planner/plan_search.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/cost_origin.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

struct StudyInputs {
  std::string index;  // with model and profile
  std::string model;
  // File, or "analytic:DEVICE"; empty: analytic, of the cluster's device, or of an a40.
  std::string profile;
  std::string cluster;              // its links replace the profile's; empty: none
  std::string costs;                // instead of the three above
  std::string segment_costs;        // beside `costs`
  std::vector<std::string> freeze;  // as freeze_modules() reads; of a cost table whole modules
  std::string lora;                 // as parse_lora() reads; empty: no adapters
  std::vector<std::string> ignore_modality;  // kMediaNames that the model may have no encoder for
  // >= 1; with no_repeat 0 is all samples. Not with `batch`, whose size load_study() puts here.
  int global_batch = 0;
  std::string batch;       // file as rows_of_batch_list() reads: the only step's; empty: none
  bool no_repeat = false;  // consecutive batches in the file's order, instead of drawn ones
  std::string mixture;     // file as read_mixture_file() reads: the shares of drawn samples
  int hold = 1;  // steps within which drawn oversized samples are held (Hold); 0 or 1: off
  std::uint64_t seed = 0;
  // Degrees of an analytic profile; under a cluster tensor parallelism is every divisor of
  // devices_per_node.
  AnalyticOptions analytic{{1, 2, 4, 8}, {1, 2, 4, 8}};
};

struct Study {
  StudyInputs inputs;
  ModelSpec
      model;  // under a cost table: modules and equal layers for the search of a plan, no more
  Profile profile;                     // empty under a cost table
  std::optional<ClusterSpec> cluster;  // where the inputs name one
  std::vector<SampleSizes> samples;    // likewise
  std::optional<CostTable> table;
  std::vector<char> frozen;                // [module], of a cost table
  std::vector<std::string> ids;            // [sample]
  std::optional<Mixture> mixture;          // that draws, where the inputs name one
  std::vector<std::int64_t> hold_weights;  // [sample] where oversized samples are held
  std::vector<int> given;            // rows of consecutive global batches; empty: they are drawn
  bool with_replacement = false;     // fewer than four batches of samples, drawn
  std::vector<std::string> ignored;  // what samples hold and `model` has no encoder for
  bool assumed = false;              // the inputs name no profile, so that a device was assumed
  CostOrigin origin;

  [[nodiscard]] std::vector<std::string> module_names() const;
  [[nodiscard]] Hold hold() const { return {std::max(1, inputs.hold), hold_weights}; }
  // How many batches are given, 0 where they are drawn without end.
  [[nodiscard]] std::int64_t num_given() const;
  // How many given samples fill no batch, for people; else empty.
  [[nodiscard]] std::string left_out() const;
  // The first line of every table: device and profile, "(assumed: give --profile)" where no inputs
  // name one, and what else a reader of figures must know.
  [[nodiscard]] std::string note() const;
};

// Throws  InvalidInput naming what is missing, superfluous or wrong among the inputs; as
//         check_media() does.
Study load_study(const StudyInputs& inputs);

struct StudyBatch {
  std::vector<int> rows;         // [sample of the batch] positions among the study's samples
  std::vector<std::string> ids;  // [sample of the batch] unique
  std::vector<SampleWork> work;  // [sample of the batch]
};

// These rows of the study, which must not repeat.
// Throws  InvalidInput when a sample's size is impossible.
StudyBatch batch_of(const Study& study, std::vector<int> rows);

// How often samples repeat where the study draws with replacement, for people; else empty.
std::string repetition_warning(const Study& study);

// Rows of drawn batches; quick for steps that follow each other.
class DrawnRows {
 public:
  // Requires  `study` outlives it and has no given batches.
  explicit DrawnRows(const Study& study);

  // Shapes  result: [global_batch] rows of the study.
  // Throws  InvalidInput when step < 0, or behind the end of a mixture.
  std::vector<int> rows(std::int64_t step);
  // Steps that can be drawn: without end but for a mixture whose parts are used up.
  [[nodiscard]] std::int64_t num_steps() const;

 private:
  const Study& study_;
  std::optional<GlobalBatchSampler> sampler_;  // none: drawn with replacement
};

// Throws  InvalidInput when step < 0, when the inputs give no batch of that step, or a sample's
// size
//         is impossible.
StudyBatch draw_batch(const Study& study, std::int64_t step);

// The place of `id` among the ids of all samples, or of those that `whose` (" of step 3") names.
// Throws  InvalidInput where it is not among them (with a suggestion).
int place_of_sample(const std::vector<std::string>& ids,
                    const std::string& id,
                    const std::string& whose = "");

// The first step whose global batch holds the sample.
//
// Throws  InvalidInput for an id that the study does not have (with a suggestion), and for one that
//         no given batch, or no step of the first four epochs holds: every epoch's last incomplete
//         batch is dropped.
// Cost    O(steps × global batch).
std::int64_t step_of_sample(const Study& study, const std::string& id);

// Under a cluster the links are those of cluster_profile().
//
// Requires  a plan of this study.
// Throws    as step_costs() and table_costs() do.
StepCosts batch_costs(const Study& study, const Plan& plan, const StudyBatch& batch);

BatchNames names_of(const Study& study, const StudyBatch& batch);

Plan read_study_plan(const Study& study, const std::filesystem::path& path);

// The search for the best split of a few lanes under the study's batches 0 … num_batches - 1, or
// as many as are given; the other fields of `request` are the caller's.
LaneSplitResult search_split(const Study& study, LaneSplitRequest request, int num_batches);

// Gives the search for a cluster's plan what the study knows: model, profile, cluster, seed, and
// the batches of steps first_step … first_step + num_batches - 1. Requires  the study has a cluster
// and outlives the request. Throws    InvalidInput for a study of given costs, which knows no
// degrees.
void complete_request(const Study& study, int num_batches, PlanSearchRequest& request);

}  // namespace entrain
