#include "entrain/core/spec/assignment.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/random.h"
#include "entrain/core/spec/workload.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

ModelSpec two_encoders() {
  ModelSpec model;
  EncoderSpec vision;
  vision.name = "vision";
  EncoderSpec audio;
  audio.name = "audio";
  audio.modality = Modality::kAudio;
  model.encoders = {vision, audio};
  return model;
}

SampleSizes sample(const std::string& id, int images, int clips) {
  SampleSizes sizes;
  sizes.id = id;
  sizes.images.assign(static_cast<std::size_t>(images), {56, 56});
  sizes.audio_seconds.assign(static_cast<std::size_t>(clips), 1.0);
  sizes.prompt_tokens_estimate = 10;
  sizes.response_tokens_estimate = 10;
  return sizes;
}

std::vector<SampleSizes> small_batch() {
  return {sample("one", 1, 0), sample("many", 3, 1), sample("text", 0, 0), sample("heard", 0, 2)};
}

// "many" has its images in slots 0 and 2 and is deferred from both; "heard" is spread and deferred
// from slot 1; "text" is cut into two chunks.
StepAssignment small_assignment() {
  StepAssignment assignment;
  assignment.policy = "entrain";
  assignment.step = 4;
  assignment.seed = 18446744073709551615U;
  ReplicaAssignment replica;
  replica.num_slots = 4;
  replica.modules = {
      {{{1, 2}, {1, 0}, {0, 0}}, {}, {{1, 1}}, {}},
      {{{1, 0}}, {{3, 0}}, {}, {{3, 1}}},
      {{{0}}, {{2, -1, 0, 12}}, {{2, -1, 12, 20}}, {{1}, {3}}},
  };
  assignment.replicas = {replica};
  assignment.stats.modules["vision"] = {1, 0.5, 0.5, 2, 0.25};
  assignment.stats.makespan_s = 3;
  assignment.stats.lower_bound_s = 2;
  assignment.stats.gap = 0.5;
  assignment.stats.assign_ms = 7;
  return assignment;
}

constexpr const char* kSmallJson = R"({
  "version": 1, "policy": "entrain", "step": 4, "seed": 18446744073709551615,
  "replicas": [{
    "num_slots": 4,
    "modules": {
      "vision": [[{"sample": "many", "segments": [2, 0]}, "one"], [],
                 [{"sample": "many", "segments": [1]}], []],
      "audio": [["many"], [{"sample": "heard", "segments": [0]}], [],
                [{"sample": "heard", "segments": [1]}]],
      "llm": [["one"], [{"sample": "text", "tokens": [0, 12]}],
              [{"sample": "text", "tokens": [12, 20]}], ["many", "heard"]]},
    "deferred": [{"sample": "many", "module": "vision", "from_slot": 0, "to_slot": 3},
                 {"sample": "many", "module": "vision", "from_slot": 2, "to_slot": 3},
                 {"sample": "many", "module": "audio", "from_slot": 0, "to_slot": 3},
                 {"sample": "heard", "module": "audio", "from_slot": 1, "to_slot": 3}]}],
  "stats": {
    "vision": {"mean_s": 1.0, "std_s": 0.5, "cv": 0.5, "max_over_mean": 2.0, "floor_cv": 0.25},
    "makespan_s": 3.0, "lower_bound_s": 2.0, "gap": 0.5, "assign_ms": 7.0}})";

Json small_json() {
  return parse_json(kSmallJson, "a.json");
}

StepAssignment read(const Json& document) {
  return assignment_from_json(document, batch_names(two_encoders(), small_batch()), "a.json");
}

// The message for the document above with `value` at a JSON pointer.
std::string assignment_message_after(const std::string& pointer, const std::string& value) {
  Json document = small_json();
  document[Json::json_pointer(pointer)] = parse_json(value, "value");
  return error_of<InvalidInput>([&] { read(document); });
}

TEST(AssignmentJson, IsWrittenAsDocumented) {
  EXPECT_EQ(to_json(small_assignment(), batch_names(two_encoders(), small_batch())).dump(2),
            small_json().dump(2));
}

