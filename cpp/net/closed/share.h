// Flows by formula: each link of the path is treated alone, as if it were the only shared one.
#pragma once

#include <span>
#include <vector>

#include "fabric/graph.h"
#include "net/lanes.h"

namespace wt::net {

// Seconds [P] from each flow's start until its last byte has passed: the longest that one of its links needs to serve it when all
// flows through that link share it equally, from their starts on (processor sharing). No latencies; an empty path takes no time.
// Throws wt::Error for bytes or starts that are not finite and >= 0, and for links that do not exist.
std::vector<double> share(const fabric::Graph& graph, const Paths& paths, std::span<const double> bytes,
                          std::span<const double> start);

}  // namespace wt::net
