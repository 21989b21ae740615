// Swift: a window steered by the round trip (delay.h). Windows of a packet or more are sent at line rate; below one packet they are
// paced, one packet each round trip / window.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/packet/cc/algorithm.h"
#include "net/packet/cc/delay.h"

namespace wt::net::packet {

class Swift final : public Control {
 public:
  Swift(const Values& values, std::int32_t pairs) : rule_(values), pairs_(static_cast<std::size_t>(pairs)) {}

  void begin(std::int32_t pair, Time now, const Line& line) override {
    Pair& p = pairs_[static_cast<std::size_t>(pair)];
    p.window.begin(rule_, now, line);
    p.line = line.rate;
  }
  void acked(std::int32_t pair, const Ack& ack) override { (void)pairs_[static_cast<std::size_t>(pair)].window.acked(rule_, ack); }
  void lost(std::int32_t pair, Time now, bool timed_out) override {
    pairs_[static_cast<std::size_t>(pair)].window.lost(rule_, now, timed_out);
  }
  [[nodiscard]] Permit permit(std::int32_t pair, Time) override {
    const Pair& p = pairs_[static_cast<std::size_t>(pair)];
    return {p.window.packets() < 1.0 ? std::min(p.window.rate(), p.line) : p.line, p.window.bytes()};
  }

 private:
  struct Pair {
    DelayWindow window;
    double line = 0.0;
  };
  static_assert(sizeof(Pair) <= 96);

  DelayRule rule_;
  std::vector<Pair> pairs_;
};

inline constexpr Algorithm kSwift{
    "swift", "window steered by the round trip", kDelayParameters,
    [](const Values& values, std::int32_t pairs) -> std::unique_ptr<Control> { return std::make_unique<Swift>(values, pairs); }};

}  // namespace wt::net::packet
