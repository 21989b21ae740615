#include "fabric/router.h"

#include "base/check.h"
#include "fabric/hash.h"
#include "fabric/ways.h"

namespace wt::fabric {

struct Router::Impl {
  Impl(const Graph& graph, const RouteOptions& options) : ways(graph, options) {}

  Ways ways;

  [[nodiscard]] std::int32_t choose(std::int32_t at, std::span<const std::int32_t> links, std::uint64_t hash) const {
    const RouteOptions& o = ways.options;
    if (links.size() == 1 || o.policy == Policy::kFirst) return links[0];
    const std::uint64_t salt = o.policy == Policy::kEcmpPolarized ? 0 : static_cast<std::uint64_t>(at) + 1;
    return links[pick(mix(hash ^ mix(o.seed ^ (salt << 20U))), links.size())];
  }

  bool cross(std::int32_t from, std::int32_t to, std::uint64_t hash, std::vector<std::int32_t>& links) {
    for (std::int32_t at = from; at != to;) {
      const auto choices = ways.choices(at, to);
      if (choices.empty()) return false;
      links.push_back(choose(at, choices, hash));
      at = ways.graph.link_to[static_cast<std::size_t>(links.back())];
    }
    return true;
  }

  bool take(std::int32_t src, const Way& way, std::int32_t dst, std::uint64_t hash, std::vector<std::int32_t>& links) {
    const std::size_t before = links.size();
    std::int32_t at = src;
    const auto go = [&](std::int32_t stop) {
      if (stop < 0 || stop == at) return true;
      const bool there = ways.inside.walk(at, stop, hash, links);
      at = stop;
      return there;
    };
    bool there = go(way.out) && go(way.a) && cross(way.a, way.b, hash, links);
    at = way.b;
    there = there && go(way.in) && go(dst);
    if (!there) links.resize(before);
    return there;
  }
};

Router::Router(const Graph& graph, const RouteOptions& options) {
  validate(graph);
  impl_ = std::make_unique<Impl>(graph, options);
}

Router::~Router() = default;

void Router::path(std::int32_t src, std::int32_t dst, std::uint64_t key, std::vector<std::int32_t>& links) {
  Ways& ways = impl_->ways;
  ways.check(src, dst);
  const std::int32_t from = ways.node(src), to = ways.node(dst);
  if (from == to) return;
  const std::uint64_t hash = Ways::hash_of(src, dst, key);
  if (ways.inside.walk(from, to, hash, links)) return;
  const bool found = ways.first(src, dst, hash, [&](const Way& way) { return impl_->take(from, way, to, hash, links); });
  if (!found) ways.no_way(src, dst);
}

std::span<const std::int32_t> Router::next_hops(std::int32_t node, std::int32_t target) {
  const std::size_t nodes = impl_->ways.graph.nodes();
  for (const std::int32_t n : {node, target}) {
    if (n < 0 || static_cast<std::size_t>(n) >= nodes) fail("next_hops: node ", n, ", there are ", nodes);
  }
  return impl_->ways.between.next(node, target, true);
}

}  // namespace wt::fabric
