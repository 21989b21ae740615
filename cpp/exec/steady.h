// The middle of a program that repeats, and whether a run of it is steady there: each period runs as the one before it, later by
// the same time (docs/decisions/0058-folded-steady-state.md).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "exec/program.h"

namespace wt::exec {

// Instances first .. last-1 of a rank, counted on it, repeat every `size`; size 0: none do.
struct Periods {
  std::int64_t first = 0, last = 0, size = 0;
};

// What instances are, as their program does not know it.
struct Labels {
  std::span<const std::uint8_t> pass;    // [I] 1: a pass
  std::span<const std::int32_t> kind;    // [I] two instances of different kinds are not alike
  std::span<const std::int32_t> number;  // [I] micro batch; -1: none
  std::int64_t step = 1;                 // micro batches, and keys, of a period
};

// Of each rank, the periods around its middle pass. An instance repeats another one if it is the same `size` instances later, for
// micro batch + step, waits for those that repeat the other's, and meets at the key that follows.
[[nodiscard]] std::vector<Periods> find_periods(const Program& program, const Labels& labels);

// Times of a run whose outcomes were named.
struct RunTimes {
  double makespan = 0.0;
  std::span<const double> begin, end, transfer, host;  // [I]
  std::span<const std::int32_t> outcome;               // [I]
};

struct Steady {
  std::int64_t together = 0;  // so many periods
  double seconds = 0.0;       // take so long on every rank
};

// The steady state at the end of the periods of all ranks; none if there is none. `together`: how many periods may repeat together,
// in the order in which it is tried; `tolerance`: largest difference of two times that are the same, as a share of the makespan.
[[nodiscard]] std::optional<Steady> find_steady(const Program& program, std::span<const Periods> periods, const RunTimes& times,
                                                std::span<const std::int64_t> together, double tolerance);

}  // namespace wt::exec
