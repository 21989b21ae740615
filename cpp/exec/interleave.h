// Two sequences of operators as one: of the two next ones, that goes first which can start earlier.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace wt::exec {

// n operators in order: their streams, seconds, and two earlier ones that each waits for, -1 none.
struct Sequence {
  std::span<const std::int32_t> stream;
  std::span<const double> seconds;
  std::span<const std::int32_t> waits;  // [n, 2]
};

struct Interleaved {
  std::vector<std::int32_t> sequence, row;  // of each place
  std::vector<std::int32_t> waits;          // [n, 2] by place
};

// Ties: an operator that is not on stream `last` goes first, then one of the sequence of which a smaller share is done.
Interleaved interleave(const std::array<Sequence, 2>& sequences, std::int32_t last);

}  // namespace wt::exec
