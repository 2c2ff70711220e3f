// Options with checked values: numbers with a range, and outputs.
#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "entrain/core/base/output.h"
#include "entrain/core/base/ranges.h"

namespace entrain::cli {

// A whole number in [least, most]. In help and messages "1 to 100,000"; `hint` ends the message of
// a number above that.
CLI::Validator whole(std::int64_t least, std::int64_t most, const std::string& hint = "");
// A number in the range, neither NaN nor infinite.
CLI::Validator number(const NumberRange& range);
// A seed, up to the largest integer of TOML, so that every command and run file takes the same.
CLI::Validator seed_number();

// --force, for all outputs of a command; see Outputs.
void add_force(CLI::App& command, bool& force);

}  // namespace entrain::cli
