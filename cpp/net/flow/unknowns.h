// Variables that cannot be told apart share one unknown of the solver: the same links with the same demands in the same order, and
// the same bound on rate / weight. Flows between the same ports on the same path are the common case.
#pragma once

#include <cstdint>
#include <vector>

#include "net/flow/solver.h"

namespace wt::net::flow {

struct Grouped {
  Unknowns unknowns;
  std::vector<std::int32_t> of;  // [V] unknown of each variable; kNothing: it has no links and no bound, so it ends as it starts
};

inline constexpr std::int32_t kNothing = -1;

[[nodiscard]] Grouped group(const Demands& demands, const Variables& variables);

}  // namespace wt::net::flow
