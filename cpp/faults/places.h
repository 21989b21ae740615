// Spare places: free ones, those in repair, and those that a queue gives when none is left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "faults/law.h"

namespace wt::faults {

// Always free + in repair - needed = the spares that there were in the beginning.
class Places {
 public:
  Places(std::int64_t spares, const Law& repair, const Law& queue) : repair_(repair), queue_(queue), free_(spares) {}

  // `count` places fail at `now`: they go into repair, and as many others are needed.
  void fail(std::int64_t count, double now, Random& random) {
    for (std::int64_t i = 0; i < count; ++i) {
      const double back = now + repair_.draw(random);
      repairs_.insert(std::upper_bound(repairs_.begin(), repairs_.end(), back, std::greater<>()), back);
    }
    needed_ += count;
  }

  // When the next needed place is there, at `now` or later; `now` also if none is needed.
  double ready(double now, Random& random) {
    while (!repairs_.empty() && repairs_.back() <= now) {
      repairs_.pop_back();
      ++free_;
    }
    if (needed_ == 0 || free_ > 0) return now;
    if (queue_.mean >= 0.0 && ordered_ == kNone) ordered_ = now + queue_.draw(random);
    return std::max(now, std::min(ordered_, repairs_.empty() ? kNone : repairs_.back()));
  }

  [[nodiscard]] std::int64_t needed() const { return needed_; }

  // Takes the place that `ready` said is there now.
  void take() {
    --needed_;
    ordered_ = kNone;
    if (free_ > 0) {
      --free_;
    } else {  // from the queue: the last of those in repair is not waited for
      repairs_.erase(repairs_.begin());
    }
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  Law repair_, queue_;
  std::vector<double> repairs_;  // ends, latest first
  std::int64_t free_, needed_ = 0;
  double ordered_ = kNone;  // when the queue gives one
};

}  // namespace wt::faults
