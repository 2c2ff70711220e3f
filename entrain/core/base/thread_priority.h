// Priorities of threads when there are more of them than cores.
#pragma once

namespace entrain {

// Runs the calling thread, and those that it starts, only when cores are idle: for background work
// (decoding, assignments, writing checkpoints) that lanes do not wait for in every
// operation. When cores are busy it still gets about a tenth of one. Linux; elsewhere, or if
// the system refuses, no effect.
void run_in_background();

// Lets the calling thread, and those that it starts, preempt background threads as soon as
// they wake: for ranks, which others wait for. Otherwise they may wait some ms for a turn
// to end (Linux since 6.6; set by a short slice, supported since 6.12; elsewhere
// no effect).
void wake_promptly();

}  // namespace entrain
