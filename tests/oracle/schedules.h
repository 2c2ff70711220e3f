// The schedules that can run a plan.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/schedule/schedule.h"
#include "entrain/core/spec/plan.h"

namespace entrain::oracle {

inline std::vector<std::string> schedules_for(const Plan& plan) {
  std::vector<std::string> result;
  for (const std::string& schedule : schedule_names()) {
    if (schedule_objection(schedule, plan).empty()) {
      result.push_back(schedule);
    }
  }
  return result;
}

}  // namespace entrain::oracle
