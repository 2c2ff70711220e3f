// From the program without torch to the one with it.
#pragma once

namespace entrain::cli {

// Where the arguments ask for a command that needs the engine, or for help with all commands:
// becomes the program `entrain-engine` that lies beside this one, with the same arguments. Returns
// otherwise.
//
// Throws  SystemFailure when that program cannot be started.
void hand_over_to_engine(int argc, char** argv);

}  // namespace entrain::cli
