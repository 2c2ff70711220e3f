#include "entrain/core/study/epoch_order.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/balance/rivals.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/json_text.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/global_batch.h"

namespace entrain {
namespace {

std::vector<std::vector<int>> members_of(const CellOf& cells,
                                         std::span<const int> rows,
                                         int num_cells) {
  std::vector<std::vector<int>> result(at(num_cells));
  for (std::size_t i = 0; i < cells.size(); ++i) {
    result[at(cells[i])].push_back(rows[i]);
  }
  return result;
}

// numpy's format 1.0: little-endian int64 in rows; `columns` 0: one dimension.
std::string npy(const std::vector<std::int64_t>& values, int columns) {
  const std::string shape = columns == 0
                                ? fmt::format("({},)", values.size())
                                : fmt::format("({}, {})", values.size() / at(columns), columns);
  std::string header =
      fmt::format("{{'descr': '<i8', 'fortran_order': False, 'shape': {}, }}", shape);
  constexpr std::size_t kPrefix = 10;
  header.append(63 - (kPrefix + header.size()) % 64, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes.push_back(static_cast<char>(header.size() & 0xFFU));
  bytes.push_back(static_cast<char>(header.size() >> 8U));
  bytes += header;
  static_assert(std::endian::native == std::endian::little);
  const std::span<const std::byte> content = std::as_bytes(std::span(values));
  bytes.append(reinterpret_cast<const char*>(content.data()), content.size());
  return bytes;
}

void refuse_oversized(const Study& study,
                      BalanceRequest request,
                      const std::vector<BalanceRequest::Sample>& samples) {
  request.samples = samples;
  std::string names;
  const std::vector<int> oversized = oversized_samples(request);
  for (std::size_t i = 0; i < std::min<std::size_t>(5, oversized.size()); ++i) {
    names += fmt::format("{}{}", i == 0 ? "" : ", ", study.ids[at(oversized[i])]);
  }
  if (!oversized.empty()) {
    throw NothingFits(fmt::format("{} of {} exceed the limits of a microbatch alone: {}{}",
                                  oversized.size(),
                                  counted(std::ssize(samples), "sample"),
                                  names,
                                  oversized.size() > 5 ? ", …" : ""));
  }
}

// Calls visit(step, microbatch, rank, rows) in that order.
template <class Visit>
void visit_microbatches(const EpochOrder& order, const Visit& visit) {
  for (std::size_t step = 0; step < order.steps.size(); ++step) {
    for (int cell = 0; cell < order.ranks * order.microbatches; ++cell) {
      visit(static_cast<std::int64_t>(step),
            cell / order.ranks,
            cell % order.ranks,
            order.steps[step][at(cell)]);
    }
  }
}

}  // namespace

EpochOrder balanced_epoch(const Study& study, const AuditRequest& request, int epoch) {
  check_layout(study, request);
  const int batch = study.inputs.global_batch;
  const auto steps = static_cast<int>(study.ids.size()) / batch;
  if (steps == 0) {
    throw InvalidInput(fmt::format("no step of {} from {}; give a smaller one",
                                   batch,
                                   counted(std::ssize(study.ids), "sample")));
  }
  const std::vector<BalanceRequest::Sample> samples = balance_samples(study);
  const std::vector<int> rows =
      epoch_rows(static_cast<int>(study.ids.size()), study.inputs.seed, epoch);
  const BalanceRequest given = balance_request(study, request);
  refuse_oversized(study, given, samples);
  EpochOrder order{request.ranks, request.microbatches, {}};
  const bool limited = given.max_tokens > 0 || given.max_bytes > 0;
  Progress progress("steps", steps);
  for (int step = 0; step < steps; ++step) {
    const auto drawn = std::span<const int>(rows).subspan(at(step) * at(batch), at(batch));
    BalanceRequest step_request = given;  // limits as drawn are those of the step alone
    for (const int row : drawn) {
      step_request.samples.push_back(samples[at(row)]);
    }
    step_request.seed = step_seed(study.inputs.seed, epoch, step);
    if (!limited && !request.unlimited) {
      limit_as(drawn_cells(step_request), step_request);
    }
    order.steps.push_back(
        members_of(balance_step(step_request, step), drawn, step_request.num_cells()));
    progress.advance(1);
  }
  return order;
}

std::string order_lines(const EpochOrder& order, const std::vector<std::string>& ids) {
  std::string text;
  visit_microbatches(
      order, [&](std::int64_t step, int microbatch, int rank, const std::vector<int>& rows) {
        Json names = Json::array();
        for (const int row : rows) {
          names.push_back(ids[at(row)]);
        }
        // By hand, so that `step` comes first.
        text += fmt::format("{{\"step\":{},\"microbatch\":{},\"rank\":{},\"samples\":{}}}\n",
                            step,
                            microbatch,
                            rank,
                            json_text(names));
      });
  return text;
}

std::string order_npy(const EpochOrder& order) {
  std::vector<std::int64_t> values;
  visit_microbatches(
      order, [&](std::int64_t step, int microbatch, int rank, const std::vector<int>& rows) {
        for (const int row : rows) {
          values.insert(values.end(), {step, microbatch, rank, row});
        }
      });
  return npy(values, 4);
}

PresetPacks preset_packs(const EpochOrder& order,
                         const std::vector<std::int64_t>& tokens,
                         const std::string& path) {
  std::vector<std::int64_t> boundaries{0};
  std::vector<std::int64_t> slices;
  std::vector<std::int64_t> packs;
  visit_microbatches(order, [&](std::int64_t, int, int, const std::vector<int>& rows) {
    for (const int row : rows) {
      // path_id, sample_idx, char_start, char_end (-1: whole), token_start, token_end
      slices.insert(slices.end(), {0, row, -1, -1, 0, tokens[at(row)]});
    }
    packs.push_back(std::ssize(packs));
    boundaries.push_back(boundaries.back() + std::ssize(rows));
  });
  return {npy(boundaries, 0), npy(slices, 6), json_text(Json::array({path})) + "\n", npy(packs, 0)};
}

}  // namespace entrain
