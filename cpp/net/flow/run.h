// Runs variables over links from their begins to their ends.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "net/bins.h"
#include "net/flow/demand.h"
#include "net/flow/fluid.h"

namespace wt::net::flow {

struct Options {
  double tolerance = kTolerance;         // fluid.h
  double memory = 0.0;                   // bytes that the run may take; 0: any
  bool bins = false;                     // whether LinkUse has bytes over time
  std::function<void(double)> progress;  // now and then, with the share of variables that have ended; may throw to stop the run
};

struct LinkUse {
  std::vector<double> bytes, busy, full;  // [L] bytes; seconds with anything on it; seconds at 99 % of its capacity or more
  std::vector<std::int32_t> row;          // [L] of the series: links of one kind share one; -1: nothing; empty without it
  Series<double> series;                  // bytes
};

// What the links carried; `kind` [L]: the fluid's link of each, -1: none; empty: they are the same.
[[nodiscard]] LinkUse link_use(Fluid& fluid, std::span<const std::int32_t> kind, std::size_t links);

struct Outcome {
  std::vector<double> start, end;  // [V] s; end is that of the fluid, its latency not added
  LinkUse use;
  double last = 0.0;                                       // s, when the last variable was delivered
  std::int64_t events = 0, unknowns = 0, constraints = 0;  // times at which something changed; links that the solver knows
  SolverStats solver;
};

// Checks and runs. Throws wt::Error for wrong input, for variables that can never finish, and for too little memory.
[[nodiscard]] Outcome run(std::span<const double> capacity, const Demands& demands, const Variables& variables,
                          const Changes& changes, const Options& options);

// Bytes that run() takes beside its input, at most.
[[nodiscard]] double memory_estimate(std::size_t links, const Demands& demands, const Variables& variables);

}  // namespace wt::net::flow
