// DCQCN's estimate of congestion on the path: alpha, between 0 and 1. Elapsed periods are applied when it is read.
#pragma once

#include <cstdint>

#include "net/packet/cc/algorithm.h"

namespace wt::net::packet {

// x^n for n >= 0 by repeated squaring.
[[nodiscard]] constexpr double power(double x, std::int64_t n) {
  double out = 1.0;
  for (; n > 0 && out != 0.0; n >>= 1, x *= x) {
    if ((n & 1) != 0) out *= x;
  }
  return out;
}

struct AlphaRule {
  double g = 0.0;
  double first = 1.0;  // alpha at the first notification
  Time period = 0;
  bool by_timer = true;  // once a period, up if a notification came in it; else: up on each, down after each period without one
};

class Alpha {
 public:
  [[nodiscard]] bool started() const { return next_ != kNoTime; }

  void start(const AlphaRule& rule, Time now) {
    value_ = rule.first;
    next_ = now + rule.period;
    seen_ = false;
  }

  void notify(const AlphaRule& rule, Time now) {
    advance(rule, now);
    if (rule.by_timer) {
      seen_ = true;
    } else {
      value_ += rule.g * (1.0 - value_);
      next_ = now + rule.period;
    }
  }

  // alpha after all periods that ended by `now`.
  double advance(const AlphaRule& rule, Time now) {
    if (now < next_ || next_ == kNoTime) return value_;
    const std::int64_t periods = (now - next_) / rule.period + 1;
    next_ += periods * rule.period;
    value_ *= power(1.0 - rule.g, periods);
    if (seen_) value_ += rule.g * power(1.0 - rule.g, periods - 1);  // it came in the first of them
    seen_ = false;
    return value_;
  }

 private:
  double value_ = 0.0;
  Time next_ = kNoTime;  // end of the running period; kNoTime before the first notification
  bool seen_ = false;
};

}  // namespace wt::net::packet
