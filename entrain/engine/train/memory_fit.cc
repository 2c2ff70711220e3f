#include "entrain/engine/train/memory_fit.h"

#include <algorithm>
#include <limits>
#include <map>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/table.h"

#include "entrain/engine/models/device.h"
#include "entrain/engine/pipeline/rank_places.h"

namespace entrain::engine {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kFloat32Bytes = 4;
constexpr std::size_t kShownLanes = 16;

// Saturating; arguments must not be negative.
std::int64_t sum_of(std::int64_t a, std::int64_t b) {
  return a > kMost - b ? kMost : a + b;
}

std::int64_t product_of(std::int64_t a, std::int64_t b) {
  return b != 0 && a > kMost / b ? kMost : a * b;
}

LaneMemory lane_memory(const StateBytes& state, std::string_view dtype) {
  LaneMemory memory;
  memory.weights = state.parameter_bytes;
  memory.gradients = state.gradient_bytes;
  // Two moments, and for weights narrower than float32 also the master.
  memory.masters = dtype == "float32" ? 0 : state.optimizer_bytes / 3;
  memory.moments = state.optimizer_bytes - memory.masters;
  return memory;
}

// Bytes one lane's writer copies: float32 weights, and two moments of the trainable ones.
std::int64_t snapshot_bytes(const StateBytes& state, const StateOptions& options, int width) {
  const std::int64_t parameter = options.parameter_dtype == "float32" ? 4 : 2;
  const std::int64_t weights = state.parameter_bytes / parameter * kFloat32Bytes;
  return product_of(sum_of(weights, 2 * state.gradient_bytes), width);
}

// Decoded pieces of a replica's share of the batch, for encoders whose first stage is on the lane.
std::int64_t decoded_bytes(const RunSetup& setup, const PreparedStep& first, int lane) {
  std::int64_t bytes = 0;
  for (const StageRef& ref : setup.plan.lanes[static_cast<std::size_t>(lane)]) {
    if (ref.stage != 0 || ref.module == setup.model.llm_module()) {
      continue;
    }
    const auto module = static_cast<std::size_t>(ref.module);
    const EncoderSpec& encoder = setup.model.encoders[module];
    const std::int64_t values = encoder.modality == Modality::kVision
                                    ? patch_values(encoder)
                                    : std::int64_t{2} * encoder.mel_bands;
    for (const int sample : first.batch) {
      const SampleWork& work = setup.train.work[static_cast<std::size_t>(sample)];
      for (const SegmentWork& segment : work.segments[module]) {
        bytes = sum_of(bytes, segment.tokens * values * kFloat32Bytes);
      }
    }
  }
  return bytes / setup.plan.replicas;
}

void add_row(const LaneMemory& lane, bool masters, Table& table) {
  std::vector<std::string> cells = {std::to_string(lane.lane),
                                    std::to_string(lane.ranks),
                                    format_bytes(lane.weights),
                                    format_bytes(lane.gradients),
                                    format_bytes(lane.moments)};
  if (masters) {
    cells.push_back(format_bytes(lane.masters));
  }
  cells.push_back(format_bytes(lane.activations));
  cells.push_back(format_bytes(lane.total()));
  table.add_row(std::move(cells));
}

std::string lanes_table(std::vector<LaneMemory> lanes) {
  const bool masters =
      std::ranges::any_of(lanes, [](const LaneMemory& lane) { return lane.masters > 0; });
  std::vector<std::string> header = {"lane", "ranks", "weights", "gradients", "moments"};
  if (masters) {
    header.emplace_back("masters");
  }
  header.insert(header.end(), {"activations", "a rank"});
  const std::size_t shown = std::min(lanes.size(), kShownLanes);
  std::ranges::stable_sort(
      lanes, [](const LaneMemory& a, const LaneMemory& b) { return a.total() > b.total(); });
  std::ranges::stable_sort(
      lanes.begin(),
      lanes.begin() + static_cast<std::ptrdiff_t>(shown),
      [](const LaneMemory& a, const LaneMemory& b) { return a.lane < b.lane; });
  Table table(header);
  for (std::size_t i = 0; i < shown; ++i) {
    add_row(lanes[i], masters, table);
  }
  std::string text = table.to_text();
  if (shown < lanes.size()) {
    text += concat(
        "and ", counted(static_cast<std::int64_t>(lanes.size() - shown), "lane"), " with less\n");
  }
  return text;
}

std::string places_table(const std::vector<MemoryPlace>& places) {
  Table table({"", "all ranks", "read ahead", "checkpoint", "sum", "available"});
  for (const MemoryPlace& place : places) {
    table.add_row({place.name,
                   format_bytes(place.of_ranks),
                   format_bytes(place.read_ahead),
                   format_bytes(place.checkpoint),
                   format_bytes(place.needed()),
                   place.available_bytes < 0 ? "unknown" : format_bytes(place.available_bytes)});
  }
  return table.to_text();
}

}  // namespace

