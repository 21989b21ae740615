// Latency of a plain flow, in addition to bytes over rate.
#pragma once

#include <span>
#include <vector>

#include "net/flow/demand.h"

namespace wt::net::flow {

struct Latency {
  std::vector<double> there;  // s from the end of the fluid to the delivery of the last byte
  std::vector<double> back;   // s from there to the sender's last ACK
};

// Of each row, taken as a path. There: propagation of every link, and the last packet (`mtu` bytes, or the whole flow if that is
// less) stored and forwarded by every link but the slowest, whose time the fluid counts. Back: propagation and `ack` bytes over
// every link, on the same cables. `wait` s and `rate` B/s of each link.
[[nodiscard]] Latency latency(const Demands& paths, std::span<const double> wait, std::span<const double> rate,
                              std::span<const double> size, double mtu, double ack);

}  // namespace wt::net::flow
