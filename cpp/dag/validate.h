// Checks a task graph's columns before they run.
#pragma once

#include "dag/dag.h"

namespace wt::dag {

// Throws wt::Error that names the first thing that is wrong.
void validate(const Tasks& tasks, const Lanes& lanes, const Channels& channels, bool has_model);

}  // namespace wt::dag
