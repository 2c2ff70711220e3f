#include "entrain/engine/train/feed_run.h"

#include <array>
#include <chrono>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/version.h"

#include "entrain/engine/data/step_needs.h"
#include "entrain/engine/train/prepared_step.h"

namespace entrain::engine {
namespace {

constexpr const char* kStepsKey = "steps";

}  // namespace

std::string feed_difference(const FeedRun& theirs, const FeedRun& ours) {
  const std::array<std::tuple<const char*, const std::string*, const std::string*>, 4> facts = {
      {{"version", &theirs.version, &ours.version},
       {"model", &theirs.model, &ours.model},
       {"index", &theirs.index, &ours.index},
       {"plan", &theirs.plan, &ours.plan}}};
  for (const auto& [what, there, here] : facts) {
    if (*there != *here) {
      return std::string(what) == "version" ? concat(what, " ", *here, ", here ", *there)
                                            : concat("another ",
                                                     what,
                                                     " (",
                                                     short_digest(*here),
                                                     ", here ",
                                                     short_digest(*there),
                                                     ")");
    }
  }
  Json there = Json::parse(theirs.data, nullptr, /*allow_exceptions=*/false);
  Json here = Json::parse(ours.data);
  here.erase(kStepsKey);  // how many there are changes none of them
  if (there.is_object()) {
    there.erase(kStepsKey);
  }
  for (const auto& [key, value] : here.items()) {
    if (!there.is_object() || !there.contains(key) || there[key] != value) {
      return concat(key,
                    " ",
                    value.dump(),
                    ", here ",
                    there.is_object() ? there.value(key, Json()).dump() : "nothing");
    }
  }
  return there == here ? "" : "[data] of other keys";
}

std::int64_t steps_of(const FeedRun& run) {
  return Json::parse(run.data).at(kStepsKey).get<std::int64_t>();
}

std::string required_key(const FeedAddress& address, const char* where) {
  return concat(where,
                ": '",
                address.text,
                "' is reached over a network and there is no key: make one with `entrain feed "
                "--new-key feed.key` and give it to both sides (entrain feed --key, "
                "data.feed_key)");
}

FeedRun feed_run_of(const RunSetup& setup) {
  Json data = setup.identity.config.at("data");
  for (const char* key : {"train",
                          "read_ahead_mib",
                          "decode_threads",
                          "share_decoding",
                          "feed",
                          "feed_key",
                          "feed_deadline_s"}) {
    data.erase(key);
  }
  data["seed"] = setup.config.seed;
  data[kStepsKey] = setup.config.steps;
  data["update_every"] = setup.config.optimizer.update_every;
  data["on_bad_sample"] = setup.config.faults.on_bad_sample;
  data["mixture"] = digest_of(data["mixture"].dump());
  return {std::string(version()),
          setup.identity.model_digest,
          setup.identity.index_digest,
          setup.identity.plan_digest,
          data.dump()};
}

FeedOptions unfed_options(const RunSetup& setup,
                          int replica,
                          int lane,
                          int rank,
                          int readers,
                          std::function<void(const std::string&)> note) {
  FeedOptions options;
  options.deadline =
      std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * setup.config.data.feed_deadline_s));
  options.run = feed_run_of(setup);
  options.replica = replica;
  options.lane = lane;
  options.rank = rank;
  options.readers = readers;
  options.note = std::move(note);
  return options;
}

void add_feeds(const DataConfig& data, FeedOptions& options) {
  for (const std::string& text : data.feed) {
    options.addresses.push_back(read_feed_address(text, "data.feed", /*listens=*/false));
    if (data.feed_key.empty() && !options.addresses.back().local) {
      throw InvalidInput(required_key(options.addresses.back(), "data.feed"));
    }
  }
  if (!data.feed_key.empty()) {
    options.key = read_feed_key(data.feed_key);
  }
}

Json first_needs(const RunSetup& setup) {
  const PreparedStep step = prepare_step(setup, 0);
  const bool text_positions = !setup.model.llm.mrope_sections.empty();
  Json ranks = Json::array();
  for (int replica = 0; replica < setup.plan.replicas; ++replica) {
    for (int lane = 0; lane < setup.plan.num_lanes(); ++lane) {
      const StepNeeds needs = needs_of(step.program, replica, lane, step.batch, text_positions);
      if (!needs.segments.empty() || !needs.texts.empty()) {
        const std::vector<std::int64_t> bytes =
            segment_bytes(needs, setup.train.index, setup.model);
        ranks.push_back(
            {{"replica", replica},
             {"lane", lane},
             {"segments", needs.segments.size()},
             {"segment_bytes", std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0})},
             {"texts", needs.texts.size()}});
      }
    }
  }
  return ranks;
}

}  // namespace entrain::engine
