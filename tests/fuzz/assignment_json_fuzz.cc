// Assignments of a batch of three samples.
#include "tests/fuzz/documents.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  static const BatchNames names = batch_names(fuzz::tiny_model(), fuzz::tiny_batch());
  fuzz::expect_result_or_refusal([&] {
    const StepAssignment assignment = assignment_from_json(
        parse_json(fuzz::text_of(data, size), "assignment.json"), names, "assignment.json");
    digest(assignment);
  });
  return 0;
}
