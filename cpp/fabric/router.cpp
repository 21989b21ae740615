#include "fabric/router.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "fabric/adjacency.h"
#include "fabric/between.h"
#include "fabric/hash.h"
#include "fabric/inside.h"

namespace wt::fabric {

namespace {

// Endpoints of each server, by rail, in order of their numbers.
class Rails {
 public:
  explicit Rails(const Graph& graph) : graph_(graph), place_(graph.endpoints(), 0) {
    for (std::size_t h = 0; h < graph.endpoints(); ++h) {
      if (site(static_cast<std::int32_t>(h)) >= 0 && graph.rail[h] >= 0) sorted_.push_back(static_cast<std::int32_t>(h));
    }
    std::stable_sort(sorted_.begin(), sorted_.end(), [this](std::int32_t a, std::int32_t b) { return key(a) < key(b); });
    for (std::size_t i = 1; i < sorted_.size(); ++i) {
      if (key(sorted_[i]) == key(sorted_[i - 1])) place_[at(sorted_[i])] = place_[at(sorted_[i - 1])] + 1;
    }
  }

  // The endpoint of `beside`'s server that is on `rail`; of several the one with the same place as `beside` has on its own. -1:
  // none.
  [[nodiscard]] std::int32_t on(std::int32_t beside, std::int32_t rail) const {
    if (rail < 0 || site(beside) < 0) return -1;
    if (graph_.rail[at(beside)] == rail) return beside;
    const std::pair<std::int32_t, std::int32_t> want{site(beside), rail};
    const auto less = [this](std::int32_t h, const std::pair<std::int32_t, std::int32_t>& k) { return key(h) < k; };
    const auto more = [this](const std::pair<std::int32_t, std::int32_t>& k, std::int32_t h) { return k < key(h); };
    const auto first = std::lower_bound(sorted_.begin(), sorted_.end(), want, less);
    const auto last = std::upper_bound(first, sorted_.end(), want, more);
    return first == last ? -1 : first[place_[at(beside)] % (last - first)];
  }

 private:
  static std::size_t at(std::int32_t h) { return static_cast<std::size_t>(h); }
  [[nodiscard]] std::int32_t site(std::int32_t h) const { return graph_.node_site[at(graph_.endpoint[at(h)])]; }
  [[nodiscard]] std::pair<std::int32_t, std::int32_t> key(std::int32_t h) const { return {site(h), graph_.rail[at(h)]}; }

  const Graph& graph_;
  std::vector<std::int32_t> sorted_;
  std::vector<std::int32_t> place_;
};

}  // namespace

struct Router::Impl {
  Impl(const Graph& g, const RouteOptions& o)
      : graph(g), options(o), adjacency(graph), inside(graph, adjacency), between(graph, adjacency), rails(graph) {}

  Graph graph;
  RouteOptions options;
  Adjacency adjacency;
  Inside inside;
  Between between;
  Rails rails;

  [[nodiscard]] std::int32_t node(std::int32_t h) const { return graph.endpoint[static_cast<std::size_t>(h)]; }
  [[nodiscard]] std::int32_t rail(std::int32_t h) const { return graph.rail[static_cast<std::size_t>(h)]; }
  [[nodiscard]] std::span<const std::int32_t> nics(std::int32_t h) const {
    const auto i = static_cast<std::size_t>(h);
    const auto start = static_cast<std::size_t>(graph.nic_start[i]);
    return graph.nics.subspan(start, static_cast<std::size_t>(graph.nic_start[i + 1]) - start);
  }

  // The node where an endpoint's traffic meets the fabric: its nearest NIC, by the hash among equally near ones, or itself.
  std::int32_t port(std::int32_t h, std::uint64_t hash) {
    const auto all = nics(h);
    if (all.empty()) return node(h);
    if (all.size() == 1) return all[0];
    const std::uint32_t near = inside.cost(node(h), all[0]);
    std::size_t equal = 1;
    while (equal < all.size() && inside.cost(node(h), all[equal]) == near) ++equal;
    return all[pick(hash, equal)];
  }

  std::int32_t choose(std::int32_t at, std::span<const std::int32_t> links, std::uint64_t hash) {
    if (options.policy == Policy::kDimensionOrder && links.size() > 1) links = lowest_axis(links);
    if (links.size() == 1 || options.policy == Policy::kFirst) return links[0];
    const std::uint64_t salt = options.policy == Policy::kEcmpPolarized ? 0 : static_cast<std::uint64_t>(at) + 1;
    return links[pick(mix(hash ^ mix(options.seed ^ (salt << 20U))), links.size())];
  }

  std::span<const std::int32_t> lowest_axis(std::span<const std::int32_t> links) {
    const auto axis = [this](std::int32_t link) { return graph.link_axis[static_cast<std::size_t>(link)]; };
    std::int16_t lowest = axis(links[0]);
    for (const std::int32_t link : links) lowest = std::min(lowest, axis(link));
    axis_links.clear();
    for (const std::int32_t link : links) {
      if (axis(link) == lowest) axis_links.push_back(link);
    }
    return axis_links;
  }
  std::vector<std::int32_t> axis_links;

