// One run, from its first start to its end.
#pragma once

#include <array>
#include <limits>
#include <span>
#include <vector>

#include "faults/faults.h"
#include "faults/places.h"

namespace wt::faults {

class Replica {
 public:
  Replica(const Task& task, std::span<const Kind> kinds, Random random);
  void run();

  [[nodiscard]] double wall() const { return now_; }
  [[nodiscard]] bool done() const { return work_ >= task_.work; }
  [[nodiscard]] const std::array<double, kParts>& parts() const { return parts_; }
  [[nodiscard]] const std::vector<std::int64_t>& count() const { return count_; }

 private:
  struct Timer {
    double at;
    std::size_t kind;
  };
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  static constexpr std::size_t kNobody = static_cast<std::size_t>(-1);

  // train.cpp: progress of RUN
  void train(double seconds);
  void whole_cycles(double& seconds, double pace);
  void work_for(double seconds, double pace);
  [[nodiscard]] double cycle_slow_loss(double pace, double beside) const;
  void finish_save();
  void lose();
  [[nodiscard]] double pace() const;

  // replica.cpp: faults in RUN
  void step();
  void fault(std::size_t kind);
  void stop(std::size_t kind);
  bool save_and_flush();
  void pause(std::size_t kind);
  [[nodiscard]] std::size_t struck(double rate, bool recovering);
  [[nodiscard]] Timer next(const std::vector<Timer>& timers, bool recovering) const;
  void arrived(std::size_t kind);
  [[nodiscard]] bool ended() const { return now_ >= task_.horizon || done() || budget_ <= 0; }

  // recover.cpp: from a fault back to RUN
  void recover(std::size_t kind, bool detected);
  bool phases(std::size_t kind, bool detected);
  bool places();
  bool spend(Part part, double seconds);
  double& part(Part which) { return parts_[static_cast<std::size_t>(which)]; }

  const Task& task_;
  std::span<const Kind> kinds_;
  Random random_;
  Places places_;
  std::vector<Timer> gaps_, again_, slow_;  // when gaps end; faults that return; when slow places are detected
  std::vector<std::int64_t> count_;
  std::array<double, kParts> parts_{};
  double rate_run_ = 0.0, rate_recovery_ = 0.0;
  double now_ = 0.0;
  double work_ = 0.0, saved_ = 0.0, durable_ = 0.0;
  double save_left_ = 0.0, flush_left_ = 0.0;
  bool saving_ = false;
  std::int64_t broken_ = 0;       // places that failed and are not yet in repair
  std::size_t struck_ = kNobody;  // the kind that cut a recovery short
  std::int64_t budget_;           // faults left, so that every run ends
};

}  // namespace wt::faults
