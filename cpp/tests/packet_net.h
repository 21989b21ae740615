// Small networks for tests and benchmarks of the packet engine: columns that own their memory.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "fabric/graph.h"
#include "net/lanes.h"
#include "net/packet/random.h"

namespace packet_net {

struct Net {
  std::vector<std::uint8_t> kind, up;
  std::vector<std::int32_t> site, from, to, endpoint, rail;
  std::vector<double> rate, latency;
  std::vector<std::int16_t> axis;
  std::vector<std::int64_t> nic_start{0};
  std::vector<std::int64_t> path_start{0};
  std::vector<std::int32_t> path_links;
  std::vector<std::int32_t> src, dst, path, window, group;
  std::vector<std::int64_t> bytes, slice, dep_start{0}, dep_lead;
  std::vector<double> delay, lane_rate, begin, hold;
  std::vector<std::int32_t> dep_lane;

  int node(wt::fabric::NodeKind k) {
    kind.push_back(static_cast<std::uint8_t>(k));
    site.push_back(-1);
    return static_cast<int>(kind.size()) - 1;
  }
  int host() {
    const int n = node(wt::fabric::NodeKind::kHost);
    endpoint.push_back(n);
    rail.push_back(-1);
    nic_start.push_back(0);
    return n;
  }
  int link(int a, int b, double r, double l) {
    from.push_back(a);
    to.push_back(b);
    rate.push_back(r);
    latency.push_back(l);
    axis.push_back(-1);
    up.push_back(1);
    return static_cast<int>(from.size()) - 1;
  }
  // Link a -> b; the way back is the next number.
  int cable(int a, int b, double r, double l) {
    const int first = link(a, b, r, l);
    link(b, a, r, l);
    return first;
  }
  int lane(int s, int d, std::int64_t size, const std::vector<std::int32_t>& way, double at = 0, std::int64_t piece = 0) {
    path.push_back(static_cast<std::int32_t>(path_start.size()) - 1);
    path_links.insert(path_links.end(), way.begin(), way.end());
    path_start.push_back(static_cast<std::int64_t>(path_links.size()));
    src.push_back(s);
    dst.push_back(d);
    bytes.push_back(size);
    slice.push_back(piece > 0 ? piece : (size > 0 ? size : 1));
    window.push_back(0);
    group.push_back(static_cast<std::int32_t>(group.size()));
    delay.push_back(0);
    lane_rate.push_back(std::numeric_limits<double>::infinity());
    begin.push_back(at);
    dep_start.push_back(static_cast<std::int64_t>(dep_lane.size()));
    return static_cast<int>(src.size()) - 1;
  }
  // The lane added last waits for another one.
  void after(int lane, std::int64_t lead) {
    dep_lane.push_back(lane);
    dep_lead.push_back(lead);
    dep_start.back() = static_cast<std::int64_t>(dep_lane.size());
  }
  [[nodiscard]] wt::fabric::Graph graph() const {
    return {.node_kind = kind,
            .node_site = site,
            .link_from = from,
            .link_to = to,
            .link_rate = rate,
            .link_latency = latency,
            .link_axis = axis,
            .link_up = up,
            .endpoint = endpoint,
            .nic_start = nic_start,
            .nics = {},
            .rail = rail};
  }
  [[nodiscard]] wt::net::Paths paths() const { return {path_start, path_links}; }
  [[nodiscard]] wt::net::Lanes lanes() const {
    return {src, dst, path, bytes, slice, window, delay, lane_rate, begin, group, dep_start, dep_lane, dep_lead, hold};
  }
};

// k-ary fat tree in three tiers: hosts, then edge, aggregation and core switches. Cables: host-edge, edge-aggregation,
// aggregation-core.
inline Net fat_tree(int k, double rate, double latency) {
  Net net;
  const int half = k / 2, hosts = k * half * half;
  for (int i = 0; i < hosts; ++i) net.host();
  for (int i = 0; i < k * k + half * half; ++i) net.node(wt::fabric::NodeKind::kSwitch);
  const int edge = hosts, agg = edge + k * half, core = agg + k * half;
  for (int h = 0; h < hosts; ++h) net.cable(h, edge + h / half, rate, latency);
  for (int e = 0; e < k * half; ++e)
    for (int a = 0; a < half; ++a) net.cable(edge + e, agg + e / half * half + a, rate, latency);
  for (int a = 0; a < k * half; ++a)
    for (int c = 0; c < half; ++c) net.cable(agg + a, core + a % half * half + c, rate, latency);
  return net;
}

inline std::vector<std::int32_t> fat_tree_path(int k, int src, int dst, std::uint64_t hash) {
  if (src == dst) return {};
  const int half = k / 2, hosts = k * half * half;
  const auto host_up = [](int h) { return 2 * h; };
  const auto edge_up = [&](int e, int a) { return 2 * hosts + 2 * (e * half + a); };
  const auto agg_up = [&](int a, int c) { return 2 * hosts + 2 * k * half * half + 2 * (a * half + c); };
  const int e1 = src / half, e2 = dst / half, p1 = e1 / half, p2 = e2 / half;
  const int a = static_cast<int>(hash % static_cast<std::uint64_t>(half)),
            c = static_cast<int>(hash / 65536 % static_cast<std::uint64_t>(half));
  if (e1 == e2) return {host_up(src), host_up(dst) + 1};
  if (p1 == p2) return {host_up(src), edge_up(e1, a), edge_up(e2, a) + 1, host_up(dst) + 1};
  return {host_up(src),       edge_up(e1, a),  agg_up(p1 * half + a, c), agg_up(p2 * half + a, c) + 1,
          edge_up(e2, a) + 1, host_up(dst) + 1};
}

}  // namespace packet_net
