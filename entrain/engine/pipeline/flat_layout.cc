#include "entrain/engine/pipeline/flat_layout.h"

#include <algorithm>

#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

std::int64_t rounded_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::int64_t trained_elements(const NamedParameter& parameter) {
  return parameter.tensor.requires_grad() ? parameter.tensor.numel() : 0;
}

}  // namespace

FlatLayout::FlatLayout(const std::vector<NamedParameter>& parameters,
                       int num_shards,
                       const std::vector<std::size_t>& bucket_begins)
    : num_shards_(num_shards) {
  for (std::size_t b = 0; b < bucket_begins.size(); ++b) {
    const std::size_t end_parameter =
        b + 1 < bucket_begins.size() ? bucket_begins[b + 1] : parameters.size();
    FlatBucket bucket{bucket_begins[b], size(), 0, shard_size_};
    std::int64_t end = bucket.begin;
    for (std::size_t i = bucket.first_parameter; i < end_parameter; ++i) {
      const NamedParameter& parameter = parameters[i];
      if (parameter.tensor.requires_grad()) {
        const std::int64_t length = parameter.tensor.numel();
        entries_.push_back(
            {parameter.name, parameter.tensor.sizes().vec(), end, length, parameter.split});
        end = rounded_up(end + length, kAlignment);
      }
    }
    bucket.slice_size = rounded_up(end - bucket.begin, kAlignment * num_shards) / num_shards;
    if (bucket.slice_size > 0) {
      buckets_.push_back(bucket);
      shard_size_ += bucket.slice_size;
    }
  }
}

at::Tensor FlatLayout::slice_of(const at::Tensor& buffer,
                                const FlatBucket& bucket,
                                int shard) const {
  return buffer.narrow(0, bucket.begin + shard * bucket.slice_size, bucket.slice_size);
}

at::Tensor FlatLayout::shard_of(const at::Tensor& buffer, int shard) const {
  if (num_shards_ == 1) {
    return buffer;
  }
  std::vector<at::Tensor> slices;
  for (const FlatBucket& bucket : buckets_) {
    slices.push_back(slice_of(buffer, bucket, shard));
  }
  return at::cat(slices);
}

void FlatLayout::put_shard(const at::Tensor& own, int shard, const at::Tensor& buffer) const {
  for (const FlatBucket& bucket : buckets_) {
    slice_of(buffer, bucket, shard).copy_(own.narrow(0, bucket.shard_begin, bucket.slice_size));
  }
}

at::Tensor FlatLayout::joined(const at::Tensor& shards) const {
  if (num_shards_ == 1) {
    return shards;
  }
  at::Tensor buffer = at::empty_like(shards);
  put_shards(shards, buffer);
  return buffer;
}

void FlatLayout::put_shards(const at::Tensor& shards, const at::Tensor& buffer) const {
  for (int shard = 0; shard < num_shards_; ++shard) {
    put_shard(shards.narrow(0, shard * shard_size_, shard_size_), shard, buffer);
  }
}

std::vector<ShardPiece> FlatLayout::pieces(int shard) const {
  std::vector<ShardPiece> pieces;
  auto entry = entries_.begin();
  for (const FlatBucket& bucket : buckets_) {
    const std::int64_t slice_begin = bucket.begin + shard * bucket.slice_size;
    const std::int64_t bucket_end = bucket.begin + num_shards_ * bucket.slice_size;
    for (; entry != entries_.end() && entry->begin < bucket_end; ++entry) {
      const std::int64_t begin = std::max(entry->begin, slice_begin);
      const std::int64_t end =
          std::min(entry->begin + entry->size, slice_begin + bucket.slice_size);
      if (begin < end) {
        pieces.push_back({&*entry, begin, bucket.shard_begin + begin - slice_begin, end - begin});
      }
    }
  }
  return pieces;
}

std::vector<NamedParameter> FlatLayout::views(const at::Tensor& buffer,
                                              std::string_view suffix) const {
  std::vector<NamedParameter> views;
  views.reserve(entries_.size());
  for (const FlatEntry& entry : entries_) {
    views.push_back({concat(entry.name, suffix),
                     buffer.narrow(0, entry.begin, entry.size).view(entry.shape),
                     entry.split});
  }
  return views;
}

std::vector<std::size_t> bucket_begins(const std::vector<NamedParameter>& parameters,
                                       const std::vector<std::size_t>& stage_begins,
                                       int per_stage) {
  std::vector<std::size_t> begins = {0};
  for (std::size_t stage = 0; stage < stage_begins.size(); ++stage) {
    const std::size_t end =
        stage + 1 < stage_begins.size() ? stage_begins[stage + 1] : parameters.size();
    std::int64_t total = 0;
    for (std::size_t i = stage_begins[stage]; i < end; ++i) {
      total += trained_elements(parameters[i]);
    }
    std::int64_t before = 0;
    int cuts = 0;  // made in this stage, its begin among them
    for (std::size_t i = stage_begins[stage]; i < end; ++i) {
      // A parameter belongs to the bucket that contains its middle.
      const std::int64_t middle = before + trained_elements(parameters[i]) / 2;
      if (trained_elements(parameters[i]) > 0 && middle * per_stage >= total * cuts) {
        cuts = static_cast<int>(middle * per_stage / total) + 1;
        if (i > begins.back()) {
          begins.push_back(i);
        }
      }
      before += trained_elements(parameters[i]);
    }
  }
  return begins;
}

}  // namespace entrain::engine
