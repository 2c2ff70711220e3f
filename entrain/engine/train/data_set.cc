#include "entrain/engine/train/data_set.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/runnable.h"
#include "entrain/core/dataset/shard.h"
#include "entrain/core/dataset/text.h"

namespace entrain::engine {
namespace {

void check_vocabulary(const Index& index, const ModelSpec& model) {
  const std::int64_t vocabulary = index.tokens->facts().vocabulary;
  if (vocabulary > model.llm.vocab_size) {
    throw InvalidInput(concat("index '",
                              index.path.string(),
                              "' was made with a tokenizer of ",
                              vocabulary,
                              " ids; the model's vocab_size is ",
                              model.llm.vocab_size));
  }
}

}  // namespace

DataSet load_data_set(const std::string& path,
                      const ModelSpec& model,
                      const std::vector<std::string>& ignored,
                      const MediaOption& option) {
  DataSet data;
  data.index = read_index(path);
  if (data.index.text_digest.empty()) {
    throw InvalidInput(
        concat("index '",
               path,
               "' holds estimated lengths; training needs exact ones: make it from the "
               "data with `entrain index`"));
  }
  load_tokens(data.index);
  if (data.index.tokens != nullptr) {
    check_vocabulary(data.index, model);
  } else if (data.index.text_digest != text_digest()) {
    throw InvalidInput(concat("index '",
                              path,
                              "' was made with another tokenizer or template (digest ",
                              data.index.text_digest,
                              ", this program has ",
                              text_digest(),
                              "): make it again with `entrain index`"));
  }
  data.notes =
      check_media(model, data.index.samples, ignored, concat("index '", path, "'"), option);
  data.work.reserve(data.index.samples.size());
  for (const SampleSizes& sample : data.index.samples) {
    const auto refuse = [&](const std::string& why) {
      throw InvalidInput(concat("index '", path, "': sample '", sample.id, "' ", why));
    };
    if (!sample.location.has_value() || !sample.prompt_tokens.has_value()) {
      refuse("has no shard or no exact length");
    }
    if (is_compressed_shard(sample.location->shard)) {
      refuse(concat("is in the compressed shard '",
                    sample.location->shard,
                    "'; training reads samples at their offsets: unpack it (gunzip) and make the "
                    "index again"));
    }
    if (!engine_reads(model, sample)) {
      refuse(
          "has video, and the model's vision encoder cannot read videos for training: "
          "[vision.video] has no sampling of frames");
    }
    data.work.push_back(sample_work(model, sample));
    if (data.work.back().llm_tokens > model.llm.max_tokens) {
      refuse(concat("has ",
                    data.work.back().llm_tokens,
                    " tokens; the model takes up to llm.max_tokens = ",
                    model.llm.max_tokens,
                    " (see `entrain index --too-long`)"));
    }
  }
  return data;
}

DataSet split_validation(double fraction, std::uint64_t seed, DataSet& train) {
  const std::size_t size = train.index.samples.size();
  const auto share = std::llround(fraction * static_cast<double>(size));
  const auto wanted = static_cast<std::size_t>(std::max(1LL, share));
  if (wanted >= size) {
    throw InvalidInput(concat("data.validation_fraction ",
                              fraction,
                              " of ",
                              counted(std::ssize(train.index.samples), "sample"),
                              " leaves none to train on"));
  }
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Rng(seed, hash_of("validation split")).shuffle(std::span<std::size_t>(order));
  std::vector<char> taken(size);
  for (std::size_t i = 0; i < wanted; ++i) {
    taken[order[i]] = 1;
  }
  // All but the samples is the same in both.
  std::vector<SampleSizes> samples = std::exchange(train.index.samples, {});
  std::vector<SampleWork> work = std::exchange(train.work, {});
  DataSet validation;
  validation.index = train.index;
  for (std::size_t sample = 0; sample < size; ++sample) {
    DataSet& target = taken[sample] != 0 ? validation : train;
    target.index.samples.push_back(std::move(samples[sample]));
    target.work.push_back(std::move(work[sample]));
  }
  return validation;
}

void check_files(const Index& index) {
  std::string last;
  std::set<std::string> known;
  for (const SampleSizes& sample : index.samples) {
    if (!sample.location.has_value() || sample.location->shard == last) {
      continue;
    }
    last = sample.location->shard;
    if (!known.insert(last).second) {
      continue;
    }
    const std::string shard = located(index, *sample.location).shard;
    std::error_code error;
    if (!std::filesystem::exists(shard, error)) {
      throw InvalidInput(concat("index '",
                                index.path.string(),
                                "': sample '",
                                sample.id,
                                "' is in '",
                                shard,
                                "', which does not exist; names are relative to the index's "
                                "folder"));
    }
  }
}

std::string bytes_warning(const Index& index, const std::filesystem::path& model) {
  std::error_code error;
  if (index.tokens != nullptr || !std::filesystem::exists(model / "tokenizer.json", error)) {
    return "";
  }
  return concat("the texts of index '",
                index.path.string(),
                "' are bytes, which the weights in '",
                model.string(),
                "' do not know: its tokenizer has other ids. `entrain index --model ",
                model.string(),
                "` makes an index with them");
}

void check_same_tokenizer(const Index& train, const Index& validation) {
  const auto name_of = [](const Index& index) {
    return index.tokens == nullptr ? std::string("bytes")
                                   : concat(index.tokens->facts().tokenizer,
                                            " with template ",
                                            index.tokens->facts().chat_template);
  };
  if (name_of(train) != name_of(validation)) {
    throw InvalidInput(concat("the indices '",
                              train.path.string(),
                              "' and '",
                              validation.path.string(),
                              "' have other tokenizers or templates: ",
                              name_of(train),
                              ", and ",
                              name_of(validation)));
  }
}

std::string overlap_warning(const Index& train, const Index& validation) {
  std::unordered_set<std::string_view> trained;
  for (const SampleSizes& sample : train.samples) {
    trained.insert(sample.id);
  }
  std::int64_t count = 0;
  std::vector<std::string> first;
  for (const SampleSizes& sample : validation.samples) {
    if (trained.contains(sample.id)) {
      ++count;
      if (first.size() < 3) {
        first.push_back(sample.id);
      }
    }
  }
  if (count == 0) {
    return "";
  }
  return concat(count,
                " of the ",
                validation.samples.size(),
                " validation samples are training samples too ('",
                join(first, "', '"),
                std::cmp_greater(count, first.size()) ? "' …" : "'",
                "): loss and accuracy on them do not measure generalisation");
}

}  // namespace entrain::engine
