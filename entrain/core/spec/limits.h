// Ranges of numbers that plans, run files and options of commands have in common.
#pragma once

namespace entrain {

inline constexpr int kMostSlots = 65'536;     // microbatches per replica
inline constexpr int kMostReplicas = 65'536;  // full model copies

}  // namespace entrain
