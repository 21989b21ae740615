// Durations that are whole numbers of a unit, a power of two. While times stay below 2^53 units their sums and differences are
// exact: what begins alike ends alike, to the last bit, whenever it begins.
#pragma once

namespace wt::exec {

class Grid {
 public:
  Grid() = default;  // durations stay as they are
  explicit Grid(double unit) : unit_(unit), magnet_(unit * 0x1.8p52) {}

  // The nearest whole number of units, for durations below 2^51 of them.
  [[nodiscard]] double snap(double seconds) const { return (seconds + magnet_) - magnet_; }
  [[nodiscard]] double unit() const { return unit_; }

 private:
  double unit_ = 0.0;
  double magnet_ = 0.0;
};

}  // namespace wt::exec
