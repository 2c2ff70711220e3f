#include "entrain/core/study/audit.h"

#include <numeric>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/study/audit_text.h"
#include "entrain/core/study/study_work.h"

#include "tests/oracle/study_files.h"

namespace entrain {
namespace {

AuditRequest small_request() {
  AuditRequest request;
  request.ranks = 2;
  request.microbatches = 2;
  request.search_steps = 2000;
  return request;
}

Study study_of(const oracle::StudyFiles& files, int global_batch = 8) {
  StudyInputs inputs = files.index_inputs();
  inputs.global_batch = global_batch;
  return load_study(inputs);
}

TEST(BalanceSamples, HaveTheWorkOfTheStudy) {
  const oracle::StudyFiles files;
  for (const StudyInputs& inputs : {files.table_inputs(), files.index_inputs()}) {
    const Study study = load_study(inputs);
    const WorkTimes work = study_work(study);
    const auto samples = balance_samples(study);
    ASSERT_EQ(samples.size(), study.ids.size());
    for (std::size_t row = 0; row < samples.size(); ++row) {
      for (std::size_t module = 0; module < work.size(); ++module) {
        EXPECT_NEAR(static_cast<double>(samples[row].work[module]),
                    static_cast<double>(work[module][row]),
                    100);
      }
      EXPECT_GT(samples[row].tokens, 0);
    }
  }
}

TEST(Audit, MeasuresEveryPolicyOnTheSameSteps) {
  const oracle::StudyFiles files;
  const Study study = study_of(files);
  const AuditReport report = audit(study, small_request());
  EXPECT_EQ(report.global_batch, 8);
  ASSERT_EQ(report.perfect_ns.size(), 5U);  // an epoch of 40 samples
  const auto samples = balance_samples(study);
  const auto work = std::accumulate(
      samples.begin(), samples.end(), std::int64_t{0}, [](std::int64_t sum, const auto& sample) {
        return sum + sample.work[0] + sample.work[1];
      });
  EXPECT_NEAR(static_cast<double>(std::accumulate(
                  report.perfect_ns.begin(), report.perfect_ns.end(), std::int64_t{0})),
              static_cast<double>(work) / 2,
              5);
  for (const AuditPolicy& policy : report.policies) {
    ASSERT_EQ(policy.step_ns.size(), 5U) << policy.name;
    for (std::size_t step = 0; step < 5; ++step) {
      EXPECT_GE(policy.step_ns[step], report.bound_ns[step]) << policy.name;
    }
    EXPECT_GE(policy.worst, policy.spread.mean) << policy.name;
  }
  EXPECT_EQ(report.random().name, "random");
  EXPECT_EQ(report.sampler().name, "entrain");
  EXPECT_LT(report.sampler().spread.mean, report.random().spread.mean);
  EXPECT_GE(report.sampler().spread.mean, report.bound_over_perfect());
  EXPECT_GT(report.pipeline.over_perfect, 0.5);
  EXPECT_EQ(report.pipeline.lanes, 2);
}

TEST(Audit, CountsWhatAMicrobatchTakesBesidesItsSamplesInEveryStep) {
  const oracle::StudyFiles files;
  for (const Layout layout : {Layout::kFsdp, Layout::kDdp}) {
    AuditRequest request = small_request();
    request.layout = layout;
    const AuditReport without = audit(study_of(files), request);
    request.microbatch_ns = 5'000'000;
    const AuditReport with = audit(study_of(files), request);
    constexpr std::int64_t kStep = 10'000'000;  // of two microbatches
    for (std::size_t step = 0; step < 5; ++step) {
      EXPECT_EQ(with.perfect_ns[step], without.perfect_ns[step] + kStep);
      EXPECT_EQ(with.bound_ns[step], without.bound_ns[step] + kStep);
      for (std::size_t i = 0; i < with.policies.size(); ++i) {
        EXPECT_EQ(with.policies[i].step_ns[step], without.policies[i].step_ns[step] + kStep);
      }
    }
    // The same seconds are won of a longer step.
    EXPECT_LT(with.random().spread.mean, without.random().spread.mean);
    EXPECT_LT(with.errors[1].over_perfect, without.errors[1].over_perfect);
    EXPECT_GT(with.caps.back().step, without.caps.back().step);
    EXPECT_NE(with.pipeline.over_perfect, without.pipeline.over_perfect);
    EXPECT_NE(audit_text(with).find("5 ms a microbatch besides its samples"), std::string::npos);
  }
}

TEST(Audit, CostsThatAreWrongMakeTheSamplerNoBetter) {
  const oracle::StudyFiles files;
  const AuditReport report = audit(study_of(files), small_request());
  ASSERT_EQ(report.errors.size(), 2U);
  for (const AuditError& error : report.errors) {
    EXPECT_GE(error.over_perfect, report.bound_over_perfect());
  }
}

TEST(Audit, TimelinesHoldAllWork) {
  const oracle::StudyFiles files;
  const AuditReport report = audit(study_of(files), small_request());
  for (const AuditTimeline& timeline : {report.before, report.after}) {
    std::int64_t sum = 0;
    for (const auto& rank : timeline) {
      sum = std::accumulate(rank.begin(), rank.end(), sum);
    }
    EXPECT_NEAR(static_cast<double>(sum), 2.0 * static_cast<double>(report.perfect_ns[0]), 2);
  }
  for (const AuditHistogram& histogram : report.histograms) {
    EXPECT_EQ(std::accumulate(histogram.samples.begin(), histogram.samples.end(), std::int64_t{0}),
              40);
  }
}

TEST(Audit, CapsShortenSamplesAndSteps) {
  const oracle::StudyFiles files;
  const AuditReport report = audit(study_of(files), small_request());
  ASSERT_FALSE(report.caps.empty());
  for (std::size_t i = 1; i < report.caps.size(); ++i) {
    EXPECT_LT(report.caps[i].tokens, report.caps[i - 1].tokens);
    EXPECT_GT(report.caps[i].tokens_lost, report.caps[i - 1].tokens_lost);
  }
  EXPECT_LT(report.caps.back().step, 1);
}

TEST(Audit, NamesSamplesThatExceedTheMemory) {
  const oracle::StudyFiles files;
  AuditRequest request = small_request();
  request.memory_bytes = 1;
  const AuditReport report = audit(study_of(files), request);
  EXPECT_EQ(report.num_over_memory, 40);
  EXPECT_EQ(report.over_memory.size(), 10U);
  EXPECT_EQ(report.random().steps_over_memory, 5);
  const std::string first = audit_findings(report).front();
  EXPECT_EQ(first.rfind("40 of 40 samples exceed the limit of a microbatch alone", 0), 0U) << first;
  EXPECT_NE(first.find(report.over_memory[4].id + ", …"), std::string::npos) << first;
}

TEST(Audit, CountsStepsInWhichARankHasNoImage) {
  const oracle::StudyFiles files;  // every fourth sample is text-only
  AuditRequest request = small_request();
  const Study study = study_of(files, 4);  // a microbatch is one sample
  const AuditReport report = audit(study, request);
  EXPECT_GT(report.random().steps_without_media, 0);
  request.everywhere = {"vision"};
  try {
    audit(study, request);
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("samples have work in vision"), std::string::npos);
  }
  request.everywhere = {"visoin"};
  EXPECT_THROW(audit(study, request), InvalidInput);
}

TEST(Audit, RefusesABatchThatIsNoMultiple) {
  const oracle::StudyFiles files;
  AuditRequest request = small_request();
  request.ranks = 3;
  EXPECT_THROW(audit(study_of(files), request), InvalidInput);
}

TEST(AuditPage, IsWholeWithoutScriptsOrOtherFiles) {
  const oracle::StudyFiles files;
  const AuditReport report = audit(study_of(files), small_request());
  const std::string page = audit_page(report, "entrain 1, today");
  EXPECT_EQ(page.rfind("<!doctype html>", 0), 0U);
  EXPECT_NE(page.find("</body></html>"), std::string::npos);
  for (const char* word : {"<script", "http:", "https:", "nan", "inf'"}) {
    EXPECT_EQ(page.find(word), std::string::npos) << word;
  }
  for (const AuditPolicy& policy : report.policies) {
    EXPECT_NE(page.find("<dt>" + policy.name + "</dt>"), std::string::npos);
  }
}

TEST(AuditPage, NamesWhatWasLookedAtAndHowToGoOn) {
  const oracle::StudyFiles files;
  AuditRequest request = small_request();
  request.padded = true;
  request.memory_bytes = std::int64_t{64} << 30;
  request.everywhere = {"vision"};
  const AuditReport report = audit(study_of(files), request);
  const std::string page = audit_page(report, "entrain 1, today");
  for (const std::string& text :
       {report.data,
        report.model,
        report.note,
        audit_settings(report),
        std::string("2 ranks × 2 microbatches, padded"),
        std::string("vision in every microbatch"),
        std::string("entrain 1, today"),
        std::string("layout=&quot;fsdp&quot;, global_batch=8, microbatch=2, padded=True, "
                    "max_bytes=68719476736, every_rank_has=[&quot;vision&quot;]")}) {
    EXPECT_NE(page.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(report.data, files.index_inputs().index);
}

TEST(AuditReport, NamesCostsAsTheReaderKnowsThem) {
  const oracle::StudyFiles files;
  StudyInputs inputs = files.table_inputs();
  inputs.global_batch = 8;
  AuditRequest request = small_request();
  request.costs_note = "measured on ours";
  EXPECT_EQ(audit(load_study(inputs), request).note, "measured on ours");
}

TEST(AuditJson, HoldsWhatTheTextSays) {
  const oracle::StudyFiles files;
  const AuditReport report = audit(study_of(files), small_request());
  const Json json = audit_json(report);
  EXPECT_EQ(json["policies"].size(), report.policies.size());
  EXPECT_EQ(json["policies"].back()["over_perfect"], report.sampler().spread.mean);
  EXPECT_EQ(json["findings"].size(), audit_findings(report).size());
}

}  // namespace
}  // namespace entrain
