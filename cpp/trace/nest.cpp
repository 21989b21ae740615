#include "trace/nest.h"

#include <algorithm>
#include <cstddef>

namespace wt::trace {

std::vector<std::int32_t> enclosing(std::span<const std::int32_t> lanes, std::span<const double> begin,
                                    std::span<const double> end) {
  std::vector<std::int32_t> out(lanes.size(), -1);
  const std::int32_t most = lanes.empty() ? -1 : *std::max_element(lanes.begin(), lanes.end());
  std::vector<std::vector<std::int32_t>> open(static_cast<std::size_t>(most + 1));
  for (std::size_t at = 0; at < lanes.size(); ++at) {
    auto& around = open[static_cast<std::size_t>(lanes[at])];
    while (!around.empty() && end[static_cast<std::size_t>(around.back())] <= begin[at]) around.pop_back();
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
