// What a run and a feed of it must agree on, and a rank's side of it.
#pragma once

#include <functional>
#include <string>

#include "entrain/core/base/json.h"

#include "entrain/engine/data/feed_client.h"
#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

// What a feed and its ranks must have in common.
FeedRun feed_run_of(const RunSetup& setup);

// A rank's side, without the address of any feed. `readers`: ranks of the lane that are fed on
// their own.
FeedOptions unfed_options(const RunSetup& setup,
                          int replica,
                          int lane,
                          int rank,
                          int readers,
                          std::function<void(const std::string&)> note);
// Adds the feeds of [data] and their key.
//
// Throws  InvalidInput: a key that cannot be read, or none for a feed on another host.
void add_feeds(const DataConfig& data, FeedOptions& options);

// What each rank that reads samples is sent for the first step: a list of {"replica", "lane",
// "segments", "segment_bytes" (as floats), "texts"}.
Json first_needs(const RunSetup& setup);

// What a rank's run has otherwise than the feed's, for the rank to read: "seed 5, here 0", which is
// first the feed's. Empty if they are the same.
// They may differ in the number of steps: a feed decodes up to the rank's last one.
std::string feed_difference(const FeedRun& theirs, const FeedRun& ours);

// Requires  a run without feed_difference().
std::int64_t steps_of(const FeedRun& run);

// Says that a feed which other hosts reach needs a key, and how to make one. `where`: the option.
std::string required_key(const FeedAddress& address, const char* where);

}  // namespace entrain::engine
