#include "entrain/core/study/sample_step.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/study_files.h"

namespace entrain {
namespace {

TEST(StepOfSample, FindsTheFirstStepThatHoldsIt) {
  const oracle::StudyFiles files;
  for (const int batch : {4, 16}) {  // without and with replacement
    StudyInputs inputs = files.table_inputs();
    inputs.global_batch = batch;
    const Study study = load_study(inputs);
    EXPECT_EQ(study.with_replacement, batch == 16);
    for (const std::string& id : {study.ids[0], study.ids[17], study.ids[39]}) {
      const std::int64_t step = step_of_sample(study, id);
      for (std::int64_t other = 0; other <= step; ++other) {
        const StudyBatch drawn = draw_batch(study, other);
        const bool held = std::find(drawn.ids.begin(), drawn.ids.end(), id) != drawn.ids.end();
        EXPECT_EQ(held, other == step) << id << ", batch " << batch << ", step " << other;
      }
    }
  }
}

TEST(StepOfSample, SuggestsAnId) {
  const oracle::StudyFiles files;
  const Study study = load_study(files.table_inputs());
  const std::string message =
      oracle::error_of<InvalidInput>([&] { step_of_sample(study, study.ids[3] + "x"); });
  EXPECT_NE(message.find("did you mean '" + study.ids[3] + "'"), std::string::npos) << message;
}

}  // namespace
}  // namespace entrain
