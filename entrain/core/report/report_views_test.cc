// Views of a run's folder, of a step and of simulated cases; and the page around them.
#include "entrain/core/report/report_views.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/base64.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/report_page.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;

constexpr const char* kPlan = R"({"version": 1, "replicas": 2, "num_slots": 3,
"modules": {"vision": {"tensor_parallel": 2, "context_parallel": 1, "stages": [[0, 4]]},
            "llm": {"tensor_parallel": 1, "context_parallel": 2, "stages": [[0, 3], [3, 6]]}},
"lanes": [[["vision", 0]], [["llm", 0]], [["llm", 1]]],
"policy": "entrain", "schedule": "zb-h1",
"limits": {"bytes_per_lane": 1000, "max_deferral": -1, "chunks": false, "evaluations": 10},
"certificate": {"lower_bound_s": 2.0, "simulated_s": 2.1, "ratio": 1.05, "dynamic_regret": 0.0,
                "b_min": 0, "further_batches": 100}})";
constexpr const char* kConfig = R"({"steps": 4, "model": "model.toml", "data": {"global_batch": 64},
"optimizer": {"learning_rate": 0.001}, "execution": {"device": "cpu", "precision": "fp32"}})";

std::string row(int step, double loss, double step_s) {
  return Json({{"step", step},
               {"loss", loss},
               {"samples", 64},
               {"llm_tokens", 1000},
               {"step_s", step_s},
               {"predicted_step_s", 0.5},
               {"lower_bound_s", 0.4},
               {"bubble", 0.1},
               {"grad_norm", 3.0},
               {"learning_rate", 0.001},
               {"deferred", 2},
               {"data_wait_s", 0.0},
               {"lanes",
                {{{"replica", 0}, {"lane", 0}, {"busy_s", 0.3}, {"predicted_busy_s", 0.2}}}}})
             .dump() +
         "\n";
}

class RunView : public ::testing::Test {
 protected:
  RunView() {
    folder_.write("plan.json", kPlan);
    folder_.write("config.json", kConfig);
  }
  [[nodiscard]] std::filesystem::path run() const { return folder_.path(); }

  oracle::TemporaryFolder folder_;
};

TEST_F(RunView, HoldsTheRowsAndSaysWhatIsMissing) {
  folder_.write("metrics.jsonl",
                row(0, 6, 0.5) + R"({"step": 1, "skipped": "bad-sample", "detail": "x is cut"})" +
                    "\n" + row(2, 4, 1.0) + R"({"step": 3, "validation_loss": 4.5})" + "\n" +
                    R"({"step": 3, "loss")");
  const Json view = view_of_run(run());
  EXPECT_EQ(view["steps"]["step"], Json({0, 1, 2}));
  EXPECT_EQ(view["steps"]["loss"], Json({6.0, nullptr, 4.0}));
  const Json rate = {"learning rate", "0.001"};
  EXPECT_EQ(std::count(view["facts"].begin(), view["facts"].end(), rate), 1);
  EXPECT_EQ(view["steps"]["llm_tokens_per_s"], Json({2000.0, nullptr, 1000.0}));
  EXPECT_EQ(view["steps"]["validation"]["loss"], Json({4.5}));
  EXPECT_EQ(view["steps"]["lanes_busy_s"][0]["busy_s"], Json({0.3, nullptr, 0.3}));
  EXPECT_NE(view["headline"][0].get<std::string>().find("3 of 4 steps; loss 6 to 4"),
            std::string::npos)
      << view["headline"];
  ASSERT_EQ(view["warnings"].size(), 4U) << view["warnings"];
  EXPECT_NE(view["warnings"][0].get<std::string>().find("3 of 4"), std::string::npos);
  EXPECT_NE(view["warnings"][1].get<std::string>().find("cut off"), std::string::npos);
  EXPECT_NE(
      view["warnings"][2].get<std::string>().find("1 step skipped, step 1 (bad-sample): x is cut"),
      std::string::npos)
      << view["warnings"][2];
  EXPECT_NE(view["warnings"][3].get<std::string>().find("no timeline"), std::string::npos);
  EXPECT_EQ(view["plan"]["lanes"][2]["stages"],
            Json({{{"module", "llm"}, {"stage", 1}, {"begin", 3}, {"end", 6}}}));
  EXPECT_EQ(view["plan"]["lanes"][0]["devices"], "TP 2");
  EXPECT_EQ(view["plan"]["lanes"][1]["devices"], "TP 1 CP 2");
  EXPECT_EQ(view["plan"]["lanes"][1]["limit_bytes"], 1000);
  EXPECT_EQ(view["plan"]["certificate"].size(), 2U);
}