  bool cross(std::int32_t from, std::int32_t to, std::uint64_t hash, std::vector<std::int32_t>& links) {
    for (std::int32_t at = from; at != to;) {
      const auto choices = between.next(at, to, false);
      if (choices.empty()) return false;
      links.push_back(choose(at, choices, hash));
      at = graph.link_to[static_cast<std::size_t>(links.back())];
    }
    return true;
  }

  // src, then inside its server by way of `out` to NIC `a`, over the fabric to NIC `b`, by way of `in` to dst; -1: no such stop.
  bool attempt(std::int32_t src, std::int32_t out, std::int32_t a, std::int32_t b, std::int32_t in, std::int32_t dst,
               std::uint64_t hash, std::vector<std::int32_t>& links) {
    const std::size_t before = links.size();
    std::int32_t at = src;
    const auto go = [&](std::int32_t stop) {
      if (stop < 0 || stop == at) return true;
      const bool there = inside.walk(at, stop, hash, links);
      at = stop;
      return there;
    };
    bool there = go(out) && go(a) && cross(a, b, hash, links);
    at = b;
    there = there && go(in) && go(dst);
    if (!there) links.resize(before);
    return there;
  }

  bool preferred(std::int32_t src, std::int32_t dst, std::uint64_t hash, std::vector<std::int32_t>& links) {
    if (options.nic == NicChoice::kPxn) {
      const std::int32_t proxy = rails.on(src, rail(dst));
      // NCCL's PXN needs NVLink between the two GPUs
      if (proxy >= 0 && proxy != src && inside.cost(node(src), node(proxy)) < Inside::kPcie) {
        return attempt(node(src), node(proxy), port(proxy, hash), port(dst, hash), -1, node(dst), hash, links);
      }
    }
    if (options.nic == NicChoice::kRail) {
      const std::int32_t landing = rails.on(dst, rail(src));
      if (landing >= 0 && landing != dst) {
        const std::int32_t nic = port(landing, hash);
        const std::uint32_t straight = inside.cost(nic, node(dst));
        const std::uint32_t first = inside.cost(nic, node(landing));
        const std::uint32_t then = inside.cost(node(landing), node(dst));
        const bool hop = first != Inside::kNone && then != Inside::kNone && first + then < straight;
        return attempt(node(src), -1, port(src, hash), nic, hop ? node(landing) : -1, node(dst), hash, links);
      }
    }
    return attempt(node(src), -1, port(src, hash), port(dst, hash), -1, node(dst), hash, links);
  }

  // Where the preferred NICs are cut off: the first pair, in the order of the lists, that is connected.
  bool any_nic(std::int32_t src, std::int32_t dst, std::uint64_t hash, std::vector<std::int32_t>& links) {
    const std::int32_t ends[] = {node(src), node(dst)};
    const auto from = nics(src).empty() ? std::span(&ends[0], 1) : nics(src);
    const auto to = nics(dst).empty() ? std::span(&ends[1], 1) : nics(dst);
    for (const std::int32_t a : from) {
      for (const std::int32_t b : to) {
        if (attempt(node(src), -1, a, b, -1, node(dst), hash, links)) return true;
      }
    }
    return false;
  }
};

Router::Router(const Graph& graph, const RouteOptions& options) {
  validate(graph);
  impl_ = std::make_unique<Impl>(graph, options);
}

Router::~Router() = default;

void Router::path(std::int32_t src, std::int32_t dst, std::uint64_t key, std::vector<std::int32_t>& links) {
  Impl& r = *impl_;
  for (const std::int32_t h : {src, dst}) {
    if (h < 0 || static_cast<std::size_t>(h) >= r.graph.endpoints()) {
      fail("a flow names endpoint ", h, ", there are ", r.graph.endpoints(), " (0 to ",
           static_cast<std::int64_t>(r.graph.endpoints()) - 1, ")");
    }
  }
  if (r.node(src) == r.node(dst)) return;
  const std::uint64_t ends = (static_cast<std::uint64_t>(src) << 32U) | static_cast<std::uint32_t>(dst);
  const std::uint64_t hash = mix(key ^ mix(ends));
  if (r.inside.walk(r.node(src), r.node(dst), hash, links)) return;
  if (r.preferred(src, dst, hash, links) || r.any_nic(src, dst, hash, links)) return;
  fail("no way from endpoint ", src, " (node ", r.node(src), ") to endpoint ", dst, " (node ", r.node(dst),
       "): nothing that is up connects them");
}

std::span<const std::int32_t> Router::next_hops(std::int32_t node, std::int32_t target) {
  for (const std::int32_t n : {node, target}) {
    if (n < 0 || static_cast<std::size_t>(n) >= impl_->graph.nodes())
      fail("next_hops: node ", n, ", there are ", impl_->graph.nodes());
  }
  return impl_->between.next(node, target, true);
}

}  // namespace wt::fabric
