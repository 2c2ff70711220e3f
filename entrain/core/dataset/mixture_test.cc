#include "entrain/core/dataset/mixture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;

// `sizes[k]` samples "k/0", "k/1", ….
std::vector<std::string> ids_of(const std::vector<int>& sizes) {
  std::vector<std::string> ids;
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    for (int i = 0; i < sizes[part]; ++i) {
      ids.push_back(std::to_string(part) + "/" + std::to_string(i));
    }
  }
  return ids;
}

std::vector<MixturePart> parsed(const std::string& toml) {
  return read_mixture(parse_toml(toml, "x"), "x");
}

int part_of(const std::string& id) {
  return std::stoi(id.substr(0, id.find('/')));
}

TEST(Mixture, GivesEveryPartItsShareInEveryStretchOfDraws) {
  const std::vector<std::string> ids = ids_of({50, 7, 3});
  Mixture mixture(parsed("\"0/*\" = 5\n\"1/*\" = 3.5\n\"2/*\" = 1.5"), ids, 10, 1);
  std::vector<int> drawn;
  for (std::int64_t step = 0; step < 300; ++step) {
    for (const int row : mixture.rows(step)) {
      drawn.push_back(part_of(ids[static_cast<std::size_t>(row)]));
    }
  }
  const double shares[] = {0.5, 0.35, 0.15};
  for (const std::size_t begin : {0U, 17U, 1000U}) {
    for (const std::size_t length : {10U, 100U, 1500U}) {
      for (int part = 0; part < 3; ++part) {
        const auto first = drawn.begin() + static_cast<std::ptrdiff_t>(begin);
        const auto count = std::count(first, first + static_cast<std::ptrdiff_t>(length), part);
        EXPECT_NEAR(static_cast<double>(count), shares[part] * static_cast<double>(length), 2.0);
      }
    }
  }
  EXPECT_EQ(mixture.num_steps(), std::nullopt);
  EXPECT_NEAR(static_cast<double>(mixture.shares(300)[1].draws), 0.35 * 3000, 2);
}

TEST(Mixture, TakesEverySampleOnceBeforeAnyComesAgain) {
  const std::vector<std::string> ids = ids_of({5, 40});
  Mixture mixture(parsed("\"0/*\" = 1\n\"1/*\" = 1"), ids, 8, 4);
  std::map<int, std::vector<int>> of_part;
  for (std::int64_t step = 0; step < 60; ++step) {
    for (const int row : mixture.rows(step)) {
      of_part[part_of(ids[static_cast<std::size_t>(row)])].push_back(row);
    }
  }
  std::set<std::vector<int>> orders;
  for (const auto& [part, rows] : of_part) {
    const std::size_t size = part == 0 ? 5 : 40;
    for (std::size_t begin = 0; begin + size <= rows.size(); begin += size) {
      const auto first = rows.begin() + static_cast<std::ptrdiff_t>(begin);
      const std::vector<int> pass(first, first + static_cast<std::ptrdiff_t>(size));
      EXPECT_EQ(std::set<int>(pass.begin(), pass.end()).size(), size);
      orders.insert(pass);
    }
  }
  EXPECT_GT(orders.size(), 20U);  // passes differ
}

TEST(Mixture, IsAFunctionOfSeedAndStep) {
  const std::vector<std::string> ids = ids_of({30, 20});
  const std::vector<MixturePart> parts =
      parsed("\"0/*\" = {weight = [[0, 1], [5, 9]]}\n\"1/*\" = {weight = 2, epochs = 3}");
  Mixture forwards(parts, ids, 7, 2);
  std::vector<std::vector<int>> expected;
  for (std::int64_t step = 0; step < 50; ++step) {
    expected.push_back(forwards.rows(step));
  }
  for (std::int64_t step = 50; step-- > 0;) {
    EXPECT_EQ(forwards.rows(step), expected[static_cast<std::size_t>(step)]);
    EXPECT_EQ(Mixture(parts, ids, 7, 2).rows(step), expected[static_cast<std::size_t>(step)]);
  }
  EXPECT_NE(Mixture(parts, ids, 7, 3).rows(0), expected[0]);
}

