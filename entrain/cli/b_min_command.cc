// entrain b-min: from how many samples on one static plan fits every global batch.
#include <cmath>

#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"
#include "entrain/core/planner/stable_batch.h"
#include "entrain/core/report/table.h"
#include "entrain/core/study/study_work.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/cli/study_options.h"

namespace entrain::cli {
namespace {

constexpr int kMostDevices = 100'000;
constexpr double kLeastProbability = 1e-6;

struct BMinFlags {
  StudyInputs study;
  StableBatchRequest request;
  bool json = false;
};

StableBatchResult find(const BMinFlags& options, WorkTimes work_ns) {
  StableBatchRequest request = options.request;
  request.seed = options.study.seed;
  request.also.push_back(options.study.global_batch);
  request.work_ns = std::move(work_ns);
  return find_study_batch(std::move(request));
}

// Ratios of the module's work to the LLM's; null where nothing limits them.
Json ratio_json(const FactorRange& range, double ratio) {
  Json high = nullptr;
  if (std::isfinite(range.high)) {
    high = range.high * ratio;
  }
  return {{"low", range.low * ratio}, {"data", ratio}, {"high", high}};
}

double ratio_to_llm(const std::vector<std::int64_t>& all, std::size_t module) {
  return static_cast<double>(all[module]) /
         static_cast<double>(std::max<std::int64_t>(1, all.back()));
}

Json to_json(const StableBatchResult& result,
             const BMinFlags& options,
             const Study& study,
             const std::vector<std::int64_t>& all) {
  Json sizes = Json::array();
  for (const BatchSizeSplits& size : result.sizes) {
    Json splits = Json::array();
    for (const CountedSplit& split : size.splits) {
      splits.push_back({{"devices", split.devices_of}, {"count", split.count}});
    }
    sizes.push_back({{"batch", size.batch},
                     {"with_replacement", size.with_replacement},
                     {"reference", size.reference},
                     {"settled", size.settled()},
                     {"splits", splits}});
  }
  Json ratios = Json::object();
  for (std::size_t module = 0; module + 1 < all.size(); ++module) {
    ratios[study.module_names()[module]] = ratio_json(
        factor_range(result.region, all, static_cast<int>(module)), ratio_to_llm(all, module));
  }
  return {{"note", study.note()},
          {"modules", study.module_names()},
          {"devices", options.request.devices},
          {"samples", study.ids.size()},
          {"shares", result.shares},
          {"split", result.region.devices_of},
          {"margin_devices", result.margin},
          {"work_ratios", ratios},
          {"draws", result.draws},
          {"alpha", result.alpha},
          {"error", result.error},
          {"search_alpha", result.search_alpha()},
          {"b_min", result.b_min > 0 ? Json(result.b_min) : Json(nullptr)},
          {"proven", result.proven > 0 ? Json(result.proven) : Json(nullptr)},
          {"reason", result.reason},
          {"global_batch", options.study.global_batch},
          {"stable", result.is_stable(options.study.global_batch)},
          {"sizes", sizes}};
}

std::string mix_text(const StableBatchResult& result,
                     const Study& study,
                     const std::vector<std::int64_t>& all) {
  std::vector<std::string> shares;
  for (const double share : result.shares) {
    shares.push_back(format_fixed(share, 2));
  }
  std::string text = concat(join(study.module_names(), ":"),
                            ": all ",
                            format_count(std::ssize(study.ids)),
                            " samples need ",
                            join(shares, ":"),
                            " devices, so ",
                            split_text(result.region.devices_of),
                            " (",
                            format_fixed(result.margin, 2),
                            " devices from the next split)\n");
  for (std::size_t module = 0; module + 1 < all.size(); ++module) {
    const FactorRange range = factor_range(result.region, all, static_cast<int>(module));
    const double ratio = ratio_to_llm(all, module);
    text += concat(study.module_names()[module],
                   ":llm work ",
                   format_fixed(ratio, 3),
                   "; the split fits ",
                   format_fixed(range.low * ratio, 3),
                   " to ",
                   std::isfinite(range.high) ? format_fixed(range.high * ratio, 3) : "any",
                   "\n");
  }
  return text;
}

std::string splits_table(const StableBatchResult& result) {
  Table table({"batch", "split seen (batches)", "drawn"});
  for (const BatchSizeSplits& size : result.sizes) {
    std::vector<std::string> splits;
    for (const CountedSplit& split : size.splits) {
      splits.push_back(concat(split_text(split.devices_of), " (", split.count, ")"));
    }
    table.add_row({format_count(size.batch),
                   join(splits, "  "),
                   size.with_replacement ? "with replacement" : "without"});
  }
  return table.to_text();
}

std::string verdict_text(const StableBatchResult& result, int global_batch) {
  if (result.b_min == 0) {
    return concat("b_min: none; ", result.reason, "\n");
  }
  std::string text = concat("b_min ",
                            format_count(result.b_min),
                            ": with confidence ",
                            format_fixed(100 * (1 - result.alpha), 1),
                            " % a new batch of so many samples needs another split with "
                            "probability at most ",
                            format_fixed(100 * result.error, 1),
                            " % (",
                            counted(result.draws, "validation batch"),
                            " per size, ",
                            counted(result.sizes_tried, "size"),
                            ")\n");
  if (result.proven > 0) {
    text += concat("proven, for batches drawn from these samples, from ",
                   format_count(result.proven),
                   " samples on\n");
  }
  text += concat(
      "global batch ",
      format_count(global_batch),
      result.is_stable(global_batch) ? ": yes, one static plan fits\n" : ": no, below b_min\n");
  for (const BatchSizeSplits& size : result.sizes) {
    if (size.batch == global_batch && result.is_stable(global_batch) && !size.settled()) {
      text += concat("though ",
                     result.draws + 1 - size.splits.front().count,
                     " of its own ",
                     result.draws + 1,
                     " batches need another split: the mix is near a boundary\n");
    }
  }
  return text;
}

int run(const BMinFlags& options) {
  const Study study = open_study(options.study);
  WorkTimes work_ns = study_work(study);
  const std::vector<std::int64_t> all = total_work(work_ns);
  const StableBatchResult result = find(options, std::move(work_ns));
  if (options.json) {
    print_json(to_json(result, options, study, all));
  } else {
    print_text(concat(study.note(),
                      "\n",
                      mix_text(result, study, all),
                      "\n",
                      splits_table(result),
                      "split seen: devices of each module that a batch's work needs, and how "
                      "many batches did\n\n",
                      verdict_text(result, options.study.global_batch)));
  }
  return result.is_stable(options.study.global_batch) ? 0 : kExitNo;
}

}  // namespace

void add_b_min_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<BMinFlags>();
  CLI::App* command = add_command(
      app,
      "b-min",
      "Finds the batch size from which every batch needs the same split of devices among the "
      "modules, and checks the global batch against it (exit code 4 if it is smaller).",
      "entrain b-min --index train.csv --model model.toml --profile analytic:a40 --devices 16 "
      "--global-batch 512");
  add_study_options(*command, options->study);
  StableBatchRequest& request = options->request;
  command
      ->add_option("--devices",
                   request.devices,
                   "devices of one replica; the devices of a tensor or context parallel group "
                   "count once")
      ->transform(whole(1, kMostDevices))
      ->capture_default_str();
  command->add_option("--alpha", request.alpha, "probability of a wrong certificate")
      ->transform(number({kLeastProbability, 1 - kLeastProbability}))
      ->capture_default_str();
  command->add_option("--error", request.error, "probability of another split to certify")
      ->transform(number({kLeastProbability, 1 - kLeastProbability}))
      ->capture_default_str();
  command
      ->add_option(
          "--limit", request.limit, "largest batch to try; 0: as many as there are samples")
      ->transform(whole(0, kMostSamples))
      ->capture_default_str();
  command->add_option("--also", request.also, "batch sizes to draw as well, for the table")
      ->delimiter(',')
      ->transform(whole(1, kMostSamples));
  command->add_flag("--json", options->json, "print the result as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
