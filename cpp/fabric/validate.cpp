#include <cmath>

#include "base/check.h"
#include "fabric/graph.h"

namespace wt::fabric {

namespace {

void same_length(std::size_t got, std::size_t want, const char* column, const char* of) {
  if (got != want) fail("graph.", column, " has ", got, " rows, there are ", want, " ", of);
}

void in_range(std::int64_t value, std::size_t count, const char* column, std::size_t row, const char* of) {
  if (value < 0 || value >= static_cast<std::int64_t>(count)) {
    fail("graph.", column, "[", row, "] is ", value, ", there are ", count, " ", of);
  }
}

void check_nodes(const Graph& g) {
  same_length(g.node_site.size(), g.nodes(), "node_site", "nodes");
  for (std::size_t n = 0; n < g.nodes(); ++n) {
    if (g.node_kind[n] > static_cast<std::uint8_t>(NodeKind::kNvswitch)) {
      fail("graph.node_kind[", n, "] is ", static_cast<int>(g.node_kind[n]), ", kinds are 0 to 6");
    }
    if (g.node_site[n] < -1) fail("graph.node_site[", n, "] is ", g.node_site[n], ", sites are -1 (the fabric) and up");
  }
}

void check_links(const Graph& g) {
  const std::size_t links = g.links();
  same_length(g.link_to.size(), links, "link_to", "links");
  same_length(g.link_rate.size(), links, "link_rate", "links");
  same_length(g.link_latency.size(), links, "link_latency", "links");
  same_length(g.link_axis.size(), links, "link_axis", "links");
  same_length(g.link_up.size(), links, "link_up", "links");
  for (std::size_t l = 0; l < links; ++l) {
    in_range(g.link_from[l], g.nodes(), "link_from", l, "nodes");
    in_range(g.link_to[l], g.nodes(), "link_to", l, "nodes");
    if (g.link_from[l] == g.link_to[l]) fail("graph: link ", l, " leads from node ", g.link_from[l], " to itself");
    if (!(g.link_rate[l] > 0.0) || !std::isfinite(g.link_rate[l])) {
      fail("graph.link_rate[", l, "] is ", g.link_rate[l], " B/s, it must be finite and above zero; a dead link has link_up 0");
    }
    if (!(g.link_latency[l] >= 0.0) || !std::isfinite(g.link_latency[l])) {
      fail("graph.link_latency[", l, "] is ", g.link_latency[l], " s, it must be finite and not negative");
    }
  }
}

void check_endpoints(const Graph& g) {
  const std::size_t endpoints = g.endpoints();
  same_length(g.rail.size(), endpoints, "rail", "endpoints");
  same_length(g.nic_start.size(), endpoints + 1, "nic_start", "endpoints and one");
  if (g.nic_start[0] != 0) fail("graph.nic_start[0] is ", g.nic_start[0], ", it must be 0");
  for (std::size_t h = 0; h < endpoints; ++h) {
    in_range(g.endpoint[h], g.nodes(), "endpoint", h, "nodes");
    if (g.rail[h] < -1) fail("graph.rail[", h, "] is ", g.rail[h], ", rails are -1 (none) and up");
    if (g.nic_start[h + 1] < g.nic_start[h]) fail("graph.nic_start[", h + 1, "] is below graph.nic_start[", h, "]");
  }
  same_length(g.nics.size(), static_cast<std::size_t>(g.nic_start[endpoints]), "nics", "by nic_start");
  for (std::size_t h = 0; h < endpoints; ++h) {
    const std::int32_t site = g.node_site[static_cast<std::size_t>(g.endpoint[h])];
    for (auto i = static_cast<std::size_t>(g.nic_start[h]); i < static_cast<std::size_t>(g.nic_start[h + 1]); ++i) {
      in_range(g.nics[i], g.nodes(), "nics", i, "nodes");
      const auto nic = static_cast<std::size_t>(g.nics[i]);
      if (g.node_kind[nic] != static_cast<std::uint8_t>(NodeKind::kNic)) fail("graph.nics[", i, "]: node ", nic, " is not a NIC");
      if (site < 0 || g.node_site[nic] != site) fail("graph.nics[", i, "]: node ", nic, " is not in the server of endpoint ", h);
    }
  }
}

}  // namespace

void validate(const Graph& graph) {
  check_nodes(graph);
  check_links(graph);
  check_endpoints(graph);
}

}  // namespace wt::fabric
