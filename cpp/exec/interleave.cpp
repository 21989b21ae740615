#include "exec/interleave.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

#include "base/check.h"

namespace wt::exec {

namespace {

void check(const Sequence& one) {
  if (one.seconds.size() != one.stream.size() || one.waits.size() != 2 * one.stream.size()) fail("interleave: unequal columns");
  for (std::size_t row = 0; row < one.stream.size(); ++row) {
    if (one.stream[row] < 0 || one.stream[row] > 63) fail("interleave: row ", row, " is on stream ", one.stream[row]);
    for (const std::int32_t awaited : one.waits.subspan(2 * row, 2)) {
      if (awaited < -1 || awaited >= static_cast<std::int64_t>(row)) fail("interleave: row ", row, " waits for row ", awaited);
    }
  }
}

}  // namespace

Interleaved interleave(const std::array<Sequence, 2>& sequences, std::int32_t last) {
  std::array<double, 2> total{}, done{};
  std::array<std::vector<double>, 2> ends;
  std::array<std::vector<std::int32_t>, 2> places;
  for (std::size_t s = 0; s < 2; ++s) {
    check(sequences[s]);
    for (const double seconds : sequences[s].seconds) total[s] += seconds;
    if (total[s] == 0.0) total[s] = 1.0;
    ends[s].reserve(sequences[s].stream.size());
    places[s].reserve(sequences[s].stream.size());
  }
  std::array<double, 64> free{};
  using Bid = std::tuple<double, bool, double, std::size_t>;
  const auto bid = [&](std::size_t s) {
    const std::size_t row = ends[s].size();
    const std::int32_t stream = sequences[s].stream[row];
    double start = free[static_cast<std::size_t>(stream)];
    for (const std::int32_t awaited : sequences[s].waits.subspan(2 * row, 2)) {
      if (awaited >= 0) start = std::max(start, ends[s][static_cast<std::size_t>(awaited)]);
    }
    return Bid{start, stream == last, done[s] / total[s], s};
  };
  const auto open = [&](std::size_t s) { return ends[s].size() < sequences[s].stream.size(); };
  Interleaved out;
  while (open(0) || open(1)) {
    const Bid first = !open(1) ? bid(0) : !open(0) ? bid(1) : std::min(bid(0), bid(1));
    const std::size_t s = std::get<3>(first), row = ends[s].size();
    const double seconds = sequences[s].seconds[row], end = std::get<0>(first) + seconds;
    free[static_cast<std::size_t>(sequences[s].stream[row])] = end;
    ends[s].push_back(end);
    done[s] += seconds;
    places[s].push_back(static_cast<std::int32_t>(out.row.size()));
    out.sequence.push_back(static_cast<std::int32_t>(s));
    out.row.push_back(static_cast<std::int32_t>(row));
    for (const std::int32_t awaited : sequences[s].waits.subspan(2 * row, 2))
      out.waits.push_back(awaited >= 0 ? places[s][static_cast<std::size_t>(awaited)] : -1);
  }
  return out;
}

}  // namespace wt::exec
