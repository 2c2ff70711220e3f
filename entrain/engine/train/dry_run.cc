#include "entrain/engine/train/dry_run.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"
#include "entrain/core/report/table.h"

namespace entrain::engine {
namespace {

constexpr std::size_t kShownRows = 24;   // of lanes' stages, and of slots
constexpr std::size_t kWidestCell = 30;  // of samples' ids

std::string plan_line(const RunSetup& setup) {
  const Plan& plan = setup.plan;
  return concat("plan: ",
                counted(plan.replicas, "replica"),
                " x ",
                counted(plan.num_lanes(), "lane"),
                ", ",
                counted(plan.num_slots, "slot"),
                ", policy ",
                plan.policy,
                ", schedule ",
                plan.schedule,
                plan.shard_optimizer ? ", sharded optimizer state" : "",
                "\n");
}

// "0 to 3", and how many of them are recomputed.
std::string layers_text(const LayerRange& range, int recomputed) {
  return concat(range.begin,
                " to ",
                range.end - 1,
                recomputed > 0 ? concat(" (", recomputed, " recomputed)") : std::string());
}

std::string lanes_table(const RunSetup& setup, const MemoryFit& fit) {
  Table table({"lane", "stage", "layers", "parameters", "per rank", "peak activations"});
  std::size_t rows = 0;
  std::size_t hidden = 0;
  for (const LaneMemory& lane : fit.lanes) {
    bool first = true;
    for (const StageRef& ref : setup.plan.lanes[static_cast<std::size_t>(lane.lane)]) {
      if (++rows > kShownRows) {
        ++hidden;
        continue;
      }
      const ModulePlan& module = setup.plan.modules[static_cast<std::size_t>(ref.module)];
      const LayerRange& range = module.stages[static_cast<std::size_t>(ref.stage)];
      std::int64_t parameters = 0;
      for (int layer = range.begin; layer < range.end; ++layer) {
        parameters += layer_parameters(setup.model, ref.module, layer);
      }
      table.add_row({first ? std::to_string(lane.lane) : "",
                     concat(module.name, " ", ref.stage),
                     layers_text(range, module.recomputed(ref.stage)),
                     format_count(parameters),
                     first ? format_bytes(lane.total() - lane.activations) : "",
                     first ? format_bytes(lane.activations) : ""});
      first = false;
    }
  }
  return table.to_text() + (hidden > 0 ? concat("and ", hidden, " more stages\n") : std::string());
}

// "s001, s002 +3", cut to a column's width.
std::string names_text(const Slot& slot, const std::vector<std::string>& ids) {
  std::string text;
  std::size_t left = slot.size();
  for (const WorkItem& item : slot) {
    const std::string& id = ids[static_cast<std::size_t>(item.sample)];
    if (text.size() + id.size() > kWidestCell) {
      break;
    }
    text += concat(text.empty() ? "" : ", ", id);
    --left;
  }
  return left > 0 ? concat(text, text.empty() ? "" : " ", "+", left) : text;
}

std::int64_t tokens_of(const Slot& slot, int module, const StepCosts& costs) {
  std::int64_t tokens = 0;
  for (const WorkItem& item : slot) {
    const ModuleCosts& of_module = costs.modules[static_cast<std::size_t>(module)];
    tokens += item.is_chunk()
                  ? item.token_end - item.token_begin
                  : of_module.tokens[static_cast<std::size_t>(costs.unit_of(module, item))];
  }
  return tokens;
}

// A slot a row: pieces and tokens of every encoder, then the LLM's samples.
std::string slots_table(const RunSetup& setup, const PreparedStep& first) {
  std::vector<std::string> header = {"replica", "slot"};
  constexpr int kShownEncoders = 2;
  const int encoders = std::min(setup.model.llm_module(), kShownEncoders);
  for (int module = 0; module < encoders; ++module) {
    header.push_back(module_name(setup.model, module).substr(0, 10));
    header.emplace_back("tokens");
  }
  header.insert(header.end(), {"llm", "tokens", "samples of the LLM"});
  Table table(header);
  std::size_t rows = 0;
  for (std::size_t replica = 0; replica < first.assignment.replicas.size(); ++replica) {
    const ReplicaAssignment& own = first.assignment.replicas[replica];
    for (std::size_t slot = 0; slot < static_cast<std::size_t>(own.num_slots); ++slot) {
      if (++rows > kShownRows) {
        continue;
      }
      std::vector<std::string> cells = {std::to_string(replica), std::to_string(slot)};
      for (int module = 0; module <= setup.model.llm_module(); ++module) {
        if (module >= encoders && module != setup.model.llm_module()) {
          continue;
        }
        const Slot& items = own.modules[static_cast<std::size_t>(module)][slot];
        cells.push_back(std::to_string(items.size()));
        cells.push_back(format_count(tokens_of(items, module, first.costs)));
      }
      cells.push_back(names_text(own.modules.back()[slot], first.sample_ids));
      table.add_row(std::move(cells));
    }
  }
  return table.to_text() +
         (rows > kShownRows ? concat("and ", rows - kShownRows, " more slots (--json shows all)\n")
                            : std::string());
}

Json memory_json(const MemoryFit& fit) {
  Json lanes = Json::array();
  for (const LaneMemory& lane : fit.lanes) {
    lanes.push_back({{"lane", lane.lane},
                     {"ranks", lane.ranks},
                     {"weight_bytes", lane.weights},
                     {"gradient_bytes", lane.gradients},
                     {"moment_bytes", lane.moments},
                     {"master_bytes", lane.masters},
                     {"activation_bytes", lane.activations}});
  }
  Json places = Json::array();
  for (const MemoryPlace& place : fit.places) {
    places.push_back({{"name", place.name},
                      {"rank_bytes", place.of_ranks},
                      {"read_ahead_bytes", place.read_ahead},
                      {"checkpoint_bytes", place.checkpoint},
                      {"needed_bytes", place.needed()},
                      {"available_bytes", place.available_bytes},
                      {"source", place.source}});
  }
  return {{"fits", fit.fits()}, {"lanes", lanes}, {"places", places}};
}

}  // namespace

std::string dry_run_page(const RunSetup& setup, const PreparedStep& first, const MemoryFit& fit) {
  std::size_t deferred = 0;
  for (const ReplicaAssignment& replica : first.assignment.replicas) {
    deferred += deferrals(replica).size();
  }
  std::string page = plan_line(setup) + lanes_table(setup, fit);
  page += "\nmemory, predicted" +
          std::string(fit.fits() ? "" : "; the run would be refused here (exit code 4)") + "\n" +
          to_string(fit);
  page += concat("\nfirst step: ",
                 counted(std::ssize(first.batch), "sample"),
                 ", ",
                 counted(deferred, "piece"),
                 " deferred to a later slot\n",
                 slots_table(setup, first));
  if (setup.resume.has_value()) {
    page += concat("\ntraining would continue at step ",
                   setup.resume->manifest.step,
                   " from ",
                   setup.resume->checkpoint.string(),
                   "\n");
  }
  page += concat("\n", epoch_note(setup), "\n", costs_note(setup), "\n");
  page += concat("predicted step time ",
                 format_duration(first.predicted.makespan),
                 ", lower bound ",
                 format_duration(std::chrono::nanoseconds(
                     static_cast<std::int64_t>(first.assignment.stats.lower_bound_s * 1e9))),
                 "; nothing was trained.\n");
  return page;
}

Json dry_run_json(const RunSetup& setup, const PreparedStep& first, const MemoryFit& fit) {
  std::vector<SampleSizes> batch;
  for (const int sample : first.batch) {
    batch.push_back(setup.train.index.samples[static_cast<std::size_t>(sample)]);
  }
  return {{"config", to_json(setup.config)},
          {"plan", to_json(setup.plan)},
          {"assignment", to_json(first.assignment, batch_names(setup.model, batch))},
          {"memory", memory_json(fit)}};
}

}  // namespace entrain::engine
