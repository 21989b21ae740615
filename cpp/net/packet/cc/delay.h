// Swift's window: packets that may be outstanding, steered so that the round trip meets a target.
//   target = max(base, base_rtts x idle round trip) + hops x hop + clamp(fa / sqrt(w) + fb, 0, fs_range)
//   fa = fs_range / (1/sqrt(least) - 1/sqrt(fs_most)),  fb = -fa / sqrt(fs_most)
//   ACK of n packets:  rtt < target:  w += ai n / w if w >= 1, else ai n
//                      else, once a round trip:  w *= max(1 - b (rtt - target) / rtt, 1 - mdf)
//   loss:  w *= 1 - mdf, once a round trip; after more than `retries` timeouts in a row w = least
// w stays between `least` and what fills the line for the whole target. G. Kumar et al., "Swift: delay is simple and effective for
// congestion control in the datacenter", SIGCOMM 2020. Swift's second window, for delay in the host, is left out: hosts have none
// here. The base in idle round trips is ours, so that paths longer than the base do not starve.
#pragma once

#include <array>
#include <cstdint>

#include "net/packet/cc/algorithm.h"

namespace wt::net::packet {

// Defaults are those of htsim's Swift, whose author calls them guesses.
inline constexpr std::array kDelayParameters{
    Parameter{"base", "s", 20e-6, 0.0, 10.0, "part of the target that is the same for all paths"},
    Parameter{"base_rtts", "", 1.25, 0.0, 1000.0, "the base is at least this many idle round trips"},
    Parameter{"hop", "s", 20e-6 / 6.55, 0.0, 1.0, "part of the target for each link of the path"},
    Parameter{"fs_range", "s", 100e-6, 0.0, 10.0, "most that the target rises for small windows"},
    Parameter{"fs_most", "", 100.0, 2.0, 1e9, "window in packets from which on the target does not rise"},
    Parameter{"least", "", 0.1, 1e-4, 1.0, "smallest window, packets"},
    Parameter{"ai", "", 1.0, 0.0, 1000.0, "packets that the window gains in a round trip"},
    Parameter{"b", "", 0.8, 0.0, 1.0, "strength of a decrease"},
    Parameter{"mdf", "", 0.5, 0.0, 1.0, "most that is cut at once"},
    Parameter{"retries", "", 5.0, 0.0, 60000.0, "timeouts in a row that shrink the window to the least"},
};

struct DelayRule {
  explicit DelayRule(const Values& values);
  double base, base_rtts, hop;  // ps, -, ps
  double fs_range, fa, fb;      // ps
  double least, ai, b, keep;    // keep: 1 - mdf
  std::int32_t retries;
};

class DelayWindow {
 public:
  void begin(const DelayRule& rule, Time now, const Line& line);
  // Packets gained; 0 if the delay was above the target.
  double acked(const DelayRule& rule, const Ack& ack);
  void lost(const DelayRule& rule, Time now, bool timed_out);

  [[nodiscard]] double packets() const { return packets_; }
  [[nodiscard]] double target(const DelayRule& rule) const;  // ps
  [[nodiscard]] double mtu() const { return mtu_; }
  [[nodiscard]] double rtt() const { return rtt_; }                                     // ps, the last sample
  [[nodiscard]] double rate() const { return packets_ * mtu_ / (rtt_ * kPicosecond); }  // B/s at that round trip
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(packets_ < 1.0 ? mtu_ : packets_ * mtu_); }

 private:
  void cut(const DelayRule& rule, Time now, double factor);

  double packets_ = 0.0;
  double fixed_ = 0.0;  // ps, target without what depends on the window
  double most_ = 0.0;   // packets
  double mtu_ = 0.0;
  double rtt_ = 0.0;
  Time cut_ = 0;  // last decrease
  std::int32_t timeouts_ = 0;
};

}  // namespace wt::net::packet
