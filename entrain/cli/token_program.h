// Where the program finds the Python that tokenizes.
#pragma once

#include "entrain/core/dataset/token_workers.h"

namespace entrain::cli {

// `python`: ENTRAIN_PYTHON if it is set, else the interpreter that the build was configured with if
// it is still there, else python3. `packages`: the package beside this program, as it was built or
// installed.
//
// Throws  SystemFailure if there is no such package.
TokenizerOptions find_token_program();

// What find_token_program() returns from now on: for a process that is this Python itself.
void set_token_program(TokenizerOptions options);

}  // namespace entrain::cli
