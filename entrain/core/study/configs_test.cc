// Every model and cluster file under configs/ can be read, and is what its name says.
#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "entrain/core/cost/analytic.h"
#include "entrain/core/spec/cluster.h"
#include "entrain/core/spec/model.h"

namespace entrain {
namespace {

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  const auto root = std::filesystem::path(ENTRAIN_SOURCE_DIR) / "configs" / folder;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    files.push_back(entry.path());
  }
  return files;
}

double billions(const ModelSpec& model, int module) {
  std::int64_t parameters = 0;
  for (int layer = 0; layer < num_layers(model, module); ++layer) {
    parameters += layer_parameters(model, module, layer);
  }
  return static_cast<double>(parameters) * 1e-9;
}

TEST(ModelFiles, CanBeReadAndCosted) {
  std::set<std::string> names;
  for (const std::filesystem::path& path : files_in("models")) {
    const ModelSpec model = read_model(path);
    EXPECT_EQ(model.name, path.stem().string());
    names.insert(model.name);
    EXPECT_EQ(model.name.find("audio") != std::string::npos, model.encoders.size() == 2) << path;
    const Profile profile = analytic_profile(model, device_model("h100"));
    EXPECT_NO_THROW(validate(profile, model, path.string()));
  }
  for (const char* size : {"1b", "3b", "8b", "70b"}) {
    EXPECT_TRUE(names.contains(std::string("qwen2.5-vl-llama-") + size)) << size;
    EXPECT_TRUE(names.contains(std::string("qwen2.5-vl-audio-llama-") + size)) << size;
  }
}

TEST(ModelFiles, HaveTheSizesOfTheirModels) {
  // Published sizes in billions; the output head is not tied here, hence 1.24 + 0.26 and 3.21 +
  // 0.39.
  const std::vector<std::pair<std::string, double>> sizes = {
      {"1b", 1.50}, {"3b", 3.61}, {"8b", 8.03}, {"70b", 70.6}};
  for (const auto& [size, expected] : sizes) {
    const auto path = std::filesystem::path(ENTRAIN_SOURCE_DIR) / "configs/models" /
                      ("qwen2.5-vl-audio-llama-" + size + ".toml");
    const ModelSpec model = read_model(path);
    EXPECT_NEAR(billions(model, model.llm_module()) / expected, 1.0, 0.01) << size;
    EXPECT_NEAR(billions(model, 0), 0.65, 0.1) << "the vision encoder, mergers of several widths";
  }
}

TEST(ClusterFiles, CanBeRead) {
  std::set<int> devices;
  for (const std::filesystem::path& path : files_in("clusters")) {
    const ClusterSpec cluster = read_cluster(path);
    EXPECT_EQ(cluster.name, path.stem().string());
    EXPECT_NO_THROW(device_model(cluster.device)) << "its profile can be made";
    EXPECT_GT(cluster.intra_node.bytes_per_second, cluster.inter_node.bytes_per_second * 0.99);
    devices.insert(cluster.num_nodes * cluster.devices_per_node);
  }
  EXPECT_EQ(devices, (std::set<int>{16, 64, 512}));
}

}  // namespace
}  // namespace entrain
