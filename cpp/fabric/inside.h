// Paths inside a server: cheapest by a cost that prefers NVLink to PCIe and PCIe to the CPU. GPUs and NICs are ends, never
// transit.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "fabric/adjacency.h"
#include "fabric/graph.h"

namespace wt::fabric {

class Inside {
 public:
  static constexpr std::uint32_t kNvlink = 1;  // a link between GPUs and NVSwitches only
  static constexpr std::uint32_t kPcie = 1U << 8U;
  static constexpr std::uint32_t kCpu = 1U << 16U;  // a link into or out of a CPU
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  Inside(const Graph& graph, const Adjacency& adjacency);

  // Cost of the cheapest way between two nodes; kNone if they are in different servers or nothing connects them.
  std::uint32_t cost(std::int32_t from, std::int32_t to);
  // Appends the links of a cheapest path, chosen by hash among equal ones; false (and nothing appended) if there is none.
  bool walk(std::int32_t from, std::int32_t to, std::uint64_t hash, std::vector<std::int32_t>& links);

 private:
  [[nodiscard]] std::uint32_t link_cost(std::int32_t link) const;
  [[nodiscard]] bool is_end(std::int32_t node) const;
  const std::vector<std::uint32_t>& costs_to(std::int32_t target);

  const Graph& graph_;
  const Adjacency& adjacency_;
  std::vector<std::int32_t> local_;             // [N] position among the nodes of its server
  std::vector<std::int32_t> size_;              // [servers] nodes
  std::vector<std::vector<std::uint32_t>> to_;  // [N] cost from each node of the server to this one; empty until asked for
  std::vector<std::int32_t> equal_;             // links that walk() chooses among
};

}  // namespace wt::fabric
