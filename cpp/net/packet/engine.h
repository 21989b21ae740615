// A packet run from beginning to end.
#pragma once

#include <span>

#include "fabric/graph.h"
#include "net/lanes.h"
#include "net/packet/options.h"

namespace wt::net::packet {

[[nodiscard]] Result run(const fabric::Graph& graph, const Paths& paths, const Lanes& lanes, const Options& options,
                         const Faults& faults = {}, const Poll& poll = {});

}  // namespace wt::net::packet