HostRanks all_ranks(const Plan& plan) {
  return {0, RankPlaces(plan).num_ranks()};
}

std::int64_t LaneMemory::total() const {
  return sum_of(sum_of(sum_of(weights, gradients), sum_of(moments, masters)), activations);
}

std::int64_t MemoryPlace::needed() const {
  return sum_of(of_ranks, sum_of(read_ahead, checkpoint));
}

std::int64_t MemoryPlace::missing() const {
  return available_bytes < 0 ? 0 : std::max<std::int64_t>(0, needed() - available_bytes);
}

std::int64_t MemoryFit::needed() const {
  std::int64_t bytes = 0;
  for (const MemoryPlace& place : places) {
    bytes = sum_of(bytes, place.needed());
  }
  return bytes;
}

std::int64_t MemoryFit::missing() const {
  std::int64_t bytes = 0;
  for (const MemoryPlace& place : places) {
    bytes = sum_of(bytes, place.missing());
  }
  return bytes;
}

MemorySupply memory_supply(const RunConfig& config) {
  MemorySupply supply;
  supply.host = host_memory();
  const at::Device first = device_of(config.execution.device);
  if (first.is_cpu()) {
    return supply;
  }
  // Ranks are assigned to devices round-robin.
  for (int rank = 0; rank == 0 || device_of(config.execution.device, rank) != first; ++rank) {
    supply.devices.push_back(free_bytes(device_of(config.execution.device, rank)).value_or(-1));
  }
  return supply;
}

MemoryFit memory_fit(const RunSetup& setup,
                     const PreparedStep& first,
                     const HostRanks& ranks,
                     const MemorySupply& supply) {
  const RankPlaces places(setup.plan);
  const StateOptions options = state_options(setup);
  const std::vector<StateBytes> states = lane_states(setup.model, setup.plan, options);
  MemoryFit fit;
  MemoryPlace& host = fit.places.emplace_back();
  host.name = "this host";
  host.available_bytes = supply.host.available_bytes;
  host.source = supply.host.source;
  for (std::size_t device = 0; device < supply.devices.size(); ++device) {
    MemoryPlace place;
    place.name = concat(setup.config.execution.device, ":", device);
    place.available_bytes = supply.devices[device];
    place.source = "the device's free memory";
    fit.places.push_back(std::move(place));
  }
  std::map<int, LaneMemory> lanes;
  for (int rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
    const RankPlace at = places.place_of(rank);
    const auto lane = static_cast<std::size_t>(at.lane);
    LaneMemory memory = lane_memory(states[lane], options.parameter_dtype);
    memory.lane = at.lane;
    memory.activations =
        first.predicted.lanes.at(static_cast<std::size_t>(at.replica)).at(lane).peak_bytes;
    const std::size_t devices = supply.devices.size();
    MemoryPlace& place =
        devices == 0 ? fit.places.front()
                     : fit.places[1 + static_cast<std::size_t>(rank - ranks.first) % devices];
    place.of_ranks = sum_of(place.of_ranks, memory.total());
    MemoryPlace& own = fit.places.front();
    own.read_ahead = sum_of(own.read_ahead,
                            std::min(setup.config.data.read_ahead_mib << 20U,
                                     product_of(2, decoded_bytes(setup, first, at.lane))));
    // On resume every rank reads its full lane; the first replica writes.
    if (setup.resume.has_value() || (at.replica == 0 && at.tensor_rank == 0)) {
      own.checkpoint =
          sum_of(own.checkpoint, snapshot_bytes(states[lane], options, places.width(at.lane)));
    }
    LaneMemory& shown = lanes[at.lane];
    const int count = shown.ranks + 1;
    if (memory.total() > shown.total()) {
      shown = memory;
    }
    shown.lane = at.lane;
    shown.ranks = count;
  }
  for (const auto& [index, lane] : lanes) {
    fit.lanes.push_back(lane);
  }
  return fit;
}

