// From the program without torch to the one with it.
#pragma once

namespace entrain::cli {

// Becomes the program `entrain-engine` that lies beside this one, with the same arguments.
//
// Throws  SystemFailure when that program cannot be started.
[[noreturn]] void hand_over_to_engine(char** argv);

}  // namespace entrain::cli
