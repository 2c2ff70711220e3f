// Six samples of one or two flat images, indexed, and a model that reads them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "entrain/core/dataset/index.h"
#include "entrain/core/dataset/text.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/workload.h"

#include "entrain/engine/data/read_ahead.h"

#include "tests/oracle/shards.h"

namespace entrain::oracle {

inline ModelSpec small_images_model() {
  ModelSpec model;
  EncoderSpec encoder;
  encoder.name = "vision";
  encoder.num_layers = 1;
  encoder.hidden = 8;
  encoder.num_heads = 1;
  encoder.intermediate = 8;
  encoder.patch_size = 4;
  encoder.merge_size = 2;
  encoder.min_pixels = 64;
  encoder.max_pixels = 64 * 64;
  model.encoders = {encoder};
  model.llm.num_layers = 1;
  model.llm.vocab_size = kVocabSize;
  model.llm.max_tokens = 4096;
  return model;
}

// Six samples of one or two flat images, whose red value tells sample and image; "s5" has none.
inline std::string small_images_archive() {
  TarWriter tar;
  for (int sample = 0; sample < 6; ++sample) {
    const std::string name = "s" + std::to_string(sample);
    const int images = sample == 5 ? 0 : 1 + sample % 2;
    for (int image = 0; image < images; ++image) {
      const auto red = static_cast<std::uint8_t>(10 * sample + image);
      tar.add(images == 1 ? name + ".png" : name + "." + std::to_string(image) + ".png",
              flat_png(16 + 8 * sample, 16, red, 0, 255));
    }
    tar.add(name + ".json",
            R"({"question": "which of these?", "answer": "number )" + std::to_string(sample) +
                R"(", "source": "small"})");
  }
  return tar.archive();
}

class SmallSamplesTest : public ::testing::Test {
 protected:
  void SetUp() override { make_index(small_images_archive(), {}); }

  void make_index(const std::string& archive, IndexOptions options) {
    shard_ = folder_.write("train-000000.tar", archive);
    index_ = build_index({shard_}, folder_.path() / "index.csv", options).index;
  }

  [[nodiscard]] float red_of(const engine::SegmentData& data) const {
    return data.input[0][0].item<float>();
  }
  static float expected_red(int sample, int image) {
    return (static_cast<float>(10 * sample + image) / 255.0F - 0.5F) / 0.5F;
  }

  // All segments and texts of samples 0 to 5, in that order.
  static engine::StepNeeds all_needs() {
    return {{0, 1, 2, 3, 4, 5},
            {{0, 0, 0}, {0, 1, 0}, {0, 1, 1}, {0, 2, 0}, {0, 3, 0}, {0, 3, 1}, {0, 4, 0}},
            {0, 1, 2, 3, 4, 5}};
  }

  // Of the patches of the first `count` segments.
  [[nodiscard]] std::int64_t bytes_of(const engine::StepNeeds& needs, std::size_t count) const {
    std::int64_t tokens = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto sample =
          static_cast<std::size_t>(needs.batch[static_cast<std::size_t>(needs.segments[i].sample)]);
      tokens += sample_work(model_, index_.samples[sample])
                    .segments[0][static_cast<std::size_t>(needs.segments[i].segment)]
                    .tokens;
    }
    return tokens * 3 * 4 * 4 * 4;
  }

  // Returns as soon as so much is decoded; fails the test when that takes unreasonably long.
  static void wait_until_ready(const engine::ReadAhead& reader, std::int64_t bytes) {
    for (int wait = 0; wait < 20'000 && reader.ready_bytes() != bytes; ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(reader.ready_bytes(), bytes);
  }

  // Replaces bytes of the shard from `offset` on.
  void overwrite(std::int64_t offset, const std::string& bytes) {
    std::string archive = small_images_archive();
    archive.replace(static_cast<std::size_t>(offset), bytes.size(), bytes);
    folder_.write("train-000000.tar", archive);
  }

  TemporaryFolder folder_;
  std::filesystem::path shard_;
  Index index_;
  ModelSpec model_ = small_images_model();
};

}  // namespace entrain::oracle