TEST(AssignmentJson, IsReadBack) {
  const StepAssignment assignment = read(small_json());
  const StepAssignment expected = small_assignment();
  EXPECT_EQ(assignment.policy, expected.policy);
  EXPECT_EQ(assignment.step, expected.step);
  EXPECT_EQ(assignment.seed, expected.seed);
  EXPECT_EQ(assignment.replicas, expected.replicas);
  EXPECT_EQ(assignment.stats.makespan_s, 3);
  EXPECT_EQ(assignment.stats.modules.at("vision").floor_cv, 0.25);
  EXPECT_TRUE(assignment.stats.modules.at("vision").replicas.empty()) << "a file of pooled figures";
  EXPECT_EQ(assignment.stats.modules.size(), 1U);
}

TEST(AssignmentJson, HoldsTheBalanceOfEveryReplica) {
  StepAssignment assignment = small_assignment();
  assignment.stats.modules["vision"].replicas = {{{2.0, 1.0, 0.5, 1.5, 0.25}, 4}};
  const Json document = to_json(assignment, batch_names(two_encoders(), small_batch()));
  EXPECT_EQ(document["stats"]["vision"]["cv"], 0.5) << "the mean of replicas stays beside it";
  const ModuleBalance balance = read(document).stats.modules.at("vision");
  ASSERT_EQ(balance.replicas.size(), 1U);
  EXPECT_EQ(balance.replicas[0].num_slots, 4);
  EXPECT_EQ(balance.replicas[0].mean_s, 2.0);
  EXPECT_EQ(balance.replicas[0].std_s, 1.0);
  EXPECT_EQ(balance.replicas[0].max_over_mean, 1.5);
  EXPECT_EQ(digest(assignment), digest(small_assignment())) << "stats are left out";
}

TEST(AssignmentJson, NeedsOnlyTheSlots) {
  Json document = small_json();
  for (const char* key : {"policy", "step", "seed", "stats"}) {
    document.erase(key);
  }
  document["replicas"][0].erase("deferred");
  EXPECT_EQ(read(document).replicas, small_assignment().replicas);
}

TEST(AssignmentJson, RefusesUnknownSamplesAndKeys) {
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/llm/0/0", "\"onne\""),
            "a.json: replicas[0].modules.llm[0][0]: sample 'onne' is not among the 4 samples of "
            "the global batch");
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/vision/2/0/sample", "\"x\""),
            "a.json: replicas[0].modules.vision[2][0].sample: sample 'x' is not among the 4 "
            "samples of the global batch");
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/vision/2/0/segment", "[1]"),
            "a.json: replicas[0].modules.vision[2][0].segment: unknown key, did you mean "
            "'segments'?");
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/visio", "[]"),
            "a.json: replicas[0].modules.visio: unknown key, did you mean 'vision'?");
  EXPECT_EQ(assignment_message_after("/polcy", "1"),
            "a.json: polcy: unknown key, did you mean 'policy'?");
  EXPECT_EQ(assignment_message_after("/stats/lllm", "{}"),
            "a.json: stats.lllm: unknown key, did you mean 'llm'?");
  EXPECT_EQ(assignment_message_after("/version", "3"),
            "a.json: version: 3 given; this program reads 1");
}

TEST(AssignmentJson, RefusesWorkThatIsPlacedTwice) {
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/vision/2/0/segments", "[1, 2]"),
            "a.json: replicas[0].modules.vision[2][0].segments[1]: segment 2 of sample 'many' is "
            "placed twice");
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/vision/1", "[\"one\"]"),
            "a.json: replicas[0].modules.vision[1][0]: segment 0 of sample 'one' is placed twice");
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/llm/3", R"(["many", "heard", "many"])"),
            "a.json: replicas[0].modules.llm[3][2]: sample 'many' is placed twice in the LLM");
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/llm/2/0/tokens", "[11, 20]"),
            "a.json: replicas[0].modules.llm[2][0]: sample 'text' is placed twice in the LLM");
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/llm/2/0", "\"text\""),
            "a.json: replicas[0].modules.llm[2][0]: sample 'text' is placed twice in the LLM");
  Json two_replicas = small_json();
  two_replicas["replicas"].push_back(two_replicas["replicas"][0]);
  const std::string message = error_of<InvalidInput>([&] { read(two_replicas); });
  EXPECT_EQ(message.rfind("a.json: replicas[1].modules.vision[0][0]", 0), 0U) << message;
}

