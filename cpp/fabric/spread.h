// Load of each link if every switch split each flow evenly over all of its equal next links: the reference for hash
// collisions. NICs and paths inside servers are the router's; only choices on the fabric are split.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fabric/graph.h"
#include "fabric/router.h"

namespace wt::fabric {

// Load [links] of flows from src to dst with the given weights (1: flows, bytes: bytes). If a target is connected to several
// switches, its flows arrive through them in the proportion of all flows to that set of switches. Throws as Router::path.
std::vector<double> spread(const Graph& graph, const RouteOptions& options, std::span<const std::int32_t> src,
                           std::span<const std::int32_t> dst, std::span<const std::uint64_t> key, std::span<const double> weight);

}  // namespace wt::fabric
