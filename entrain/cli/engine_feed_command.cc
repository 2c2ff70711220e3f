// entrain feed: decodes the samples of a run for its ranks.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/output.h"
#include "entrain/core/base/text.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/engine/comm/torch_errors.h"
#include "entrain/engine/train/feed_run.h"
#include "entrain/engine/train/feed_server.h"
#include "entrain/engine/train/prepare_run.h"

namespace entrain::cli {
namespace {

struct FeedFlags {
  std::string config;
  std::vector<std::string> overrides;
  std::string listen = "127.0.0.1:7000";
  int workers = 0;
  std::int64_t memory_mib = 1024;
  std::string key;
  std::string new_key;
  bool force = false;
  bool dry_run = false;
  bool json = false;
};

std::atomic<bool> stopped{false};

void on_stop(int /*signal*/) {
  stopped = true;
}

int make_key(const FeedFlags& options) {
  if (!options.force && std::filesystem::exists(options.new_key)) {
    throw InvalidInput(concat("--new-key: '",
                              options.new_key,
                              "' exists, and a feed or its ranks may use it; --force replaces it"));
  }
  Outputs outputs({}, options.force);
  const Output file = outputs.open("--new-key", options.new_key, OutputKind::kFeedKey);
  const mode_t before = ::umask(S_IRWXG | S_IRWXO);  // its owner alone may read it
  file.write(engine::text_of(engine::new_feed_key()));
  ::umask(before);
  std::cout << "written to " << options.new_key
            << ": copy it to every host of the run and name it in --key and data.feed_key\n";
  return 0;
}

int dry_run(const engine::RunSetup& setup, const engine::FeedServer& server, bool json) {
  const Json ranks = engine::first_needs(setup);
  if (json) {
    print_json({{"address", server.address()}, {"first_step", ranks}});
    return 0;
  }
  std::cout << "listens at " << server.address()
            << "; step 0 as it lies in memory, of which a quarter or less is sent:\n";
  for (const Json& rank : ranks) {
    std::cout << concat("  replica ",
                        rank["replica"].get<int>(),
                        ", lane ",
                        rank["lane"].get<int>(),
                        ": ",
                        rank["segments"].get<int>(),
                        " images and clips, ",
                        static_cast<double>(rank["segment_bytes"].get<std::int64_t>()) / 1e6,
                        " MB, and ",
                        counted(rank["texts"].get<int>(), "text"),
                        "\n");
  }
  return 0;
}

int serve(const FeedFlags& options) {
  engine::FeedServerOptions server_options;
  server_options.listen = engine::read_feed_address(options.listen, "--listen", /*listens=*/true);
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  server_options.workers = options.workers > 0 ? options.workers : cores;
  server_options.memory_bytes = options.memory_mib << 20U;
  server_options.note = [](const std::string& line) { std::cerr << concat("feed: ", line, "\n"); };
  engine::RunConfig config = engine::read_run_config(options.config, options.overrides);
  const std::string key = options.key.empty() ? config.data.feed_key : options.key;
  if (!key.empty()) {
    server_options.key = engine::read_feed_key(key);
  }
  config.checkpoint.resume = engine::kResumeNever;  // ranks say where they are
  config.data.feed.clear();
  config.data.feed_key.clear();
  const engine::RunSetup setup = engine::prepare_run(config);
  engine::FeedServer server(setup, server_options);
  if (options.dry_run) {
    return dry_run(setup, server, options.json);
  }
  std::signal(SIGINT, on_stop);
  std::signal(SIGTERM, on_stop);
  std::cout << "feed: listens at " << server.address() << ", "
            << counted(server_options.workers, "worker") << ", "
            << counted(std::ssize(setup.train.index.samples), "sample") << "; Ctrl-C ends it"
            << std::endl;
  server.run(stopped);
  return 0;
}

}  // namespace

void add_feed_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<FeedFlags>();
  CLI::App* command = add_command(
      app,
      "feed",
      "Decodes the samples of a run for its ranks, on hosts without accelerators or in another\n"
      "process. It reads the same run file, index and data, computes for itself what each rank\n"
      "needs next, and pushes it; a rank whose feed is lost takes another, or decodes for itself.\n"
      "Losses do not change by a bit.",
      "entrain feed --new-key feed.key\n"
      "entrain feed run.toml --listen :7000 --workers 16 --key feed.key\n"
      "and on the hosts that train:\n"
      "  entrain train run.toml --set 'data.feed=[\"host:7000\"]' --set data.feed_key=feed.key");
  CLI::Option* config = command->add_option("config", options->config, "run file (TOML)");
  command->add_option("--set", options->overrides, "path.to.key=value, overrides the file")
      ->allow_extra_args(false);
  command
      ->add_option("--listen",
                   options->listen,
                   "HOST:PORT, :PORT for all interfaces, or ipc:///PATH; other hosts need a key")
      ->capture_default_str();
  command->add_option("--workers", options->workers, "threads that decode; 0: one per core")
      ->transform(whole(0, 1024));
  command
      ->add_option(
          "--memory-mib", options->memory_mib, "memory for what is decoded and not yet sent")
      ->transform(whole(1, 1'000'000))
      ->capture_default_str();
  CLI::Option* dry = command->add_flag(
      "--dry-run",
      options->dry_run,
      "check run, data, key and address, say what each rank is sent a step, and end");
  command->add_option(
      "--key", options->key, "file of --new-key (default: data.feed_key of the run file)");
  command->add_flag("--json", options->json, "print the dry run as one line of JSON")->needs(dry);
  CLI::Option* new_key =
      command->add_option("--new-key", options->new_key, "file to write a new key to; no feed");
  add_force(*command, options->force);
  config->excludes(new_key);
  dry->excludes(new_key);
  command->callback([options, dry, new_key, &action] {
    if (dry->count() > 0 && !options->dry_run) {
      throw CLI::ValidationError("--dry-run", "takes no value");
    }
    if (new_key->count() > 0 && options->new_key.empty()) {
      throw CLI::ValidationError("--new-key", "'' is no name of a file");
    }
    if (options->config.empty() && options->new_key.empty()) {
      throw CLI::RequiredError("config");
    }
    action = [options] {
      return options->new_key.empty()
                 ? engine::without_torch_errors([&] { return serve(*options); })
                 : make_key(*options);
    };
  });
}

}  // namespace entrain::cli
