// Rates that were found once. In a step the same few transfers are in flight together thousands of times, and the rates of unknowns
// depend on their weights and on the capacities alone: what the solver said of a set of weights holds for the next one like it.
//
// Seconds are counted for each set; what links carried follows from them in the end. So a change costs the unknowns, not the links
// that they take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "net/flow/solver.h"

namespace wt::net::flow {

class RateMemory {
 public:
  // The solver is this memory's alone from here on. `capacity` [L] as the solver has them.
  RateMemory(Solver& solver, std::size_t unknowns, std::span<const double> capacity);

  // As the solver's own.
  void at(double now) { now_ = now; }
  void set_weight(std::int32_t unknown, double weight) { weights_[index(unknown)] = weight; }
  void set_capacity(std::int32_t link, double capacity);
  void solve();
  [[nodiscard]] std::span<const Solver::Moved> moved() const { return moved_; }
  [[nodiscard]] double level(std::int32_t unknown) const { return level_[index(unknown)]; }
  [[nodiscard]] std::int32_t stopped_by(std::int32_t unknown) const;

  // What was counted of an unknown of this weight and level behind its end.
  void give_back(std::int32_t unknown, double rate, double from, double to) { given_[index(unknown)] += rate * (to - from); }
  // Enters what the links carried up to the present into the solver's meter.
  void settle_meter();
  [[nodiscard]] std::int64_t remembered() const { return remembered_; }

 private:
  static constexpr std::size_t kMost = 4096;  // sets that are kept

  struct Set {
    std::vector<double> weight, level;
    std::vector<std::int32_t> stop;
    double seconds = 0.0;
  };
  struct Hash {
    std::size_t operator()(const std::vector<double>& weights) const {
      std::size_t h = 0;
      for (const double w : weights) h = (h ^ std::hash<double>{}(w)) * 0x9e3779b97f4a7c15ULL;
      return h;
    }
  };
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  void count_seconds();
  void forget();
  [[nodiscard]] std::size_t find();

  Solver& solver_;
  std::vector<double> capacity_;
  std::vector<double> weights_, level_, given_;
  std::vector<Set> sets_;
  std::unordered_map<std::vector<double>, std::size_t, Hash> by_weights_;
  std::size_t present_ = 0;  // set 0: nothing is active
  double now_ = 0.0, since_ = 0.0;
  std::int64_t remembered_ = 0;
  std::vector<Solver::Moved> moved_;
};

}  // namespace wt::net::flow
