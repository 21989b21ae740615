// Time in the exec core is float64 seconds from the start of the step.
#pragma once

#include <limits>

namespace wt {

inline constexpr double kNever = std::numeric_limits<double>::infinity();
inline constexpr double kUnset = std::numeric_limits<double>::quiet_NaN();

// Compensated (Kahan) sum, so that a rank's times add up to the makespan to 1e-12 even over millions of operators.
class Sum {
 public:
  void add(double x) noexcept {
    const double y = x - lost_;
    const double t = total_ + y;
    lost_ = (t - total_) - y;
    total_ = t;
  }
  [[nodiscard]] double value() const noexcept { return total_; }

 private:
  double total_ = 0.0;
  double lost_ = 0.0;
};

}  // namespace wt
