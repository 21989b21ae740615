#include "trace/nest.h"

#include <algorithm>
#include <cstddef>

namespace wt::trace {

void put_longer_first(std::span<std::int32_t> events, std::span<const double> begin, std::span<const double> seconds) {
  const auto begin_of = [&](std::size_t at) { return begin[static_cast<std::size_t>(events[at])]; };
  const auto longer = [&](std::int32_t one, std::int32_t other) {
    return seconds[static_cast<std::size_t>(one)] > seconds[static_cast<std::size_t>(other)];
  };
  for (std::size_t first = 0, last = 0; first < events.size(); first = last) {
    while (++last < events.size() && begin_of(last) == begin_of(first)) continue;
    const auto together = events.subspan(first, last - first);
    std::stable_sort(together.begin(), together.end(), longer);
  }
}

std::vector<std::int32_t> enclosing(std::span<const std::int32_t> events, std::span<const std::int32_t> lanes,
                                    std::span<const double> begin, std::span<const double> seconds) {
  std::vector<std::int32_t> out(lanes.size(), -1);
  const std::int32_t most = lanes.empty() ? -1 : *std::max_element(lanes.begin(), lanes.end());
  std::vector<std::vector<std::int32_t>> open(static_cast<std::size_t>(most + 1));
  for (std::size_t at = 0; at < lanes.size(); ++at) {
    auto& around = open[static_cast<std::size_t>(lanes[at])];
    const double start = begin[static_cast<std::size_t>(events[at])];
    const auto end = [&](std::int32_t place) {
      const auto event = static_cast<std::size_t>(events[static_cast<std::size_t>(place)]);
      return begin[event] + seconds[event];
    };
    while (!around.empty() && end(around.back()) <= start) around.pop_back();
    if (!around.empty()) out[at] = around.back();
    around.push_back(static_cast<std::int32_t>(at));
  }
  return out;
}

std::vector<std::int32_t> innermost(std::span<const std::int32_t> around, std::span<const std::uint8_t> marked) {
  std::vector<std::int32_t> out(around.size(), -1);
  for (std::size_t at = 0; at < around.size(); ++at) {
    if (marked[at] != 0)
      out[at] = static_cast<std::int32_t>(at);
    else if (around[at] >= 0)
      out[at] = out[static_cast<std::size_t>(around[at])];
  }
  return out;
}

}  // namespace wt::trace
