// Partitions in step: each simulates a window as long as nothing can reach it from the others, hands over, and meets them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "net/packet/part.h"

namespace wt::net::packet {

// Runs all partitions on `threads` threads until nothing is left to happen: one alone takes them one after the other in each
// window, so that what a partition works with stays in the caches. `poll` is called from the calling thread with the bytes that
// have arrived; true stops the run. The first exception of a partition (by number) is thrown again.
void run_together(std::vector<std::unique_ptr<Part>>& parts, std::int32_t threads, Time lookahead,
                  const std::function<bool(std::int64_t)>& poll);

}  // namespace wt::net::packet
