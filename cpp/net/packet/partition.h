// Which nodes are simulated together.
#pragma once

#include <cstdint>

#include "net/packet/world.h"

namespace wt::net::packet {

// How many partitions a run is cut into so that what one of them works with fits into a core's cache; 1 for a small network.
[[nodiscard]] std::int32_t parts_by_size(const World& world);

// Sets Node::part and the cut links' LinkInfo::cut and wires; returns how many partitions there are (at most `want`).
// Nodes that are joined by links too quick for a window stay together, a host stays with its only switch, a server is whole.
// Units of nodes are dealt out in the order of a walk through the graph, so that neighbours meet, in shares of equal expected work.
std::int32_t partition(World& world, std::int32_t want);

// The shortest time from the start of a service on a cut link to its arrival; kForever if there is one partition.
[[nodiscard]] Time lookahead(const World& world);

}  // namespace wt::net::packet
