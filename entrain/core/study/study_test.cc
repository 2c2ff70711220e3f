#include "entrain/core/study/study.h"

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/study_files.h"

namespace entrain {
namespace {

using oracle::error_of;

TEST(LoadStudy, ReadsACostTable) {
  const oracle::StudyFiles files;
  const Study study = load_study(files.table_inputs());
  EXPECT_EQ(study.module_names(), (std::vector<std::string>{"vision", "llm"}));
  EXPECT_EQ(study.ids.size(), 40U);
  EXPECT_FALSE(study.with_replacement);
  EXPECT_NE(study.note().find("one byte a token and layer"), std::string::npos);
}

TEST(LoadStudy, ReadsIndexAndModelAndFreezes) {
  const oracle::StudyFiles files;
  StudyInputs inputs = files.index_inputs();
  inputs.freeze = {"vision", "vision.projector"};
  const Study study = load_study(inputs);
  EXPECT_TRUE(study.model.encoders[0].frozen);
  EXPECT_TRUE(study.model.encoders[0].projector_frozen);
  EXPECT_FALSE(study.model.llm.frozen);
  EXPECT_NE(study.note().find("frozen: vision, vision.projector"), std::string::npos);
}

TEST(LoadStudy, GivesTheModelAdapters) {
  const oracle::StudyFiles files;
  StudyInputs inputs = files.index_inputs();
  inputs.freeze = {"vision"};
  inputs.lora = "2:q_proj,mlp.*";
  const Study study = load_study(inputs);
  EXPECT_EQ(study.model.llm.lora.rank, 2);
  EXPECT_FALSE(layer_trainable(study.model, 0, 1));
  EXPECT_NE(study.note().find("adapters: 2:q_proj,mlp.*"), std::string::npos);
  inputs.lora = "2:q_prj";
  EXPECT_EQ(error_of<InvalidInput>([&] { load_study(inputs); }),
            "--lora.targets: 'q_prj' fits no linear layer, did you mean 'q_proj'?");
  StudyInputs table = files.table_inputs();
  table.lora = "2:q_proj";
  EXPECT_NE(error_of<InvalidInput>([&] { load_study(table); }).find("--lora needs --index"),
            std::string::npos);
}

TEST(LoadStudy, FreezesWholeModulesOfACostTable) {
  const oracle::StudyFiles files;
  StudyInputs inputs = files.table_inputs();
  EXPECT_EQ(load_study(inputs).frozen, (std::vector<char>{0, 0}));
  inputs.freeze = {"vision"};
  const Study study = load_study(inputs);
  EXPECT_EQ(study.frozen, (std::vector<char>{1, 0}));
  EXPECT_FALSE(study.model.encoders[0].frozen) << "plans of the table fit with and without";
  inputs.freeze = {"llm", "projector"};
  EXPECT_EQ(error_of<InvalidInput>([&] { load_study(inputs); }),
            "--freeze: 'llm, projector' given; a cost table has whole modules: vision, llm");
}

TEST(LoadStudy, RefusesInputsThatContradict) {
  const oracle::StudyFiles files;
  const auto message = [](StudyInputs inputs) {
    return error_of<InvalidInput>([&] { load_study(inputs); });
  };
  StudyInputs both = files.table_inputs();
  both.index = "index.csv";
  EXPECT_NE(message(both).find("--costs replaces"), std::string::npos);
  StudyInputs nothing;
  nothing.global_batch = 4;
  EXPECT_NE(message(nothing).find("--index and --model"), std::string::npos);
  StudyInputs segments = files.index_inputs();
  segments.segment_costs = "s.csv";
  EXPECT_NE(message(segments).find("--segment-costs needs --costs"), std::string::npos);
  for (StudyInputs inputs : {files.table_inputs(), files.index_inputs()}) {
    inputs.freeze = {"visoin"};
    EXPECT_NE(message(inputs).find("did you mean 'vision'"), std::string::npos);
    inputs.freeze.clear();
    for (const int size : {0, -1}) {
      inputs.global_batch = size;
      EXPECT_NE(message(inputs).find("--global-batch"), std::string::npos);
    }
  }
}

TEST(DrawBatch, GivesTheSameSamplesForATableAsForAnIndex) {
  const oracle::StudyFiles files;
  const Study table = load_study(files.table_inputs());
  const Study index = load_study(files.index_inputs());
  EXPECT_EQ(draw_batch(table, 2).ids, draw_batch(index, 2).ids);
  EXPECT_NE(draw_batch(table, 2).ids, draw_batch(table, 1).ids);
  EXPECT_EQ(draw_batch(index, 2).work.size(), 8U);
}

TEST(DrawBatch, HoldsOversizedSamplesWithinTheirWindow) {
  const oracle::StudyFiles files;
  for (StudyInputs inputs : {files.table_inputs(), files.index_inputs()}) {
    const Study drawn = load_study(inputs);
    inputs.hold = 0;
    EXPECT_EQ(draw_batch(load_study(inputs), 1).ids, draw_batch(drawn, 1).ids);
    EXPECT_TRUE(drawn.hold_weights.empty());
    inputs.hold = 3;
    Study held = load_study(inputs);
    ASSERT_EQ(held.hold_weights.size(), held.ids.size());
    EXPECT_NE(held.note().find("held within windows of 3 steps"), std::string::npos);
    // One sample is made oversized, which brings it into the window's other oversized one's step.
    held.hold_weights.assign(held.ids.size(), 1);
    const std::string first = draw_batch(drawn, 0).ids[1];
    const std::string second = draw_batch(drawn, 2).ids[3];
    held.hold_weights[static_cast<std::size_t>(place_of_sample(held.ids, first))] = 9;
    held.hold_weights[static_cast<std::size_t>(place_of_sample(held.ids, second))] = 8;
    EXPECT_EQ(step_of_sample(held, first), 0);
    EXPECT_EQ(step_of_sample(held, second), 0);
    const std::vector<std::string> ids = draw_batch(held, 0).ids;
    EXPECT_NE(std::find(ids.begin(), ids.end(), second), ids.end());
    inputs.global_batch = 0;
    inputs.no_repeat = true;
    EXPECT_NE(error_of<InvalidInput>([&] { load_study(inputs); }).find("--hold rearranges"),
              std::string::npos);
  }
}

TEST(DrawBatch, GivesTheListedSamplesInTheirOrder) {
  const oracle::StudyFiles files;
  for (StudyInputs inputs : {files.table_inputs(), files.index_inputs()}) {
    const std::vector<std::string> ids = load_study(inputs).ids;
    const std::vector<std::string> listed = {ids[30], ids[2], ids[11]};
    inputs.batch = (files.folder() / "ids.txt").string();
    write_file(inputs.batch, "# three\n" + join(listed, "\n") + "\n");
    EXPECT_NE(error_of<InvalidInput>([&] { load_study(inputs); }).find("--batch"),
              std::string::npos)
        << "beside a size";
    inputs.global_batch = 0;
    const Study study = load_study(inputs);
    EXPECT_EQ(study.inputs.global_batch, 3);
    EXPECT_EQ(study.num_given(), 1);
    EXPECT_EQ(draw_batch(study, 0).ids, listed);
    EXPECT_FALSE(study.with_replacement);
    EXPECT_EQ(step_of_sample(study, ids[11]), 0);
    EXPECT_EQ(error_of<InvalidInput>([&] { step_of_sample(study, ids[12]); }),
              "--sample: '" + ids[12] + "' is in no given batch");
    EXPECT_EQ(error_of<InvalidInput>([&] { draw_batch(study, 1); }),
              "step 1: the given batch is step 0, the only one");
  }
}

TEST(DrawBatch, GivesEverySampleOnceWhereNoneRepeats) {
  const oracle::StudyFiles files;
  StudyInputs inputs = files.index_inputs();
  inputs.no_repeat = true;
  inputs.global_batch = 0;
  const Study whole = load_study(inputs);
  EXPECT_EQ(draw_batch(whole, 0).ids, whole.ids);
  EXPECT_EQ(whole.num_given(), 1);
  EXPECT_EQ(whole.left_out(), "");
  inputs.global_batch = 16;
  const Study study = load_study(inputs);
  EXPECT_EQ(study.num_given(), 2);
  EXPECT_EQ(study.left_out(),
            "the last 8 of 40 samples are left out: they do not fill a global batch of 16");
  EXPECT_EQ(draw_batch(study, 1).ids,
            std::vector<std::string>(study.ids.begin() + 16, study.ids.begin() + 32));
  EXPECT_EQ(step_of_sample(study, study.ids[31]), 1);
  EXPECT_NE(error_of<InvalidInput>([&] { step_of_sample(study, study.ids[32]); }), "");
  EXPECT_EQ(error_of<InvalidInput>([&] { draw_batch(study, 2); }),
            "step 2: --no-repeat gives 2 batches of 16, steps 0 to 1");
  inputs.global_batch = 41;
  EXPECT_NE(error_of<InvalidInput>([&] { load_study(inputs); }).find("40 samples, fewer"),
            std::string::npos);
}

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
      error_of<InvalidInput>([&] { step_of_sample(study, study.ids[3] + "x"); });
  EXPECT_NE(message.find("did you mean '" + study.ids[3] + "'"), std::string::npos) << message;
}

TEST(PlaceOfSample, SuggestsIdsByTheirEndsAndElseShowsSome) {
  const std::vector<std::string> ids = {"chart/000017", "vqa/000017", "vqa/000018", "vqa/000019"};
  const auto message = [&](const std::string& id) {
    return error_of<InvalidInput>([&] { place_of_sample(ids, id, ""); });
  };
  EXPECT_TRUE(message("000017").ends_with(", did you mean 'chart/000017' or 'vqa/000017'?"))
      << message("000017");
  EXPECT_TRUE(
      message("x").ends_with("; ids are such as 'chart/000017' or 'vqa/000017' or 'vqa/000018'"))
      << message("x");
}

TEST(SearchSplit, WorksOnACostTable) {
  const oracle::StudyFiles files;
  const Study study = load_study(files.table_inputs());
  LaneSplitRequest request;
  request.lanes = 3;
  request.num_slots = 2;
  request.policy = "lpt-2d";
  const LaneSplitResult result = search_split(study, request, 2);
  ASSERT_TRUE(result.fits());
  EXPECT_EQ(result.splits.size(), 2U);
  EXPECT_EQ(result.best().num_lanes(), 3);
  write_file(files.folder() / "plan.json", to_json(result.best()).dump());
  EXPECT_EQ(read_study_plan(study, files.folder() / "plan.json").lanes, result.best().lanes);
}

}  // namespace
}  // namespace entrain
