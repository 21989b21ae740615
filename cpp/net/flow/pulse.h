// Calls a function about every 50 ms of a long loop, looking at the clock only now and then; the result of a run never depends on
// it.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

namespace wt::net::flow {

class Pulse {
 public:
  explicit Pulse(std::function<void()> beat) : beat_(std::move(beat)), last_(Clock::now()) {}

  void tick() {
    if (++ticks_ % kTicks != 0 || !beat_) return;
    const auto now = Clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return;
    last_ = now;
    beat_();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr unsigned kTicks = 16;

  std::function<void()> beat_;
  Clock::time_point last_;
  unsigned ticks_ = 0;
};

}  // namespace wt::net::flow