TEST_F(RunView, RefusesFoldersThatAreNoRunsByName) {
  EXPECT_NE(error_of<InvalidInput>([&] { view_of_run(run()); }).find("metrics.jsonl"),
            std::string::npos);
  folder_.write("metrics.jsonl", row(0, 6, 0.5) + "{\"step\": \"one\"}\n");
  EXPECT_NE(error_of<InvalidInput>([&] { view_of_run(run()); }).find("metrics.jsonl line 2"),
            std::string::npos)
      << error_of<InvalidInput>([&] { view_of_run(run()); });
  folder_.write("metrics.jsonl", row(0, 6, 0.5));
  folder_.write("step.json", R"({"version": 2})");
  EXPECT_NE(error_of<InvalidInput>([&] { view_of_run(run()); }).find("reads version 1"),
            std::string::npos);
  std::filesystem::remove(run() / "step.json");
  folder_.write("plan.json", R"({"policy": "entrain"})");
  EXPECT_NE(error_of<InvalidInput>([&] { view_of_run(run()); }).find("plan.json"),
            std::string::npos);
  EXPECT_THROW(views_of(run() / "nothing"), InvalidInput);
  folder_.write("other.json", R"({"rows": 5})");
  EXPECT_THROW(views_of(run() / "other.json"), InvalidInput);
  folder_.write("other.json", R"([1])");
  EXPECT_NE(error_of<InvalidInput>([&] { views_of(run() / "other.json"); }).find("simulate --json"),
            std::string::npos);
}

