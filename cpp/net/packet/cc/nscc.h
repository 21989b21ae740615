// NSCC, the sender's algorithm of Ultra Ethernet: a window steered by two signals together, marks and queueing delay. Packets may
// take different paths. T: idle round trip; a = line rate x T / 150 000 B; mss: a packet; q = rtt - T.
// Per ACK of n bytes, with A += gain (s - A), s = T/4 for unmarked ACKs with q > target, else q:
//   unmarked, q <  target:  inc += n alpha mss a (target - q) / 12 us;  but n more than the window with q < `fast_below` and
//                           from then on w += n fast a instead
//   unmarked, q >= target:  inc += n fi mss a
//   marked,   q >= target:  once a round trip, if A > target: w *= max(1 - gamma (A - target) / A, 0.5)
//   marked,   q <  target:  nothing
//   every 8 packets or T:   w += inc / w, inc = 0;   every T: w += eta mss a
//   quick adapt, once every T + target: if a packet was lost or q > qa_delay targets, and less than most / qa_gate bytes were
//   acknowledged in it: w = those bytes, and marked ACKs say nothing until what was outstanding is acknowledged
// mss <= w <= most = window_most x line rate x T. After csg-htsim's uec.cpp; there a and T are of the network, here of the path.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/packet/cc/algorithm.h"

namespace wt::net::packet {

inline constexpr std::array kNsccParameters{
    Parameter{"target", "s", 0.0, 0.0, 10.0, "queueing delay aimed at; 0: target_rtts idle round trips"},
    Parameter{"target_rtts", "", 1.0, 0.01, 1000.0, "the target in idle round trips, if target is 0"},
    Parameter{"alpha", "", 4.0, 0.0, 1000.0, "proportional increase"},
    Parameter{"fi", "", 5.0, 0.0, 1000.0, "fair increase"},
    Parameter{"eta", "", 0.15, 0.0, 1000.0, "increase each round trip"},
    Parameter{"fast", "", 0.25, 0.0, 100.0, "fast increase, share of what is acknowledged"},
    Parameter{"fast_below", "s", 1e-6, 0.0, 10.0, "queueing delay below which the path counts as empty"},
    Parameter{"gamma", "", 0.8, 0.0, 1.0, "strength of a decrease"},
    Parameter{"gain", "", 0.0125, 0.0, 1.0, "gain of the average delay A"},
    Parameter{"qa_delay", "", 4.0, 0.0, 1000.0, "queueing delay, in targets, that calls for quick adapt"},
    Parameter{"qa_gate", "", 8.0, 1.0, 1e6, "quick adapt only below this part of the largest window"},
    Parameter{"window_most", "", 1.5, 0.01, 1000.0, "largest window, and the first one, in line rate x idle round trip"},
};

class Nscc final : public Control {
 public:
  Nscc(const Values& values, std::int32_t pairs);
  void begin(std::int32_t pair, Time now, const Line& line) override;
  void acked(std::int32_t pair, const Ack& ack) override;
  void lost(std::int32_t pair, Time now, bool timed_out) override;
  [[nodiscard]] Permit permit(std::int32_t pair, Time now) override;

 private:
  struct Pair {
    double window = 0.0;  // B
    double line = 0.0;    // B/s
    double inc = 0.0;     // B^2, to be divided by the window
    Time round_trip = 0;  // idle
    Time cut = 0;         // last decrease
    Time adjusted = 0;    // last increase of eta
    Time adapt = 0;       // end of quick adapt's period
    float scale = 0.0F;   // mss x a, B
    float delay = 0.0F;   // A, ps
    float target = 0.0F;  // ps
    float most = 0.0F;    // B
    std::int32_t mtu = 0;
    std::int32_t received = 0;  // B since the last increase
    float achieved = 0.0F;      // B in quick adapt's period
    float empty = 0.0F;         // B in a row with an empty path
    float ignore = 0.0F;        // B whose marks say nothing
    bool rising = false;        // fast increase goes on
    bool losses = false;        // since quick adapt was last considered
  };
  static_assert(sizeof(Pair) <= 96);

  // True if this ACK must not change the window otherwise.
  bool quick_adapt(Pair& p, const Ack& ack, double delay) const;
  void rise(Pair& p, double bytes, double delay) const;
  void bound(Pair& p) const;

  double target_, target_rtts_, alpha_, fi_, eta_, fast_, fast_below_, gamma_, gain_, qa_delay_, qa_gate_, most_;
  std::vector<Pair> pairs_;
};

inline constexpr Algorithm kNscc{
    "nscc", "window from marks and queueing delay together (Ultra Ethernet)", kNsccParameters,
    [](const Values& values, std::int32_t pairs) -> std::unique_ptr<Control> { return std::make_unique<Nscc>(values, pairs); }};

}  // namespace wt::net::packet
