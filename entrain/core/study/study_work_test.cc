#include "entrain/core/study/study_work.h"

#include <gtest/gtest.h>

#include "tests/oracle/study_files.h"

namespace entrain {
namespace {

TEST(StudyWork, IsThatOfEverySampleAlone) {
  const oracle::StudyFiles files;
  for (const StudyInputs& inputs : {files.table_inputs(), files.index_inputs()}) {
    const Study study = load_study(inputs);
    const WorkTimes work = study_work(study);
    ASSERT_EQ(std::ssize(work), study.model.num_modules());
    // Stages and blocks of samples make no difference but rounding.
    const Plan plan = even_plan(study.model, {2, 2}, 1, 1);
    for (int row = 0; row < std::ssize(study.ids); ++row) {
      const WorkTimes alone = work_times(batch_costs(study, plan, batch_of(study, {row})));
      for (std::size_t module = 0; module < work.size(); ++module) {
        ASSERT_EQ(work[module].size(), study.ids.size());
        EXPECT_NEAR(static_cast<double>(work[module][static_cast<std::size_t>(row)]),
                    static_cast<double>(alone[module][0]),
                    100)
            << inputs.costs << row;
      }
    }
    EXPECT_GT(work[0][0], 0);
    EXPECT_GT(work[1][0], 0);
  }
}

}  // namespace
}  // namespace entrain
