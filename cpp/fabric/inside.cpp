#include "fabric/inside.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "fabric/hash.h"

namespace wt::fabric {

Inside::Inside(const Graph& graph, const Adjacency& adjacency)
    : graph_(graph), adjacency_(adjacency), local_(graph.nodes(), -1), to_(graph.nodes()) {
  std::int32_t sites = 0;
  for (const std::int32_t site : graph.node_site) sites = std::max(sites, site + 1);
  size_.assign(static_cast<std::size_t>(sites), 0);
  for (std::size_t n = 0; n < graph.nodes(); ++n) {
    if (graph.node_site[n] >= 0) local_[n] = size_[static_cast<std::size_t>(graph.node_site[n])]++;
  }
}

std::uint32_t Inside::link_cost(std::int32_t link) const {
  const auto l = static_cast<std::size_t>(link);
  const auto a = static_cast<NodeKind>(graph_.node_kind[static_cast<std::size_t>(graph_.link_from[l])]);
  const auto b = static_cast<NodeKind>(graph_.node_kind[static_cast<std::size_t>(graph_.link_to[l])]);
  if (a == NodeKind::kCpu || b == NodeKind::kCpu) return kCpu;
  const auto fast = [](NodeKind kind) { return kind == NodeKind::kGpu || kind == NodeKind::kNvswitch; };
  return fast(a) && fast(b) ? kNvlink : kPcie;
}

bool Inside::is_end(std::int32_t node) const {
  const auto kind = static_cast<NodeKind>(graph_.node_kind[static_cast<std::size_t>(node)]);
  return kind == NodeKind::kGpu || kind == NodeKind::kNic || kind == NodeKind::kHost;
}

const std::vector<std::uint32_t>& Inside::costs_to(std::int32_t target) {
  std::vector<std::uint32_t>& cost = to_[static_cast<std::size_t>(target)];
  if (!cost.empty()) return cost;
  const std::int32_t site = graph_.node_site[static_cast<std::size_t>(target)];
  cost.assign(static_cast<std::size_t>(size_[static_cast<std::size_t>(site)]), kNone);
  using Entry = std::pair<std::uint32_t, std::int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  cost[static_cast<std::size_t>(local_[static_cast<std::size_t>(target)])] = 0;
  open.emplace(0U, target);
  while (!open.empty()) {
    const auto [so_far, node] = open.top();
    open.pop();
    if (so_far != cost[static_cast<std::size_t>(local_[static_cast<std::size_t>(node)])]) continue;
    if (node != target && is_end(node)) continue;
    for (const std::int32_t link : adjacency_.in(node)) {
      const std::int32_t from = graph_.link_from[static_cast<std::size_t>(link)];
      if (graph_.node_site[static_cast<std::size_t>(from)] != site) continue;
      std::uint32_t& known = cost[static_cast<std::size_t>(local_[static_cast<std::size_t>(from)])];
      const std::uint32_t found = so_far + link_cost(link);
      if (found < known) {
        known = found;
        open.emplace(found, from);
      }
    }
  }
  return cost;
}

std::uint32_t Inside::cost(std::int32_t from, std::int32_t to) {
  const std::int32_t site = graph_.node_site[static_cast<std::size_t>(from)];
  if (from == to) return 0;
  if (site < 0 || site != graph_.node_site[static_cast<std::size_t>(to)]) return kNone;
  return costs_to(to)[static_cast<std::size_t>(local_[static_cast<std::size_t>(from)])];
}

bool Inside::walk(std::int32_t from, std::int32_t to, std::uint64_t hash, std::vector<std::int32_t>& links) {
  if (cost(from, to) == kNone) return false;
  if (from == to) return true;
  const std::vector<std::uint32_t>& cost = costs_to(to);
  const std::int32_t site = graph_.node_site[static_cast<std::size_t>(to)];
  const auto at = [&](std::int32_t node) { return cost[static_cast<std::size_t>(local_[static_cast<std::size_t>(node)])]; };
  // Only the way's first node may be an end: costs_to never expands the others, so a link into one is not on a cheapest way.
  const auto on_way = [&](std::int32_t node, std::int32_t link) {
    const std::int32_t next = graph_.link_to[static_cast<std::size_t>(link)];
    if (graph_.node_site[static_cast<std::size_t>(next)] != site || (next != to && is_end(next))) return false;
    return at(next) != kNone && at(next) + link_cost(link) == at(node);
  };
  for (std::int32_t node = from; node != to;) {
    equal_.clear();
    for (const std::int32_t link : adjacency_.out(node)) {
      if (on_way(node, link)) equal_.push_back(link);
    }
    const std::size_t chosen = equal_.size() == 1 ? 0 : pick(mix(hash ^ static_cast<std::uint64_t>(node)), equal_.size());
    links.push_back(equal_[chosen]);
    node = graph_.link_to[static_cast<std::size_t>(equal_[chosen])];
  }
  return true;
}

}  // namespace wt::fabric