TEST_F(RunView, TakesRowsOfSimulateAndNumbersEqualNames) {
  const Json cases = {
      {"rows",
       {{{"policy", "entrain"},
         {"schedule", "1f1b"},
         {"step_s", 2.0},
         {"step_p95_s", 2.2},
         {"lower_bound_s", 1.6},
         {"vs_best", 1.0},
         {"bubble", 0.25},
         {"num_slots", 8.0},
         {"peak_bytes", 1 << 20},
         {"gap_causes", {{"fill", 0.05}, {"drain", 0.2}, {"in_bound", 0.0}}}},
        {{"policy", "entrain"}, {"schedule", "1f1b"}, {"refused", 3}, {"reason", "too large"}}}}};
  folder_.write("cases.json", cases.dump());
  const Json report = report_of_views(views_of(run() / "cases.json"), "cases");
  EXPECT_EQ(report["views"][0]["name"], "entrain with 1f1b");
  EXPECT_EQ(report["views"][1]["name"], "entrain with 1f1b (2)");
  EXPECT_NE(report["views"][1]["warnings"][0].get<std::string>().find("too large"),
            std::string::npos);
  const Json& gap = report["views"][0]["gap"];
  EXPECT_EQ(gap["step_ns"], 2'000'000'000) << "the bound and its causes";
  EXPECT_EQ(gap["causes"][1]["ns"], 320'000'000);
}

TEST_F(RunView, TakesCurvesOfSimulate) {
  Json row = {{"policy", "entrain"},
              {"schedule", "1f1b"},
              {"step_s", 2.0},
              {"step_p95_s", 2.2},
              {"lower_bound_s", 1.6},
              {"vs_best", 1.0},
              {"bubble", 0.25},
              {"num_slots", 8.0},
              {"peak_bytes", 1},
              {"curves", {{"step", {0, 1}}, {"predicted_step_s", {2, nullptr}}}}};
  const auto views = [&] {
    return views_of(folder_.write("cases.json", Json({{"rows", {row}}}).dump()));
  };
  EXPECT_EQ(views()[0]["steps"], row["curves"]);
  row["curves"]["predicted_step_s"] = {2, "slow"};
  EXPECT_NE(error_of<InvalidInput>(views).find("predicted_step_s"), std::string::npos);
  row["curves"]["predicted_step_s"] = {2};
  EXPECT_NE(error_of<InvalidInput>(views).find("as many as steps"), std::string::npos);
  row["curves"] = {{"step", {0}}, {"predicted_step_s", {2}}};
  EXPECT_TRUE(views()[0]["steps"].is_null()) << "a single step is no curve";
}

constexpr const char* kIndexHead =
    "sample_id,n_images,image_sizes,prompt_chars,response_chars,prompt_tokens_estimate,"
    "response_tokens_estimate\n";

TEST_F(RunView, HoldsTheDistributionsOfAnIndex) {
  std::string text = kIndexHead;
  for (int i = 0; i < 200; ++i) {
    text += "s" + std::to_string(i) + ",1,10x20,4,4,5,5\n";
  }
  text += "huge,2,10x20;400x500,4,4,5,1000\nsilent,0,,4,0,7,0\n";
  const Json view = views_of(folder_.write("train.csv", text)).at(0);
  EXPECT_EQ(view["headline"][0],
            "202 samples with 202 images; tokens of text: 10 at the median, 1,005 at the most.");
  ASSERT_EQ(view["distributions"].size(), 3U);
  const Json& tokens = view["distributions"][0];
  EXPECT_EQ(tokens["count"], 202);
  EXPECT_EQ(tokens["total"], 200 * 10 + 1005 + 7);
  EXPECT_EQ(tokens["p99"], 10);
  EXPECT_EQ(tokens["max"], 1005);
  EXPECT_EQ(tokens["far_out"],
            Json({{"count", 1}, {"largest", {{{"id", "huge"}, {"value", 1005}}}}}));
  EXPECT_EQ(tokens["bins"][1]["range"], "8 to 15");
  EXPECT_EQ(tokens["bins"][1]["count"], 200);
  ASSERT_EQ(view["warnings"].size(), 2U) << view["warnings"];
  EXPECT_NE(view["warnings"][0].get<std::string>().find("202 samples with estimated"),
            std::string::npos);
  EXPECT_NE(view["warnings"][1].get<std::string>().find("1 sample without a token of response"),
            std::string::npos);
  ModelSpec model;
  model.llm.max_tokens = 100;
  const std::string refused =
      error_of<InvalidInput>([&] { view_of_index(run() / "train.csv", &model); });
  EXPECT_NE(refused.find("201 of 202 samples have images"), std::string::npos) << refused;
  const Json modelled = view_of_index(run() / "train.csv", &model, {"image"});
  EXPECT_NE(modelled["warnings"][0].get<std::string>().find("202 images or videos of 201 of 202"),
            std::string::npos)
      << modelled["warnings"];
  EXPECT_EQ(modelled["distributions"].back()["name"], "LLM tokens of a sample");
  EXPECT_NE(modelled["warnings"].back().get<std::string>().find("1 sample longer than the 100"),
            std::string::npos);
}

TEST_F(RunView, KnowsWhoseDataAnIndexIs) {
  const auto index = [&](const std::string& name, const std::string& id) {
    return folder_.write(name, kIndexHead + id + ",0,,1,1,1,1\n");
  };
  const auto train = index("train.csv", "a");
  const auto validation = index("val.csv", "b");
  const auto copy = index("copy.csv", "a");
  const auto other = index("other.csv", "c");
  Json config = Json::parse(kConfig);
  config["data"]["train"] = train.string();
  config["data"]["validation"] = validation.string();
  folder_.write("config.json", config.dump());
  const std::vector<std::filesystem::path> runs = {run()};
  for (const std::filesystem::path& own : {train, validation, copy}) {
    EXPECT_EQ(other_data(own, runs), "") << own;
  }
  EXPECT_EQ(other_data(other, runs),
            concat("index '",
                   other.string(),
                   "' is not the data of run '",
                   run().string(),
                   "' ('",
                   train.string(),
                   "')"));
  EXPECT_EQ(other_data(other, {}), "");
  std::filesystem::remove(train);
  EXPECT_EQ(other_data(other, runs), "") << "the run's data are not there any more";
}

TEST_F(RunView, SaysWhatAFileHoldsThatIsNoInput) {
  folder_.write("drawing.png", "\x89PNG\r\n");
  const std::string message = error_of<InvalidInput>([&] { views_of(run() / "drawing.png"); });
  EXPECT_NE(message.find("holds a PNG image (6 B)"), std::string::npos) << message;
  EXPECT_NE(message.find("a run's folder, its step.json"), std::string::npos) << message;
  folder_.write("cases.csv", "policy,schedule,step,step_s\n");
  EXPECT_NE(error_of<InvalidInput>([&] { views_of(run() / "cases.csv"); }).find("cases of"),
            std::string::npos);
}

TEST_F(RunView, SharesThePageWithTheDataOfTheRun) {
  folder_.write("metrics.jsonl", row(0, 6, 0.5));
  Json views = views_of(run());
  views.push_back(
      views_of(folder_.write("train.csv", std::string(kIndexHead) + "s,0,,1,1,1,1\n")).at(0));
  const Json report = report_of_views(views, "both");
  EXPECT_TRUE(report["views"][0]["distributions"].is_null());
  EXPECT_EQ(report["views"][1]["distributions"][0]["count"], 1);
}

// Whatever a document holds is data: it neither ends the script that holds it nor is a place.
TEST(ReportPage, HoldsTheDocumentAndNothingElse) {
  const oracle::TemporaryFolder folder;
  const std::string evil = "</script><script>alert(1)</script>{{STYLE}} \xff";
  const Json report = report_of_views(Json::array({view_of_nothing(evil)}), evil);
  const std::string page = report_page(report);
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(page.find("{{DATA}}"), std::string::npos);
  EXPECT_EQ(page.find("http://"), page.find("http://www.w3.org/"));
  EXPECT_EQ(page.find("https://"), std::string::npos);
  const std::string mark = "id=\"data\">";
  const std::size_t begin = page.find(mark) + mark.size();
  const std::string packed = page.substr(begin, page.find('<', begin) - begin);
  const std::string bytes = decode_base64(packed).value();
  const Json read = parse_json(read_file(folder.write("data.json.gz", bytes)), "page");
  EXPECT_EQ(read["views"].size(), 1U);
  EXPECT_EQ(read["views"][0]["name"].get<std::string>().substr(0, 20), evil.substr(0, 20));
}

}  // namespace
}  // namespace entrain
