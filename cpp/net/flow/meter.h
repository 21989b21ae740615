// Traffic of each link: bytes, seconds with any traffic, seconds at 99 % of its capacity or more; bytes over time if asked for.
#pragma once

#include <cstddef>
#include <vector>

#include "net/bins.h"

namespace wt::net::flow {

class Meter {
 public:
  explicit Meter(std::size_t links) : links_(links) {}

  struct Link {
    double until = 0.0;  // metered so far
    double bytes = 0.0, busy = 0.0, full = 0.0;
  };
  using OverTime = Bins<double, Sum>;

  // From now on also bytes over time.
  void keep_bins() { bins_.resize(links_.size()); }

  // The link has carried `load` since it was last metered.
  void settle(std::size_t link, double load, double capacity, double now) {
    Link& l = links_[link];
    const double from = l.until, seconds = now - l.until;
    l.until = now;
    if (!(load > 0.0) || !(seconds > 0.0)) return;
    add(link, load, capacity, seconds);
    if (!bins_.empty()) bins_[link].spread(from, now, load);
  }
  // Seconds of a load, whenever they were.
  void add(std::size_t link, double load, double capacity, double seconds) {
    if (!(load > 0.0)) return;
    Link& l = links_[link];
    l.bytes += load * seconds;
    l.busy += seconds;
    if (load >= 0.99 * capacity) l.full += seconds;
  }
  // Bytes that were counted, at `rate`, for something that had ended already.
  void give_back(std::size_t link, double rate, double from, double to) {
    links_[link].bytes -= rate * (to - from);
    if (!bins_.empty()) bins_[link].spread(from, to, -rate);
  }

  [[nodiscard]] const std::vector<Link>& links() const { return links_; }
  [[nodiscard]] const std::vector<OverTime>& bins() const { return bins_; }

 private:
  std::vector<Link> links_;
  std::vector<OverTime> bins_;  // empty unless kept
};

}  // namespace wt::net::flow
