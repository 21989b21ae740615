// When communication of one rank is in flight, and how long computing takes beside it.
//
// The set is a list of disjoint intervals in order of time. Intervals enter in program order: those that belong to an instance
// wait in a heap until the first computing instance behind it is placed. So what an operator sees does not depend on the order
// in which ranks happen to be run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "exec/grid.h"

namespace wt::exec {

class Flights {
 public:
  // An interval of an instance that may lie ahead, in program order, of what is computed next.
  void hold(std::int32_t instance, double begin, double end) {
    if (end <= begin) return;
    held_.push_back({begin, end, instance});
    std::push_heap(held_.begin(), held_.end(), later);
  }

  // Takes in what was held for instances before `instance`.
  void take_before(std::int32_t instance) {
    while (!held_.empty() && held_.front().instance < instance) {
      add(held_.front().begin, held_.front().end);
      std::pop_heap(held_.begin(), held_.end(), later);
      held_.pop_back();
    }
  }

  void add(double begin, double end) {
    if (end <= begin) return;
    std::size_t from = set_.size();
    while (from > 0 && set_[from - 1].end >= begin) --from;  // near the back: communication is issued roughly in order of time
    std::size_t to = from;
    for (; to < set_.size() && set_[to].begin <= end; ++to) {
      begin = std::min(begin, set_[to].begin);
      end = std::max(end, set_[to].end);
    }
    if (to == from) {
      set_.insert(set_.begin() + static_cast<std::ptrdiff_t>(from), {begin, end});
    } else {
      set_[from] = {begin, end};
      set_.erase(set_.begin() + static_cast<std::ptrdiff_t>(from) + 1, set_.begin() + static_cast<std::ptrdiff_t>(to));
    }
    hint_ = std::min(hint_, from);
  }

  // End of `seconds` of computing that starts at `start` and keeps `rate` (0..1) of its speed while communication is in flight.
  [[nodiscard]] double compute(double start, double seconds, double rate, const Grid& grid = {}) {
    std::size_t at = hint_;
    while (at > 0 && set_[at - 1].end > start) --at;
    while (at < set_.size() && set_[at].end <= start) ++at;
    hint_ = at;
    if (at == set_.size() || set_[at].begin >= start + seconds) return start + seconds;
    double now = start;
    double left = seconds;
    for (; at < set_.size(); ++at) {
      const Interval& flight = set_[at];
      if (flight.begin > now) {
        if (left <= flight.begin - now) return now + left;
        left -= flight.begin - now;
        now = flight.begin;
      }
      const double possible = grid.snap((flight.end - now) * rate);
      if (left <= possible) return now + grid.snap(left / rate);
      left -= possible;
      now = flight.end;
    }
    return now + left;
  }

  // Calls each(begin, end) for the intervals that end behind `at`, the last first.
  template <class Each>
  void behind(double at, Each each) const {
    for (std::size_t k = set_.size(); k > 0 && set_[k - 1].end > at; --k) each(set_[k - 1].begin, set_[k - 1].end);
  }

  [[nodiscard]] std::size_t size() const { return set_.size(); }

 private:
  struct Interval {
    double begin, end;
  };
  struct Held {
    double begin, end;
    std::int32_t instance;
  };
  static bool later(const Held& a, const Held& b) { return a.instance > b.instance; }

  std::vector<Interval> set_;
  std::vector<Held> held_;
  std::size_t hint_ = 0;
};

}  // namespace wt::exec
