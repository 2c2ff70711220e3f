#include "entrain/engine/train/processes.h"

#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/version.h"

#include "entrain/engine/pipeline/rank_places.h"

namespace entrain::engine {
namespace {

using Kind = StartFailure::Kind;

constexpr std::size_t kDigestSize = 32;

std::vector<int> all_ranks(const Comm& comm) {
  std::vector<int> ranks(static_cast<std::size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// The failure of the lowest failed rank, on all ranks.
std::optional<StartFailure> share_failure(Comm& comm, const std::optional<StartFailure>& own) {
  const std::vector<int> ranks = all_ranks(comm);
  at::Tensor words = at::zeros({2}, at::kLong);
  if (own.has_value()) {
    words[0] = 1 + static_cast<std::int64_t>(own->kind);
    words[1] = std::ssize(own->message);
  }
  const at::Tensor joined = comm.all_gather(words, ranks);
  const auto* state = joined.data_ptr<std::int64_t>();
  for (const int rank : ranks) {
    const std::int64_t kind = state[2 * rank];
    if (kind == 0) {
      continue;
    }
    const std::int64_t length = state[2 * rank + 1];
    at::Tensor text = at::empty({length}, at::kByte);
    if (comm.rank() == rank) {
      std::memcpy(text.data_ptr(), own->message.data(), own->message.size());
    }
    comm.broadcast(text, rank, ranks);
    return StartFailure{
        static_cast<Kind>(kind - 1),
        rank,
        std::string(static_cast<const char*>(text.data_ptr()), static_cast<std::size_t>(length))};
  }
  return std::nullopt;
}

struct Input {
  const char* name;
  std::string digest;
};

// Everything a step depends on, besides its number.
std::vector<Input> inputs_of(const RunSetup& setup) {
  std::string validation;
  for (const SampleSizes& sample : setup.validation.index.samples) {
    validation += sample.id + '\n';
  }
  return {
      {"version of Entrain", digest_of(version())},
      {"version of torch", digest_of(ENTRAIN_TORCH_VERSION)},
      {"configuration", setup.identity.config_digest},
      {"model", setup.identity.model_digest},
      {"plan", setup.identity.plan_digest},
      {"profile", digest_of(to_json(setup.profile).dump())},
      {"index of the training data", setup.identity.index_digest},
      {"index of the validation data", digest_of(validation)},
      {"checkpoint to continue from",
       setup.resume.has_value()
           ? digest_of(concat(digest(setup.resume->manifest), setup.resume->finished))
           : digest_of("none")},
  };
}

// Empty if all ranks have rank 0's inputs.
std::string differences(Comm& comm, const RunSetup& setup) {
  const std::vector<Input> inputs = inputs_of(setup);
  std::string own;
  for (const Input& input : inputs) {
    ENTRAIN_INVARIANT(input.digest.size() == kDigestSize, concat("digest '", input.digest, "'"));
    own += input.digest;
  }
  at::Tensor bytes = at::empty({std::ssize(own)}, at::kByte);
  std::memcpy(bytes.data_ptr(), own.data(), own.size());
  const at::Tensor joined = comm.all_gather(bytes, all_ranks(comm));
  const std::string everything(static_cast<const char*>(joined.data_ptr()),
                               static_cast<std::size_t>(joined.numel()));
  std::vector<std::string> found;
  for (int rank = 1; rank < comm.size(); ++rank) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto of_rank = [&](int r) {
        return everything.substr(static_cast<std::size_t>(r) * own.size() + i * kDigestSize,
                                 kDigestSize);
      };
      if (of_rank(rank) != of_rank(0)) {
        found.push_back(concat(inputs[i].name,
                               ": rank ",
                               rank,
                               " has another than rank 0 (digests ",
                               short_digest(of_rank(rank)),
                               ", ",
                               short_digest(of_rank(0)),
                               ")"));
      }
    }
  }
  return join(found, "; ");
}

std::string wrong_size(const Comm& comm, const Plan& plan) {
  const RankPlaces places(plan);
  const int needed = places.num_ranks();
  if (comm.size() == needed) {
    return "";
  }
  std::vector<std::string> widths;
  for (int lane = 0; lane < places.num_lanes(); ++lane) {
    widths.push_back(std::to_string(places.width(lane)));
  }
  const bool shared = places.ranks_per_replica() > places.num_lanes();
  return concat("the plan has ",
                counted(plan.replicas, "replica"),
                " x ",
                counted(plan.num_lanes(), "lane"),
                shared ? concat(" of ", join(widths), " ranks: ") : std::string(": "),
                counted(needed, "process"),
                needed == 1 ? " is needed, " : " are needed, ",
                comm.size(),
                comm.size() == 1 ? " was started (" : " were started (torchrun --nproc-per-node ",
                needed,
                " on one node)");
}

template <class Call>
std::optional<StartFailure> failure_of(const Call& call) {
  const auto failure = [](Kind kind, const std::exception& error) {
    return StartFailure{kind, 0, error.what()};
  };
  try {
    call();
    return std::nullopt;
  } catch (const InvalidInput& error) {
    return failure(Kind::kInvalidInput, error);
  } catch (const SystemFailure& error) {
    return failure(Kind::kSystemFailure, error);
  } catch (const NothingFits& error) {
    return failure(Kind::kNothingFits, error);
  } catch (const std::exception& error) {
    return failure(Kind::kInternalError, error);
  }
}

}  // namespace

void StartFailure::raise() const {
  const std::string text = rank == 0 ? message : concat("rank ", rank, ": ", message);
  switch (kind) {
    case Kind::kInvalidInput:
      throw InvalidInput(text);
    case Kind::kSystemFailure:
      throw SystemFailure(text);
    case Kind::kNothingFits:
      throw NothingFits(text);
    case Kind::kInternalError:
      break;
  }
  throw InternalError(text);
}

Prepared prepare_together(Comm& comm,
                          const std::function<RunSetup()>& prepare,
                          const std::function<void()>& claim) {
  Prepared result;
  if (claim) {
    result.failure =
        share_failure(comm, comm.rank() == 0 ? failure_of(claim) : std::optional<StartFailure>());
    if (result.failure.has_value()) {
      return result;
    }
  }
  std::optional<RunSetup> setup;
  result.failure = share_failure(comm, failure_of([&] { setup = prepare(); }));
  if (result.failure.has_value()) {
    return result;
  }
  std::string problem = differences(comm, *setup);
  if (!problem.empty()) {
    problem = "ranks would not run the same run: " + problem;
  } else {
    problem = wrong_size(comm, setup->plan);
  }
  if (!problem.empty()) {
    result.failure = StartFailure{Kind::kInvalidInput, 0, problem};
    return result;
  }
  result.setup = std::move(setup);
  return result;
}

}  // namespace entrain::engine
