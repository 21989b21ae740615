// MegaScale-style: Swift's round trips and DCQCN's answer to marks in one sender. MegaScale (NSDI 2024) says that it joins the two
// and publishes no equations, so these are our own:
//   w       Swift's window (delay.h): all increases, and the decrease when the round trip is above the target
//   r       a cap on the rate. Notification: r = max(rmin, min(r, w / rtt) (1 - alpha/2)) at once, at most once a round trip, with
//           DCQCN's alpha. When Swift gains dw packets, r gains dw packets a idle round trip: Swift governs the increase.
//   rate = min(r, w / rtt), with w outstanding
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/packet/cc/algorithm.h"
#include "net/packet/cc/alpha.h"
#include "net/packet/cc/delay.h"

namespace wt::net::packet {

inline constexpr std::array kHybridParameters = joined(
    kDelayParameters, std::array{
                          Parameter{"g", "", 5.0 / 1024.0, 0.0, 1.0, "gain of alpha"},
                          Parameter{"alpha_first", "", 1023.0 / 1024.0, 0.0, 1.0, "alpha at the first notification"},
                          Parameter{"alpha_period", "s", 1e-6, 1e-9, 10.0, "time between updates of alpha"},
                          Parameter{"rmin", "B/s", 100e6 / 8.0, 1.0, 1e15, "smallest rate that notifications cut to"},
                          Parameter{"cnp_interval", "s", 4e-6, 0.0, 10.0, "least time between notifications"},
                          Parameter{"cnp_per_port", "0/1", 1.0, 0.0, 1.0, "as of dcqcn"},
                          Parameter{"echo", "0/1", 0.0, 0.0, 1.0, "1: marks come back in ACKs, each a notification; 0: in CNPs"},
                      });

class Hybrid final : public Control {
 public:
  Hybrid(const Values& values, std::int32_t pairs);
  [[nodiscard]] bool wants_notifications() const override { return !echo_; }
  [[nodiscard]] Time notification_interval() const override { return interval_; }
  [[nodiscard]] bool notifications_per_port() const override { return per_port_; }
  void begin(std::int32_t pair, Time now, const Line& line) override;
  void acked(std::int32_t pair, const Ack& ack) override;
  void notified(std::int32_t pair, Time now) override;
  void lost(std::int32_t pair, Time now, bool timed_out) override;
  [[nodiscard]] Permit permit(std::int32_t pair, Time now) override;

 private:
  struct Pair {
    DelayWindow window;
    double cap = 0.0;  // r, B/s
    double line = 0.0;
    double rate = 0.0;        // what permit() answers
    Time cut = 0;             // last cut of the cap
    float round_trip = 0.0F;  // s, idle
    Alpha alpha;
  };
  static_assert(sizeof(Pair) <= 128);

  static void settle(Pair& p);

  DelayRule rule_;
  AlphaRule alpha_;
  Time interval_;
  double rmin_;
  bool echo_;
  bool per_port_;
  std::vector<Pair> pairs_;
};

inline constexpr Algorithm kHybrid{
    "hybrid", "MegaScale-style: Swift's window under a cap that marks cut", kHybridParameters,
    [](const Values& values, std::int32_t pairs) -> std::unique_ptr<Control> { return std::make_unique<Hybrid>(values, pairs); }};

}  // namespace wt::net::packet
