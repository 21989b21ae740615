// Traffic of each link: bytes, seconds with any traffic, seconds at 99 % of its capacity or more.
#pragma once

#include <cstddef>
#include <vector>

namespace wt::net::flow {

class Meter {
 public:
  explicit Meter(std::size_t links) : links_(links) {}

  struct Link {
    double until = 0.0;  // metered so far
    double bytes = 0.0, busy = 0.0, full = 0.0;
  };

  // The link has carried `load` since it was last metered.
  void settle(std::size_t link, double load, double capacity, double now) {
    Link& l = links_[link];
    const double seconds = now - l.until;
    l.until = now;
    if (!(load > 0.0) || !(seconds > 0.0)) return;
    l.bytes += load * seconds;
    l.busy += seconds;
    if (load >= 0.99 * capacity) l.full += seconds;
  }
  // Bytes that were counted for something that had ended already.
  void give_back(std::size_t link, double bytes) { links_[link].bytes -= bytes; }

  [[nodiscard]] const std::vector<Link>& links() const { return links_; }

 private:
  std::vector<Link> links_;
};

}  // namespace wt::net::flow
