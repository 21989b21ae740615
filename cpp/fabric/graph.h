// The link graph: nodes, and directed links that each are one output port of the node that they leave.
//
// Columns are the caller's; the core only reads them. A cable is two links. Rates in B/s, latencies in seconds (propagation and
// whatever fixed delay the receiving node adds). A node with site >= 0 belongs to a server (GPUs, PCIe switches, NICs, NVSwitches
// of one server, or of one scale-up domain, share a site); site -1 is the fabric between servers. A NIC belongs to its server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace wt::fabric {

enum class NodeKind : std::uint8_t { kSwitch, kHost, kGpu, kNic, kPcie, kCpu, kNvswitch };

struct Graph {
  std::span<const std::uint8_t> node_kind;  // [N] NodeKind
  std::span<const std::int32_t> node_site;  // [N] server, or -1
  std::span<const std::int32_t> link_from;  // [L]
  std::span<const std::int32_t> link_to;    // [L]
  std::span<const double> link_rate;        // [L] B/s, > 0
  std::span<const double> link_latency;     // [L] s, >= 0
  std::span<const std::int16_t> link_axis;  // [L] dimension of a torus or N-dimensional link, else -1
  std::span<const std::uint8_t> link_up;    // [L] 0: down, no route uses it
  std::span<const std::int32_t> endpoint;   // [H] node of endpoint h, the numbers that flows name
  std::span<const std::int64_t> nic_start;  // [H+1] into nics
  std::span<const std::int32_t>
      nics;  // nodes of the NICs that an endpoint drives, nearest first; none: it sits on the fabric itself
  std::span<const std::int32_t> rail;  // [H] index of the endpoint's rail, -1: none; PXN sends through the local GPU of that rail

  [[nodiscard]] std::size_t nodes() const { return node_kind.size(); }
  [[nodiscard]] std::size_t links() const { return link_from.size(); }
  [[nodiscard]] std::size_t endpoints() const { return endpoint.size(); }
};

// Throws wt::Error that names the first column or row that is wrong.
void validate(const Graph& graph);

}  // namespace wt::fabric
