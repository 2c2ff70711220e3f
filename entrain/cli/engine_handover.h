// Switches from the program without torch to the one with it.
#pragma once

namespace entrain::cli {

// Replaces this process by the program `entrain-engine` in the same folder, with the same
// arguments.
//
// Throws  SystemFailure if that program cannot be started.
[[noreturn]] void hand_over_to_engine(char** argv);

}  // namespace entrain::cli
