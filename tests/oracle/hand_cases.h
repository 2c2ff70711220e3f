// Plans, costs and assignments written by hand, and programs as short texts to compare with.
//
// Read first: make_hand_case(), compute_text().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/program.h"

namespace entrain::oracle {

struct HandCase {
  Plan plan;
  StepCosts costs;
  StepAssignment assignment;
};

struct HandSample {
  int llm_slot = 0;
  std::vector<std::vector<int>> encoder_slots;  // [encoder][segment]
};

// One replica, one lane a stage, everything trainable; modules "vision", "audio", "video", "llm".
// Every unit takes 10 ns forward and 20 ns backward a stage, keeps 100 bytes and sends 10; no
// launch constant, a free link. A sample has 12 tokens in the LLM, 2 of each segment among them, at
// the front. Change what a test is about.
//
// Shapes  num_stages: [module], the LLM's last.
HandCase make_hand_case(const std::vector<int>& num_stages,
                        int num_slots,
                        const std::vector<HandSample>& samples);

// One sample a slot with one segment in every encoder, nothing deferred.
HandCase make_plain_case(const std::vector<int>& num_stages, int num_slots);

// Cuts a sample's LLM work into chunks: chunk i stands in slots[i] and begins at begins[i]; the
// sample's cost spreads evenly over its tokens.
// Requires  begins[0] == 0; the sample is whole.
void cut_sample(HandCase& hand_case,
                int sample,
                const std::vector<int>& slots,
                const std::vector<std::int64_t>& begins);

// Marks stages of a module as trainable or frozen; a frozen stage has no weight gradient.
void set_trainable(HandCase& hand_case, int module, bool trainable);

// The lane's compute operations: "F0 F1 B0 B1". Forward is F, backward B, its halves I and W, the
// number is the slot; ".1" follows where the slot has several groups; "vision0:" goes before where
// the lane hosts several stages.
std::string compute_text(const Program& program, int replica, int lane);

// `text` so many times.
std::string repeat(const std::string& text, int times);

// All operations: sends and receives as ">F0" and "<F0" (activations), ">B0" and "<B0" (gradients);
// step-wide ones as "reduce", "clip", "step".
std::string lane_text(const Program& program, int replica, int lane);

}  // namespace entrain::oracle
