// What tests of congestion controls share: a queue pair with short calls, and presets as the catalogue has them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/packet/cc/registry.h"

namespace drive {

using namespace wt::net::packet;

inline constexpr double kGb = 1e9 / 8.0;  // B/s
inline constexpr Time kUs = 1'000'000;    // ps

using Settings = std::vector<Setting>;

// The constants of the HPCC ns-3 fork's DCQCN, and those of the DCQCN paper.
inline Settings fork_dcqcn() {
  return {{"g", 1.0 / 256},    {"alpha_first", 1.0}, {"alpha_period", 1e-6}, {"cut_window", 4e-6},
          {"min_factor", 0.0}, {"timer", 900e-6},    {"bytes", 0.0},         {"threshold", 1.0},
          {"rai", 0.05 * kGb}, {"rhai", 0.1 * kGb},  {"rmin", 0.1 * kGb},    {"echo", 1.0}};
}
inline Settings paper_dcqcn() {
  return {{"g", 1.0 / 256},     {"alpha_first", 1.0}, {"alpha_period", 55e-6}, {"alpha_by_timer", 0.0},
          {"cut_window", 0.0},  {"min_factor", 0.0},  {"clamp", 1.0},          {"timer", 55e-6},
          {"bytes", 10e6},      {"threshold", 5.0},   {"rai", 0.04 * kGb},     {"rhai", 0.2 * kGb},
          {"hyper_grows", 1.0}, {"rmin", 0.04 * kGb}, {"cnp_interval", 50e-6}, {"cnp_per_port", 0.0}};
}

// One queue pair of a 400G line with an idle round trip of 12 us over 6 links and packets of 4096 B.
inline Line line400() { return {400.0 * kGb, 12 * kUs, 6, 4096}; }

class Pair {
 public:
  Pair(std::string_view algorithm, const Settings& settings, const Line& line = line400())
      : control_(make_control(algorithm, settings, 1)) {
    control_->begin(0, 0, line);
  }
  void notify(Time now) { control_->notified(0, now); }
  void ack(const Ack& ack) { control_->acked(0, ack); }
  void sent(Time now, std::int64_t bytes) { control_->sent(0, now, bytes); }
  void lost(Time now, bool timed_out) { control_->lost(0, now, timed_out); }
  [[nodiscard]] double rate(Time now) { return control_->permit(0, now).rate; }
  [[nodiscard]] std::int64_t window(Time now) { return control_->permit(0, now).window; }
  [[nodiscard]] Control& control() { return *control_; }

 private:
  std::unique_ptr<Control> control_;
};

}  // namespace drive
