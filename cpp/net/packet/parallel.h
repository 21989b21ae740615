// Partitions in step: each simulates a window as long as nothing can reach it from the others, hands over, and meets them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "net/packet/part.h"

namespace wt::net::packet {

// Runs all partitions until nothing is left to happen. `poll` is called from the calling thread; true stops the run.
// The first exception of a partition (by number) is thrown again.
void run_together(std::vector<std::unique_ptr<Part>>& parts, Time lookahead, const std::function<bool()>& poll);

}  // namespace wt::net::packet
