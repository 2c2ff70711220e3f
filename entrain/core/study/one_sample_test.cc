#include "entrain/core/study/one_sample.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/planner/single_sample_plan.h"

#include "tests/oracle/study_files.h"

namespace entrain {
namespace {

TEST(RunOneSampleCases, MeansOverThePlansOfItsDraws) {
  const oracle::StudyFiles files;
  const Study study = load_study(files.index_inputs());
  LaneSplitRequest split;
  split.lanes = 3;
  split.num_slots = 2;
  split.policy = "lpt-2d";
  CasesRequest request;
  request.study = &study;
  request.plan = search_split(study, split, 1).best();
  request.policies = {"disttrain"};
  request.schedules = {"1f1b"};
  constexpr int kDraws = 3;
  const std::vector<CaseResult> mean = run_one_sample_cases(request, kDraws);
  ASSERT_EQ(mean.size(), 1U);
  EXPECT_EQ(mean[0].policy, "disttrain (own plans)");
  SingleSampleRequest single;
  single.model = &study.model;
  single.profile = &study.profile;
  single.lanes = 3;
  single.num_slots = 2;
  const StudyBatch batch = draw_batch(study, 0);
  double sum = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    request.plan = single_sample_plan(single, batch.work[static_cast<std::size_t>(draw)]);
    sum += static_cast<double>(run_cases(request)[0].steps[0].step_ns);
  }
  EXPECT_NEAR(static_cast<double>(mean[0].steps[0].step_ns), sum / kDraws, 2.0);
}

TEST(RunOneSampleCases, NeedsAModel) {
  const oracle::StudyFiles files;
  const Study study = load_study(files.table_inputs());
  CasesRequest request;
  request.study = &study;
  EXPECT_THROW(run_one_sample_cases(request, 1), InvalidInput);
}

}  // namespace
}  // namespace entrain
