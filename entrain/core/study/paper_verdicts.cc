// The verdicts of paper_page.h.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/statistics.h"
#include "entrain/core/study/paper_page.h"
#include "entrain/core/study/paper_rows.h"

namespace entrain {
namespace {

using Results = std::vector<Json>;

// "0.86–1.81"
std::string range(std::vector<double> values, int digits = 2) {
  if (values.empty()) {
    return "none";
  }
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return fmt::format("{:.{}f}–{:.{}f}", *low, digits, *high, digits);
}

// "1.00–1.01 (4 settings)"
std::string range_of_settings(const std::vector<double>& values) {
  return fmt::format("{} ({})", range(values), counted(std::ssize(values), "setting"));
}

std::size_t above(const std::vector<double>& values, double bar) {
  return at(std::count_if(values.begin(), values.end(), [bar](double v) { return v > bar; }));
}

PaperAnswer by_share(std::size_t holding, std::size_t of) {
  return holding == of ? PaperAnswer::kYes : holding == 0 ? PaperAnswer::kNo : PaperAnswer::kPartly;
}

// Where the paper's models are trained whole, as it did.
std::vector<const Json*> paper_settings(const Results& results) {
  std::vector<const Json*> found;
  for (const Json* result : of_kind(results, "setting")) {
    if (result->at("variant") == "") {
      found.push_back(result);
    }
  }
  return found;
}

using Figure = std::function<double(const Json& setting, const Json& row)>;

double step_figure(const Json& /*setting*/, const Json& row) {
  return step_of(row);
}

// A figure of one contestant over another's, in every setting that has both.
std::vector<double> ratios(const std::vector<const Json*>& settings,
                           const Contestant& above,
                           const Contestant& below,
                           const std::string& memory,
                           const Figure& figure) {
  std::vector<double> result;
  for (const Json* setting : settings) {
    const Json* a = row_of(*setting, above, memory);
    const Json* b = row_of(*setting, below, memory);
    if (a != nullptr && b != nullptr) {
      result.push_back(figure(*setting, *a) / figure(*setting, *b));
    }
  }
  return result;
}

// What `key` of a contestant's rows is, in every setting.
std::vector<double> figures(const std::vector<const Json*>& settings,
                            const Contestant& whose,
                            const std::string& key) {
  std::vector<double> values;
  for (const Json* setting : settings) {
    if (const Json* row = row_of(*setting, whose, "free"); row != nullptr) {
      values.push_back(row->at(key).get<double>());
    }
  }
  return values;
}

PaperVerdict small_batches_mislead(const std::vector<const Json*>& settings) {
  std::size_t settled = 0;
  std::size_t unsettled = 0;
  std::vector<double> largest;  // b_min
  std::size_t sizes = 0;
  for (const Json* setting : settings) {
    for (const Json& devices : setting->at("sizes")) {
      ++sizes;
      for (const Json& size : devices.at("sizes")) {
        unsettled += size.at("batch") == 1 && size.at("splits").size() > 1 ? 1U : 0U;
        settled += size.at("batch") == 256 && size.at("splits").size() == 1 ? 1U : 0U;
      }
      if (devices.at("b_min").get<int>() > 0) {
        largest.push_back(devices.at("b_min").get<double>());
      }
    }
  }
  return {
      "One sample asks for many splits, a batch of 256 for one.",
      "tables 1, 5–11",
      by_share(std::min(settled, unsettled), sizes),
      fmt::format("Single samples ask for more than one split in {} of {} cases, batches of 256 "
                  "for one split in {}; b_min was found in {} cases, {} samples.",
                  unsettled,
                  sizes,
                  settled,
                  largest.size(),
                  range(largest, 0))};
}

PaperVerdict theorem_holds(const std::vector<const Json*>& settings) {
  std::size_t held = 0;
  std::vector<double> differ;
  for (const Json* setting : settings) {
    for (const Json& devices : setting->at("sizes")) {
      if (devices.at("fresh_batches").get<int>() > 0) {
        differ.push_back(100 * devices.at("fresh_differ").get<double>() /
                         devices.at("fresh_batches").get<double>());
        held += differ.back() <= 5 ? 1U : 0U;
      }
    }
  }
  return {
      "A fresh batch of b_min samples asks for another split with a probability of at most 5 %.",
      "algorithm 1, appendix B",
      by_share(held, differ.size()),
      fmt::format("Of 1,000 fresh batches {} % differ ({} of {} cases within 5 %).",
                  range(differ, 1),
                  held,
                  differ.size())};
}

PaperVerdict ratio_converges(const std::vector<const Json*>& settings) {
  std::vector<double> one;
  std::vector<double> many;
  std::size_t holding = 0;
  std::size_t without = 0;  // settings in which some single samples have no encoder work
  for (const Json* setting : settings) {
    const Json& sizes = setting->at("ratios").at("sizes");
    const auto width = [](const Json& size) {
      const auto low = size.at("p5").get<double>();
      return low > 0 ? size.at("p95").get<double>() / low : std::numeric_limits<double>::infinity();
    };
    const double of_one = width(sizes.front());
    const double of_many = width(sizes.at(4));
    holding += of_one > 2 && of_many < 1.5 ? 1U : 0U;
    if (std::isfinite(of_one)) {
      one.push_back(of_one);
    } else {
      ++without;
    }
    many.push_back(of_many);
  }
  return {"The ratio of encoder to LLM work is chaotic by sample and settles by batch.",
          "figures 4, 5",
          by_share(holding, settings.size()),
          fmt::format("The 95th percentile over the 5th: {} for one sample (without bound in {} of "
                      "{} settings, where some have no encoder work), {} for 256.",
                      range(one, 1),
                      without,
                      settings.size(),
                      range(many))};
}

PaperVerdict faster_than_disttrain(const std::vector<const Json*>& settings) {
  const std::vector<double> times =
      ratios(settings, kDistTrain, kEntrainPaper, "free", step_figure);
  const std::vector<double> equal =
      ratios(settings, kDistTrain, kEntrainPaper, "equal", step_figure);
  const std::vector<double> device =
      ratios(settings, kDistTrain, kEntrainPaper, "device", step_figure);
  const std::size_t faster = above(times, 1);
  return {
      "The paper's assignment is up to 1.40 times as fast as DistTrain's.",
      "figure 11",
      faster == times.size() && above(times, 1.35) > 0 ? PaperAnswer::kYes
      : faster > 0                                     ? PaperAnswer::kPartly
                                                       : PaperAnswer::kNo,
      fmt::format("DistTrain's step over the paper's, each under its own plan with 1f1b: {} "
                  "(median {:.2f}), above 1 in {} of {} settings; where both keep the memory of "
                  "lpt-2d: {}, of a device with recomputation: {}.",
                  range(times),
                  median(times),
                  faster,
                  times.size(),
                  range_of_settings(equal),
                  range_of_settings(device))};
}

PaperVerdict less_variable(const std::vector<const Json*>& settings) {
  const auto spread_of = [&](bool encoders) {
    return ratios(settings,
                  kDistTrain,
                  kEntrainPaper,
                  "free",
                  [encoders](const Json& setting, const Json& row) {
                    return std::max(slot_std_ms(setting, row, encoders), 1e-6);
                  });
  };
  const std::vector<double> encoders = spread_of(true);
  const std::vector<double> llm = spread_of(false);
  const std::vector<double> slots = figures(settings, kEntrainPaper, "num_slots");
  return {
      "Forward times of microbatches vary up to 10.6 times less.",
      "table 3, figure 15",
      by_share(above(encoders, 2), encoders.size()),
      fmt::format("DistTrain's standard deviation over the paper's: encoders {}, LLM {}. The "
                  "paper's assignment cuts K from 32 to {} for it, and fewer, longer slots fill "
                  "and drain longer: balance is not step time.",
                  range(encoders, 1),
                  range(llm, 1),
                  range(slots, 1))};
}

PaperVerdict less_memory(const std::vector<const Json*>& settings) {
  const auto peak = [](const Json& /*setting*/, const Json& row) {
    return row.at("peak_bytes").get<double>();
  };
  const std::vector<double> peaks = ratios(settings, kEntrainPaper, kDistTrain, "free", peak);
  const std::size_t less = peaks.size() - above(peaks, 1);
  std::vector<double> lanes;  // of the first step
  for (const Json* setting : settings) {
    const Json* theirs = row_of(*setting, kEntrainPaper, "free");
    const Json* others = row_of(*setting, kDistTrain, "free");
    const auto of = [](const Json* row) {
      return row == nullptr ? Json() : row->value("lane_peak_bytes", Json());
    };
    const Json a = of(theirs);
    const Json b = of(others);
    for (std::size_t lane = 0; lane < std::min(a.size(), b.size()); ++lane) {
      lanes.push_back(a[lane].get<double>() / std::max(1.0, b[lane].get<double>()));
    }
  }
  return {"It needs less memory than DistTrain.",
          "figure 13",
          by_share(less, peaks.size()),
          fmt::format(
              "Peak activation bytes of the fullest lane over DistTrain's, memory free: {}; lane "
              "by lane {}, less on {} of {}.",
              range(peaks),
              range(lanes),
              lanes.size() - above(lanes, 1),
              lanes.size())};
}

PaperVerdict plans_matter(const std::vector<const Json*>& settings) {
  std::vector<double> worst;
  std::size_t alike = 0;  // settings whose worst split costs about what the paper found
  std::size_t right = 0;
  std::vector<double> off;  // the paper's split over the best
  for (const Json* setting : settings) {
    double best = std::numeric_limits<double>::infinity();
    double most = 0;
    for (const Json& mean : setting->at("sensitivity")) {
      best = std::min(best, mean.get<double>());
      most = std::max(most, mean.get<double>());
    }
    const std::string split = setting->at("stages").at("b-min");
    if (setting->at("sensitivity").contains(split)) {
      off.push_back(setting->at("sensitivity").at(split).get<double>() / best);
      right += off.back() <= 1.06 ? 1U : 0U;
    }
    worst.push_back(most / best);
    alike += worst.back() >= 1.5 && worst.back() <= 2 ? 1U : 0U;
  }
  const PaperAnswer answer = by_share(right, off.size());
  return {
      "A wrong split costs up to 1.66 to 1.85 times the step; the chosen one is best, or within 6 "
      "%.",
      "figures 14, 24–26",
      answer == PaperAnswer::kYes && alike < worst.size() ? PaperAnswer::kPartly : answer,
      fmt::format(
          "The worst split of 8 stages takes {} times the best one's step (1.5 to 2 in {} of "
          "{}); that of the paper's rounded shares {} ({} of {} within 6 %).",
          range(worst),
          alike,
          counted(std::ssize(worst), "setting"),
          range(off),
          right,
          off.size())};
}

PaperVerdict fewer_bubbles(const Results& results) {
  std::vector<double> theirs;
  std::vector<double> paper;
  std::vector<double> ours;
  std::size_t less = 0;
  for (const Json* result : of_kind(results, "bubbles")) {
    const Json* a = row_of(*result, {"ours", "disttrain", "1f1b"}, "free");
    const Json* b = row_of(*result, {"ours", "entrain-paper", "1f1b"}, "free");
    const Json* c = row_of(*result, {"ours", "entrain", "entrain"}, "free");
    if (a != nullptr && b != nullptr && c != nullptr) {
      theirs.push_back(a->at("bubble").get<double>());
      paper.push_back(b->at("bubble").get<double>());
      ours.push_back(c->at("bubble").get<double>());
      less += paper.back() < theirs.back() ? 1U : 0U;
    }
  }
  return {
      "Bubbles shrink.",
      "figures 5, 6",
      by_share(less, theirs.size()),
      fmt::format("4 stages, 16 microbatches of 4, one plan: DistTrain idles {} of the time, the "
                  "paper's assignment {}, `entrain` with its own schedule {}.",
                  range(theirs),
                  range(paper),
                  range(ours))};
}

constexpr double kTie = 0.002;  // of a step: less is no loss

// The best rival's step over ours in each setting, whatever its plan, policy and schedule: of the
// paper's degrees, ours being `entrain` under our plan of these, or also of all devices, ours being
// under the faster of our two plans.
struct Best {
  std::vector<double> ratios;
  std::map<std::string, int> who;
  std::vector<std::string> losses;  // where ours is slower by more than kTie
};
Best best_rivals(const Results& results, const std::string& memory, bool all_devices) {
  Best best;
  for (const Json* setting : of_kind(results, "setting")) {
    const Json* rival = nullptr;
    const Json* ours = nullptr;
    for (const Json& row : setting->at("rows")) {
      if (row.at("memory") != memory || !has_step(row) ||
          (plans_all_devices(row) && !all_devices)) {
        continue;
      }
      const bool is_entrain = row.at("policy") == "entrain";
      if (is_entrain && row.at("planner") != kOurs.planner &&
          row.at("planner") != kSearched.planner) {
        continue;
      }
      const Json*& of = is_entrain ? ours : rival;
      of = of == nullptr || step_of(row) < step_of(*of) ? &row : of;
    }
    if (rival != nullptr && ours != nullptr) {
      best.ratios.push_back(step_of(*rival) / step_of(*ours));
      ++best.who[rival->at("policy").get<std::string>()];
      if (best.ratios.back() < 1 - kTie) {
        best.losses.push_back(fmt::format("{} by {:.3f} (plan {}, policy {}, schedule {})",
                                          setting_name(*setting),
                                          best.ratios.back(),
                                          rival->at("planner").get<std::string>(),
                                          rival->at("policy").get<std::string>(),
                                          rival->at("schedule").get<std::string>()));
      }
    }
  }
  return best;
}

PaperVerdict ours_is_fastest(const Results& results, const std::string& memory, bool all_devices) {
  const Best best = best_rivals(results, memory, all_devices);
  const std::string claim =
      all_devices
          ? "Nobody is faster than `entrain` where everybody chooses replicas and degrees too"
          : "Nobody is faster than `entrain`, by whatever policy, plan and schedule of the "
            "paper's degrees";
  std::vector<std::string> who;
  for (const auto& [policy, count] : best.who) {
    who.push_back(fmt::format("{} in {}", policy, count));
  }
  const std::size_t won = best.ratios.size() - best.losses.size();
  const std::size_t faster = above(best.ratios, 1 + kTie);
  return {
      fmt::format("{}, memory {}.", claim, memory),
      "ours",
      by_share(won, best.ratios.size()),
      fmt::format("The fastest of all rivals' steps over ours: {} (median {:.3f}). Of {} "
                  "`entrain` is faster than all rivals in {}, within 0.2 % of the fastest in {}, "
                  "slower in {}. The fastest rival is {}.{}",
                  range(best.ratios, 3),
                  median(best.ratios),
                  counted(std::ssize(best.ratios), "setting"),
                  faster,
                  won - faster,
                  best.losses.size(),
                  join(who),
                  best.losses.empty() ? "" : " It loses " + join(best.losses, "; ") + ".")};
}

PaperVerdict robust(const Results& results) {
  // By what is wrong and how much: draws that we win, all.
  std::map<std::pair<std::string, int>, std::pair<int, int>> won;
  for (const Json* result : of_kind(results, "wrong-costs")) {
    for (const Json& row : result->at("rows")) {
      const Json& times = row.at("times");
      double rival = std::numeric_limits<double>::infinity();
      for (const auto& [policy, seconds] : times.items()) {
        rival = policy == "entrain" ? rival : std::min(rival, seconds.get<double>());
      }
      auto& [wins, all] = won[{row.at("wrong").get<std::string>(),
                               static_cast<int>(std::lround(100 * row.at("by").get<double>()))}];
      wins += times.at("entrain").get<double>() <= (1 + kTie) * rival ? 1 : 0;
      ++all;
    }
  }
  std::vector<std::string> words;
  int wins = 0;
  int draws = 0;
  for (const auto& [what, count] : won) {
    words.push_back(
        fmt::format("{} by {} %: {} of {}", what.first, what.second, count.first, count.second));
    wins += count.first;
    draws += count.second;
  }
  return {
      "It stays fastest when costs turn out wrong, or a stage or one device slow.",
      "ours",
      by_share(at(wins), at(draws)),
      fmt::format("Assigned by nominal costs under one plan with 1f1b, replayed by others; draws "
                  "in which nobody is more than 0.2 % faster: {}.",
                  join(words, "; "))};
}

}  // namespace

std::vector<PaperVerdict> paper_verdicts(const std::vector<Json>& results) {
  const std::vector<const Json*> settings = paper_settings(results);
  if (settings.empty()) {
    throw InvalidInput("a page of the study needs at least one setting");
  }
  return {faster_than_disttrain(settings),
          less_variable(settings),
          less_memory(settings),
          fewer_bubbles(results),
          small_batches_mislead(settings),
          theorem_holds(settings),
          ratio_converges(settings),
          plans_matter(settings),
          ours_is_fastest(results, "free", false),
          ours_is_fastest(results, "free", true),
          ours_is_fastest(results, "free, second seed", false),
          ours_is_fastest(results, "free, second seed", true),
          ours_is_fastest(results, "equal", false),
          ours_is_fastest(results, "equal", true),
          ours_is_fastest(results, "device", false),
          ours_is_fastest(results, "device", true),
          robust(results)};
}

}  // namespace entrain
