#include "net/packet/partition.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace wt::net::packet {

namespace {

class Units {  // union of nodes
 public:
  explicit Units(std::size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  std::int32_t of(std::int32_t node) {
    while (parent_[node] != node) node = parent_[node] = parent_[parent_[node]];
    return node;
  }
  void join(std::int32_t a, std::int32_t b) {
    a = of(a), b = of(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::int32_t> parent_;
};

Units units_of(const World& w) {
  Units units(w.nodes.size());
  Time longest = 0;
  for (const Link& link : w.links) longest = std::max(longest, link.latency);
  std::vector<std::int32_t> first(w.nodes.size(), -1);
  for (std::size_t i = 0; i < w.nodes.size(); ++i) {
    const std::int32_t site = w.graph.node_site[i];
    if (site < 0) continue;
    if (static_cast<std::size_t>(site) >= first.size()) first.resize(static_cast<std::size_t>(site) + 1, -1);
    if (first[site] < 0) first[site] = static_cast<std::int32_t>(i);
    units.join(first[site], static_cast<std::int32_t>(i));
  }
  for (std::size_t l = 0; l < w.links.size(); ++l)
    if (w.links[l].latency < longest / 4 || w.links[l].latency == 0) units.join(w.info[l].from, w.info[l].to);
  for (const std::int32_t host : w.graph.endpoint) {  // a leaf of the graph stays with what it hangs on
    std::int32_t only = -1;
    bool leaf = true;
    for (std::int32_t i = w.out_start[host]; i < w.out_start[host + 1]; ++i) {
      const std::int32_t to = w.info[w.out[i]].to;
      leaf = leaf && (only < 0 || only == to);
      only = to;
    }
    if (leaf && only >= 0) units.join(host, only);
  }
  return units;
}

// Packet arrivals at each node, data and ACKs, and through each link.
std::vector<double> work_of(const World& w, std::vector<double>& flow) {
  std::vector<double> work(w.nodes.size(), 0.0);
  flow.assign(w.links.size(), 0.0);
  for (const Sender& s : w.senders)
    for (std::uint32_t i = s.hop; i < s.hop + s.hops; ++i) {
      const std::int32_t l = w.paths.links[i];
      work[w.info[l].to] += s.total;
      work[w.info[l].from] += s.total;
      flow[l] += s.total;
    }
  return work;
}

}  // namespace

// A port that packets use is counted with what it has of its link, its rings, the events and its share of lanes.
std::int32_t parts_by_size(const World& w) {
  constexpr std::size_t kPort = 1024, kShare = std::size_t{1} << 20, kMost = 512;
  std::vector<std::uint8_t> used(w.links.size(), 0);
  for (const Sender& s : w.senders)
    for (std::uint32_t i = s.hop; i < s.hop + s.hops; ++i) used[w.paths.links[i]] = used[w.info[w.paths.links[i]].reverse] = 1;
  const auto ports = static_cast<std::size_t>(std::count(used.begin(), used.end(), 1));
  return static_cast<std::int32_t>(std::clamp<std::size_t>(ports * kPort / kShare, 1, kMost));
}

std::int32_t partition(World& w, std::int32_t want) {
  if (want <= 1) return 1;
  Units units = units_of(w);
  std::vector<double> flow;
  const std::vector<double> work = work_of(w, flow);
  const std::size_t n = w.nodes.size();
  std::vector<double> load(n, 0.0);
  std::vector<std::uint8_t> ends(n, 0);  // units with endpoints
  double total = 0.0;
  for (std::size_t i = 0; i < n; ++i) load[units.of(static_cast<std::int32_t>(i))] += work[i], total += work[i];
  for (const std::int32_t host : w.graph.endpoint) ends[units.of(host)] = 1;
  // units with endpoints in the order of their numbers, which builders give out by place; then the rest, each where most of its
  // traffic is
  std::vector<std::int32_t> part(n, -1);
  std::vector<double> filled(static_cast<std::size_t>(want), 0.0);
  double of_ends = 0.0, seen = 0.0;
  for (std::size_t u = 0; u < n; ++u)
    if (ends[u] != 0) of_ends += load[u];
  for (std::size_t u = 0; u < n; ++u) {
    if (ends[u] == 0) continue;
    const double middle = of_ends > 0.0 ? (seen + load[u] / 2) / of_ends : 0.0;
    part[u] = std::min(want - 1, static_cast<std::int32_t>(middle * want));
    filled[part[u]] += load[u];
    seen += load[u];
  }
  std::vector<std::int32_t> rest;
  for (std::size_t u = 0; u < n; ++u)
    if (units.of(static_cast<std::int32_t>(u)) == static_cast<std::int32_t>(u) && ends[u] == 0)
      rest.push_back(static_cast<std::int32_t>(u));
  // adjacency of the rest: traffic with parts that are known already; in rounds, from the hosts inwards
  for (bool progress = true; progress && !rest.empty();) {
    progress = false;
    std::vector<std::vector<double>> with(n);
    for (std::size_t l = 0; l < w.links.size(); ++l) {
      const std::int32_t a = units.of(w.info[l].from), b = units.of(w.info[l].to);
      for (const auto& [mine, other] : {std::pair{a, b}, std::pair{b, a}}) {
        if (part[mine] >= 0 || part[other] < 0) continue;
        if (with[mine].empty()) with[mine].assign(static_cast<std::size_t>(want), 0.0);
        with[mine][part[other]] += flow[l] + 1e-9;
      }
    }
    std::vector<std::int32_t> later;
    for (const std::int32_t u : rest) {
      if (with[u].empty()) {
        later.push_back(u);
        continue;
      }
      progress = true;
      std::int32_t best = -1;
      double score = -1.0;
      for (std::int32_t p = 0; p < want; ++p) {
        const double room = std::max(0.0, 1.0 - filled[p] / (total / want + 1e-9));
        const double s = (with[u][p] + 1e-12) * (room + 1e-6);
        if (s > score) score = s, best = p;
      }
      part[u] = best;
      filled[best] += load[u];
    }
    rest = std::move(later);
  }
  // parts without nodes are dropped
  std::vector<std::int32_t> number(static_cast<std::size_t>(want), -1);
  std::int32_t parts = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t p = std::max(0, part[units.of(static_cast<std::int32_t>(i))]);
    if (number[p] < 0) number[p] = parts++;
    w.nodes[i].part = number[p];
  }
  std::int32_t cuts = 0;
  for (LinkInfo& info : w.info)
    if (w.nodes[info.from].part != w.nodes[info.to].part) info.cut = cuts++;
  w.wires = std::vector<Wire>(static_cast<std::size_t>(cuts));
  return parts;
}

Time lookahead(const World& w) {
  Time least = kForever;
  // a frame has at least a byte; data may be smaller than a control frame
  for (std::size_t l = 0; l < w.links.size(); ++l)
    if (w.info[l].cut >= 0) least = std::min(least, w.links[l].latency + serial(w.links[l].cost, 1));
  return least;
}

}  // namespace wt::net::packet