// Against an obvious walk, draw by draw, over random mixtures: shares follow the weights of the
// step among the parts that are not used up, but for the draws of a part more or less in each
// phase.
TEST(Mixture, KeepsCapsAndCurricula) {
  Rng rng(5);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<int> sizes;
    std::vector<MixturePart> parts;
    const auto num_parts = 1 + rng.below(4);
    for (std::uint64_t k = 0; k < num_parts; ++k) {
      sizes.push_back(1 + static_cast<int>(rng.below(40)));
      MixturePart part;
      part.samples = std::to_string(k) + "/*";
      part.epochs = static_cast<std::int64_t>(rng.below(3));
      if (rng.below(2) == 0) {
        part.weights = {{0, 0.1 + rng.uniform()}};
        if (rng.below(2) == 0) {
          part.weights.push_back({static_cast<std::int64_t>(1 + rng.below(20)), rng.uniform()});
        }
      }
      parts.push_back(part);
    }
    const std::vector<std::string> ids = ids_of(sizes);
    const int batch = 1 + static_cast<int>(rng.below(9));
    Mixture mixture(parts, ids, batch, 1);
    std::vector<double> due(parts.size(), 0);
    std::vector<std::int64_t> drawn(parts.size(), 0);
    const std::int64_t steps = std::min<std::int64_t>(40, mixture.num_steps().value_or(40));
    for (std::int64_t step = 0; step < steps; ++step) {
      for (const int row : mixture.rows(step)) {
        double all = 0;
        std::vector<double> weights;
        for (std::size_t k = 0; k < parts.size(); ++k) {
          double weight = static_cast<double>(sizes[k]);
          for (const MixtureWeight& from : parts[k].weights) {
            weight = from.step <= step ? from.weight : weight;
          }
          const bool used_up = parts[k].epochs > 0 && drawn[k] >= parts[k].epochs * sizes[k];
          weights.push_back(used_up ? 0 : weight);
          all += weights.back();
        }
        ++drawn[static_cast<std::size_t>(part_of(ids[static_cast<std::size_t>(row)]))];
        for (std::size_t k = 0; k < parts.size(); ++k) {
          due[k] += weights[k] / all;
        }
      }
      const std::vector<Mixture::Share> shares = mixture.shares(step + 1);
      for (std::size_t k = 0; k < parts.size(); ++k) {
        ASSERT_EQ(shares[k].draws, drawn[k]);
        ASSERT_LE(drawn[k], parts[k].epochs == 0 ? drawn[k] : parts[k].epochs * sizes[k]);
        ASSERT_NEAR(static_cast<double>(drawn[k]), due[k], 10.0) << "turn " << turn;
      }
    }
    if (const auto end = mixture.num_steps()) {
      EXPECT_THROW(mixture.rows(*end), InvalidInput);
    }
  }
}

TEST(Mixture, EndsWhenAllPartsAreUsedUp) {
  const std::vector<std::string> ids = ids_of({10, 6});
  Mixture mixture(
      parsed("\"0/*\" = {weight = 1, epochs = 2}\n\"1/*\" = {weight = 5, epochs = 1}"), ids, 4, 1);
  EXPECT_EQ(mixture.num_steps(), 6);  // 26 draws
  EXPECT_EQ(mixture.shares(6)[1].draws, 6);
  EXPECT_EQ(mixture.shares(6)[0].draws, 18);
  EXPECT_NE(error_of<InvalidInput>([&] { mixture.rows(6); }).find("after 6 whole steps"),
            std::string::npos);
  // A part that weighs nothing does not keep it going.
  EXPECT_EQ(Mixture(parsed("\"0/*\" = {epochs = 2}\n\"1/*\" = 0"), ids, 4, 1).num_steps(), 5);
  EXPECT_EQ(
      Mixture(parsed("\"0/*\" = {weight = [[0, 1], [9, 0]]}\n\"1/*\" = 0"), ids, 4, 1).num_steps(),
      9);
}

TEST(Mixture, RefusesPartsThatCannotBeMeant) {
  const std::vector<std::string> ids = ids_of({3, 3});
  const auto refused = [&](const std::string& toml, const std::string& reason) {
    const std::string message =
        error_of<InvalidInput>([&] { Mixture(parsed(toml), ids, 4, 1).rows(0); });
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  };
  refused("\"0/*\" = 1", "no part for sample '1/0'");
  refused("\"*\" = 1\n\"1/*\" = 1", "two parts: \"*\" and \"1/*\"");
  refused("\"*\" = 1\n\"2/*\" = 1", "\"2/*\" has no sample");
  refused("\"0/*\" = 0\n\"1/*\" = 0", "at step 0: all weights are 0");
  refused("\"*\" = -1", "x: \"*\": -1 given");
  refused("\"*\" = {weight = 1, repeat = 2}", "beside weight");
  refused("\"*\" = {weigth = 1}", "did you mean 'weight'");
  refused("\"*\" = {weight = [[1, 2]]}", "the first is 0");
  refused("\"*\" = {weight = [[0, 2], [0, 3]]}", "rise");
  refused("\"*\" = {weight = []}", "an empty list");
  refused("\"*\" = {epochs = -1}", "epochs");
  refused("", "at least one part");
  EXPECT_EQ(read_mixture(to_json(parsed("\"*\" = {repeat = 2, epochs = 3}")), "x"),
            parsed("\"*\" = {repeat = 2, epochs = 3}"));
  EXPECT_EQ(read_mixture(to_json(parsed("\"*\" = {weight = [[0, 2], [7, 3]]}")), "x"),
            parsed("\"*\" = {weight = [[0, 2], [7, 3]]}"));
}

TEST(Mixture, OfAFileIsNotAWholeRunFile) {
  const oracle::TemporaryFolder folder;
  const auto refused = [&](const std::string& toml) {
    const auto file = folder.write("run.toml", toml);
    return error_of<InvalidInput>([&] { read_mixture_file(file); });
  };
  for (const char* toml : {"steps = 4\n[data]\ntrain = \"x.csv\"\n",
                           "model = \"m.toml\"\n",
                           "[data.mixture]\n\"a/*\" = 1\n"}) {
    const std::string message = refused(toml);
    EXPECT_NE(message.find("run.toml: no mixture file, in which every line is a part"),
              std::string::npos)
        << message;
  }
  EXPECT_NE(refused("\"*\" = {weigth = 1}").find("did you mean 'weight'"), std::string::npos);
}

}  // namespace
}  // namespace entrain
