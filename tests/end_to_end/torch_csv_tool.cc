// Lets torch_csv_test.py exchange compute orders with torch.distributed.pipelining.
//
//   torch_csv_tool export SCHEDULE SLOTS STAGES LANES [ENCODER_STAGES]
//   torch_csv_tool import          SLOTS STAGES LANES [ENCODER_STAGES]
//
// The case: one sample a slot, stages of equal cost (10 ns for each of forward and both halves of
// backward), stage i of the chain on lane i mod LANES. Export prints the schedule as CSV; import
// reads a CSV from standard input and prints the simulated step time in ns. Exit status 2 and a
// message where the CSV is refused.
#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/schedule/torch_csv.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"

namespace {

entrain::oracle::HandCase make_case(int slots, int stages, int lanes, int encoder_stages) {
  const std::vector<int> num_stages = encoder_stages > 0
                                          ? std::vector{encoder_stages, stages - encoder_stages}
                                          : std::vector{stages};
  entrain::oracle::HandCase result = entrain::oracle::make_plain_case(num_stages, slots);
  std::vector<std::vector<entrain::StageRef>> wrapped(static_cast<std::size_t>(lanes));
  std::size_t next = 0;
  for (const auto& lane : result.plan.lanes) {
    wrapped[next++ % wrapped.size()].push_back(lane[0]);
  }
  result.plan.lanes = wrapped;
  return result;
}

int run(std::vector<std::string> arguments) {
  const bool exports = arguments.at(0) == "export";
  const std::string schedule = exports ? arguments.at(1) : "torch";
  arguments.erase(arguments.begin(), arguments.begin() + (exports ? 2 : 1));
  const auto hand_case = make_case(std::stoi(arguments.at(0)),
                                   std::stoi(arguments.at(1)),
                                   std::stoi(arguments.at(2)),
                                   arguments.size() > 3 ? std::stoi(arguments[3]) : 0);
  if (exports) {
    const entrain::Program program =
        entrain::build_program(hand_case.plan, hand_case.assignment, hand_case.costs, schedule);
    std::cout << entrain::to_torch_csv(program);
    return 0;
  }
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const entrain::Program program =
      entrain::build_program_from_orders(hand_case.plan,
                                         hand_case.assignment,
                                         hand_case.costs,
                                         {entrain::orders_from_torch_csv(text, hand_case.plan)},
                                         schedule);
  std::cout << entrain::simulate(program, hand_case.costs).makespan.count() << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const entrain::InvalidInput& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