std::string to_string(const MemoryFit& fit) {
  std::string text;
  for (const MemoryPlace& place : fit.places) {
    if (place.missing() > 0) {
      text += concat(place.name,
                     " would need ",
                     format_bytes(place.needed()),
                     "; available: ",
                     format_bytes(place.available_bytes),
                     "\n(",
                     place.source,
                     ")\n");
    }
  }
  return text + lanes_table(fit.lanes) + places_table(fit.places);
}

std::string to_string(const std::vector<WayToFit>& ways) {
  std::string text;
  for (const WayToFit& way : ways) {
    text += concat("  ",
                   way.change,
                   "\n    ",
                   format_bytes(way.needed),
                   ", ",
                   format_bytes(way.saved),
                   " less",
                   way.fits ? ": fits" : ": still too much",
                   way.price.empty() ? "" : "; ",
                   way.price,
                   "\n");
  }
  return text;
}

std::string check_memory(const RunSetup& setup, const HostRanks& ranks) {
  if (setup.config.execution.paced) {
    return "";
  }
  const MemorySupply supply = memory_supply(setup.config);
  const MemoryFit fit = memory_fit(setup, prepare_step(setup, 0), ranks, supply);
  if (fit.fits()) {
    return "";
  }
  if (setup.config.execution.memory_check == "warn") {
    std::string text = concat(
        "the run is predicted not to fit into memory; it continues because "
        "execution.memory_check = \"warn\"\n",
        to_string(fit));
    text.pop_back();  // its last line's end
    return text;
  }
  const std::vector<WayToFit> ways = ways_to_fit(setup, ranks, supply, fit);
  throw NothingFits(
      concat("the run does not fit into memory, so nothing was allocated\n",
             to_string(fit),
             ways.empty()        ? "no single change of the run makes it smaller\n"
             : ways.front().fits ? "ways to fit:\n"
                                 : "no single change is enough; what saves most:\n",
             to_string(ways),
             "Predicted, not measured: execution.memory_check = \"warn\" continues anyway."));
}

std::string check_weights_memory(const ModelSpec& model,
                                 const std::filesystem::path& weights,
                                 const std::string& device,
                                 const std::string& check) {
  std::int64_t of_model = 0;
  for (int module = 0; module < model.num_modules(); ++module) {
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      of_model += kFloat32Bytes * layer_parameters(model, module, layer);
    }
  }
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(weights, error);
  const auto of_file =
      error ? 0 : static_cast<std::int64_t>(size);  // reading it reports the reason
  const at::Device place = device_of(device);
  const HostMemory host = host_memory();
  const std::int64_t on_host = of_file + (place.is_cpu() ? of_model : 0);
  const std::int64_t free = free_bytes(place).value_or(-1);
  const bool fits = (host.available_bytes < 0 || on_host <= host.available_bytes) &&
                    (free < 0 || of_model <= free);
  if (fits) {
    return "";
  }
  Table table({"", "model", "file being read", "available"});
  table.add_row({"this host",
                 format_bytes(place.is_cpu() ? of_model : 0),
                 format_bytes(of_file),
                 format_bytes(host.available_bytes)});
  if (!place.is_cpu()) {
    table.add_row({place.str(), format_bytes(of_model), "-", format_bytes(free)});
  }
  const std::string text =
      concat("the weights of model '", model.name, "' do not fit into memory\n", table.to_text());
  if (check == "warn") {
    return text;
  }
  throw NothingFits(text + "--memory-check warn continues anyway");
}

}  // namespace entrain::engine
