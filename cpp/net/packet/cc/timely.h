// TIMELY: a rate that follows how the round trip changes. Once a round trip, with the measured rtt:
//   d = (1 - a) d + a (rtt - rtt before);   gradient = d / min_rtt
//   rtt < t_low, or gradient <= 0 and rtt <= t_high:  R += rai (rhai after `hai_after` increases in a row)
//   rtt > t_high:                                     R *= 1 - b (1 - t_high / rtt)
//   else:                                             R *= max(0, 1 - b gradient)
// R. Mittal et al., "TIMELY: RTT-based congestion control for the datacenter", SIGCOMM 2015; which increase applies where, and
// the defaults, are those of the HPCC ns-3 fork.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/packet/cc/algorithm.h"

namespace wt::net::packet {

inline constexpr std::array kTimelyParameters{
    Parameter{"a", "", 0.875, 0.0, 1.0, "weight of a new change of the round trip"},
    Parameter{"b", "", 0.8, 0.0, 1.0, "strength of a decrease"},
    Parameter{"t_low", "s", 50e-6, 0.0, 10.0, "below this round trip the rate always rises"},
    Parameter{"t_high", "s", 500e-6, 0.0, 10.0, "above this round trip the rate always falls"},
    Parameter{"min_rtt", "s", 20e-6, 0.0, 10.0, "what changes are measured against; 0: the path's idle round trip"},
    Parameter{"hai_after", "", 5.0, 0.0, 60000.0, "increases in a row before they become hyper increases"},
    Parameter{"rai", "B/s", 50e6 / 8.0, 0.0, 1e15, "additive increase"},
    Parameter{"rhai", "B/s", 100e6 / 8.0, 0.0, 1e15, "hyper increase"},
    Parameter{"rmin", "B/s", 100e6 / 8.0, 1.0, 1e15, "smallest rate"},
};

class Timely final : public Control {
 public:
  Timely(const Values& values, std::int32_t pairs);
  void begin(std::int32_t pair, Time now, const Line& line) override;
  void acked(std::int32_t pair, const Ack& ack) override;
  [[nodiscard]] Permit permit(std::int32_t pair, Time now) override;

 private:
  struct Pair {
    double rate = 0.0;
    double line = 0.0;
    double change = 0.0;       // d, s
    double rtt = -1.0;         // the last sample, s; below 0: none yet
    double min_rtt = 0.0;      // s
    std::int64_t updated = 0;  // the next sample is taken beyond this byte
    std::int32_t rises = 0;    // in a row
  };

  double a_, b_, t_low_, t_high_, min_rtt_, rai_, rhai_, rmin_;
  std::int32_t hai_after_;
  std::vector<Pair> pairs_;
};

inline constexpr Algorithm kTimely{
    "timely", "rate from the gradient of the round trip", kTimelyParameters,
    [](const Values& values, std::int32_t pairs) -> std::unique_ptr<Control> { return std::make_unique<Timely>(values, pairs); }};

}  // namespace wt::net::packet
