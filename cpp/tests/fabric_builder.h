// Owns the columns of a small graph; used by tests and fuzz drivers.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/graph.h"

namespace wt::fabric {

class GraphBuilder {
 public:
  std::int32_t node(NodeKind kind, std::int32_t site = -1) {
    node_kind.push_back(static_cast<std::uint8_t>(kind));
    node_site.push_back(site);
    return static_cast<std::int32_t>(node_kind.size()) - 1;
  }
  std::int32_t link(std::int32_t from, std::int32_t to, double rate = 1e9, double latency = 1e-6, std::int16_t axis = -1) {
    link_from.push_back(from);
    link_to.push_back(to);
    link_rate.push_back(rate);
    link_latency.push_back(latency);
    link_axis.push_back(axis);
    link_up.push_back(1);
    return static_cast<std::int32_t>(link_from.size()) - 1;
  }
  // Both directions; the number of a -> b, and b -> a is the next one.
  std::int32_t cable(std::int32_t a, std::int32_t b, double rate = 1e9, double latency = 1e-6, std::int16_t axis = -1) {
    const std::int32_t first = link(a, b, rate, latency, axis);
    link(b, a, rate, latency, axis);
    return first;
  }
  std::int32_t endpoint_at(std::int32_t node, const std::vector<std::int32_t>& its_nics = {}, std::int32_t its_rail = -1) {
    endpoint.push_back(node);
    nics.insert(nics.end(), its_nics.begin(), its_nics.end());
    nic_start.push_back(static_cast<std::int64_t>(nics.size()));
    rail.push_back(its_rail);
    return static_cast<std::int32_t>(endpoint.size()) - 1;
  }
  [[nodiscard]] Graph view() const {
    return {node_kind, node_site, link_from, link_to, link_rate, link_latency, link_axis, link_up, endpoint, nic_start, nics, rail};
  }

  std::vector<std::uint8_t> node_kind, link_up;
  std::vector<std::int32_t> node_site, link_from, link_to, endpoint, nics, rail;
  std::vector<double> link_rate, link_latency;
  std::vector<std::int16_t> link_axis;
  std::vector<std::int64_t> nic_start{0};
};

}  // namespace wt::fabric
