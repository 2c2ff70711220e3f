// Which threads may wait when there are more of them than cores.
#pragma once

namespace entrain {

// The calling thread, and those that it starts, run where others leave a core: for work beside the
// step (decoding, assignments, writing checkpoints), which lanes need not wait for operation by
// operation. While cores are short it still gets about a tenth of one. Linux; elsewhere, or where
// the system refuses, nothing happens.
void run_in_background();

}  // namespace entrain