TEST(AssignmentJson, RefusesSegmentsAndTokensThatDoNotExist) {
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/vision/2/0/segments", "[3]"),
            "a.json: replicas[0].modules.vision[2][0].segments[0]: segment 3 of sample 'many' does "
            "not exist; it has 3 in module 'vision'");
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/vision/2/0/segments", "[-1]")
                .rfind("a.json: replicas[0].modules.vision[2][0].segments[0]: segment -1", 0),
            0U);
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/vision/1", "[\"text\"]"),
            "a.json: replicas[0].modules.vision[1][0]: sample 'text' has no segment in module "
            "'vision' here");
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/vision/2/0/segments", "[]"),
            "a.json: replicas[0].modules.vision[2][0]: sample 'many' has no segment in module "
            "'vision' here");
  for (const char* range : {"[12, 21]", "[12, 12]", "[-1, 20]"}) {
    const std::string message =
        assignment_message_after("/replicas/0/modules/llm/2/0/tokens", range);
    EXPECT_NE(message.find("is not a range within the 20 tokens of sample 'text'"),
              std::string::npos)
        << message;
  }
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/llm/2/0/tokens", "[12]"),
            "a.json: replicas[0].modules.llm[2][0].tokens: two numbers are needed, [from, to]");
}

TEST(AssignmentJson, RefusesWrongNumbersOfSlotsAndReplicas) {
  EXPECT_EQ(assignment_message_after("/replicas/0/num_slots", "5"),
            "a.json: replicas[0].modules.vision: 4 slots given, but num_slots is 5; empty slots "
            "are written []");
  EXPECT_EQ(assignment_message_after("/replicas/0/num_slots", "0"),
            "a.json: replicas[0].num_slots: 0 given; at least 1 is needed");
  EXPECT_EQ(assignment_message_after("/replicas/0/modules/audio", "null"),
            "a.json: replicas[0].modules.audio: missing");
  EXPECT_EQ(assignment_message_after("/replicas", "[]"),
            "a.json: replicas: the list is empty; at least one replica is needed");
}

TEST(AssignmentJson, RefusesADeferredListThatDisagreesWithTheSlots) {
  EXPECT_NE(assignment_message_after("/replicas/0/deferred/0/to_slot", "2").find("does not match"),
            std::string::npos);
  EXPECT_NE(assignment_message_after("/replicas/0/deferred", "[]").find("does not match"),
            std::string::npos);
  EXPECT_EQ(assignment_message_after("/replicas/0/deferred/0/module", "\"llm\""),
            "a.json: replicas[0].deferred[0].module: 'llm' is not an encoder of the model");
  Json reordered = small_json();
  std::swap(reordered["replicas"][0]["deferred"][0], reordered["replicas"][0]["deferred"][3]);
  EXPECT_NO_THROW(read(reordered));
}

TEST(AssignmentJson, RefusesBatchesWithRepeatedIds) {
  std::vector<SampleSizes> batch = small_batch();
  batch[3].id = "one";
  EXPECT_EQ(error_of<InvalidInput>(
                [&] { to_json(small_assignment(), batch_names(two_encoders(), batch)); }),
            "sample 'one' occurs twice in the global batch");
}

TEST(Deferrals, HaveOneEntryPerSampleModuleAndEncoderSlot) {
  const std::vector<Deferral> expected = {{1, 0, 0, 3}, {1, 0, 2, 3}, {1, 1, 0, 3}, {3, 1, 1, 3}};
  EXPECT_EQ(deferrals(small_assignment().replicas[0]), expected);
  ReplicaAssignment scattered;
  scattered.num_slots = 2;
  scattered.modules = {{{{0, 0}, {1, 0}, {0, 1}}, {}}, {{{1}}, {{0}}}};
  EXPECT_EQ(deferrals(scattered), (std::vector<Deferral>{{0, 0, 0, 1}}));
  EXPECT_TRUE(deferrals(ReplicaAssignment{}).empty());
}

