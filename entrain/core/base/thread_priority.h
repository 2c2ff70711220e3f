// Which threads may wait when there are more of them than cores.
#pragma once

namespace entrain {

// The calling thread, and those that it starts, run where others leave a core: for work beside the
// step (decoding, assignments, writing checkpoints), which lanes need not wait for operation by
// operation. While cores are short it still gets about a tenth of one. Linux; elsewhere, or where
// the system refuses, nothing happens.
void run_in_background();

// The calling thread, and those that it starts, take a core from one in the background as soon as
// they wake: for ranks, which others wait for. Without it they may wait for some ms until its turn
// is over (Linux since 6.6; asked for by a short slice, which Linux knows since 6.12; elsewhere
// nothing happens).
void wake_promptly();

}  // namespace entrain
