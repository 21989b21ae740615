#include "fabric/ways.h"

#include <algorithm>

#include "base/check.h"
#include "fabric/hash.h"

namespace wt::fabric {

std::uint64_t Ways::hash_of(std::int32_t src, std::int32_t dst, std::uint64_t key) {
  const std::uint64_t ends = (static_cast<std::uint64_t>(src) << 32U) | static_cast<std::uint32_t>(dst);
  return mix(key ^ mix(ends));
}

void Ways::check(std::int32_t src, std::int32_t dst) const {
  const auto count = static_cast<std::int64_t>(graph.endpoints());
  for (const std::int32_t h : {src, dst}) {
    if (h < 0 || h >= count) fail("a flow names endpoint ", h, ", there are ", count, " (0 to ", count - 1, ")");
  }
}

void Ways::no_way(std::int32_t src, std::int32_t dst) const {
  fail("no way from endpoint ", src, " (node ", node(src), ") to endpoint ", dst, " (node ", node(dst),
       "): nothing that is up connects them");
}

// The nodes where an endpoint's traffic can meet the fabric: its NICs, or itself.
std::span<const std::int32_t> Ways::exits(std::int32_t h) const {
  const auto i = static_cast<std::size_t>(h);
  const auto start = static_cast<std::size_t>(graph.nic_start[i]);
  const auto end = static_cast<std::size_t>(graph.nic_start[i + 1]);
  return start == end ? graph.endpoint.subspan(i, 1) : graph.nics.subspan(start, end - start);
}

// The nearest NIC, by the hash among equally near ones.
std::int32_t Ways::port(std::int32_t h, std::uint64_t hash) {
  const auto all = exits(h);
  if (all.size() == 1) return all[0];
  const std::uint32_t near = inside.cost(node(h), all[0]);
  std::size_t equal = 1;
  while (equal < all.size() && inside.cost(node(h), all[equal]) == near) ++equal;
  return all[pick(hash, equal)];
}

Way Ways::preferred(std::int32_t src, std::int32_t dst, std::uint64_t hash) {
  if (options.nic == NicChoice::kPxn) {
    const std::int32_t proxy = rails_.on(src, rail(dst));
    // NCCL's PXN needs NVLink between the two GPUs
    if (proxy >= 0 && proxy != src && inside.cost(node(src), node(proxy)) < Inside::kPcie) {
      return {node(proxy), port(proxy, hash), port(dst, hash), -1};
    }
  }
  if (options.nic == NicChoice::kRail) {
    const std::int32_t landing = rails_.on(dst, rail(src));
    if (landing >= 0 && landing != dst) {
      const std::int32_t nic = port(landing, hash);
      const std::uint32_t first = inside.cost(nic, node(landing));
      const std::uint32_t then = inside.cost(node(landing), node(dst));
      const bool hop = first != Inside::kNone && then != Inside::kNone && first + then < inside.cost(nic, node(dst));
      return {-1, port(src, hash), nic, hop ? node(landing) : -1};
    }
  }
  return {-1, port(src, hash), port(dst, hash), -1};
}

std::span<const std::int32_t> Ways::choices(std::int32_t at, std::int32_t target) {
  const auto links = between.next(at, target, false);
  if (options.policy != Policy::kDimensionOrder || links.size() < 2) return links;
  const auto axis = [this](std::int32_t link) { return graph.link_axis[static_cast<std::size_t>(link)]; };
  std::int16_t lowest = axis(links[0]);
  for (const std::int32_t link : links) lowest = std::min(lowest, axis(link));
  axis_links_.clear();
  for (const std::int32_t link : links) {
    if (axis(link) == lowest) axis_links_.push_back(link);
  }
  return axis_links_;
}

}  // namespace wt::fabric