// Random placements: segments spread and shuffled, chunks, empty slots, several replicas.
StepAssignment random_assignment(Rng& rng,
                                 const ModelSpec& model,
                                 const std::vector<SampleSizes>& batch) {
  StepAssignment assignment;
  assignment.policy = "random";
  assignment.replicas.resize(1 + rng.below(3));
  for (ReplicaAssignment& replica : assignment.replicas) {
    replica.num_slots = static_cast<int>(1 + rng.below(5));
    replica.modules.assign(3, ModuleSlots(static_cast<std::size_t>(replica.num_slots)));
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    ReplicaAssignment& replica = assignment.replicas[rng.below(assignment.replicas.size())];
    const SampleWork work = sample_work(model, batch[i]);
    const auto slots = static_cast<std::uint64_t>(replica.num_slots);
    const std::uint64_t llm_slot = rng.below(slots);
    for (std::size_t module = 0; module < 2; ++module) {
      for (std::size_t segment = 0; segment < work.segments[module].size(); ++segment) {
        replica.modules[module][rng.below(llm_slot + 1)].push_back(
            {static_cast<int>(i), static_cast<int>(segment)});
      }
    }
    if (rng.below(4) == 0 && llm_slot + 1 < slots) {
      const auto cut =
          static_cast<std::int64_t>(1 + rng.below(static_cast<std::uint64_t>(work.llm_tokens) - 1));
      replica.modules[2][llm_slot].push_back({static_cast<int>(i), -1, 0, cut});
      replica.modules[2][llm_slot + 1].push_back({static_cast<int>(i), -1, cut, work.llm_tokens});
    } else {
      replica.modules[2][llm_slot].push_back({static_cast<int>(i)});
    }
  }
  for (ReplicaAssignment& replica : assignment.replicas) {
    for (ModuleSlots& slots : replica.modules) {
      for (Slot& slot : slots) {
        rng.shuffle(std::span<WorkItem>(slot));
      }
    }
  }
  return assignment;
}

TEST(AssignmentJson, RoundTripsRandomPlacements) {
  const ModelSpec model = two_encoders();
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Rng rng(seed);
    std::vector<SampleSizes> batch;
    const std::uint64_t count = 1 + rng.below(8);
    for (std::uint64_t i = 0; i < count; ++i) {
      batch.push_back(sample(
          "s" + std::to_string(i), static_cast<int>(rng.below(4)), static_cast<int>(rng.below(3))));
    }
    const StepAssignment assignment = random_assignment(rng, model, batch);
    const BatchNames names = batch_names(model, batch);
    const Json document = parse_json(to_json(assignment, names).dump(), "a.json");
    const StepAssignment again = assignment_from_json(document, names, "a.json");
    ASSERT_EQ(again.replicas, assignment.replicas) << "seed " << seed << "\n" << document.dump();
    ASSERT_EQ(digest(again), digest(assignment));
  }
}

TEST(AssignmentDigest, SeesThePlacementAlone) {
  const StepAssignment base = small_assignment();
  StepAssignment other = base;
  other.stats = {};
  other.policy = "random";
  EXPECT_EQ(digest(other), digest(base));
  other = base;
  std::swap(other.replicas[0].modules[0][0][0], other.replicas[0].modules[0][0][1]);
  EXPECT_NE(digest(other), digest(base)) << "packing order counts";
  other = base;
  std::swap(other.replicas[0].modules[0][1], other.replicas[0].modules[0][2]);
  EXPECT_NE(digest(other), digest(base));
  other = base;
  other.replicas[0].modules[2][1][0].token_end = 11;
  EXPECT_NE(digest(other), digest(base));
}

TEST(AssignmentDigest, IsGolden) {
  EXPECT_EQ(digest(small_assignment()), "cb8cb30cb2bc541513f2c2d0be2cd41e");
}

}  // namespace
}  // namespace entrain
