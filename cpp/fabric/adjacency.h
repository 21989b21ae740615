// Links by the node that they leave and by the node that they enter; links that are down are left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fabric/graph.h"

namespace wt::fabric {

class Adjacency {
 public:
  explicit Adjacency(const Graph& graph)
      : out_(sorted(graph, graph.link_from, out_start_)), in_(sorted(graph, graph.link_to, in_start_)) {}

  [[nodiscard]] std::span<const std::int32_t> out(std::int32_t node) const { return row(out_start_, out_, node); }
  [[nodiscard]] std::span<const std::int32_t> in(std::int32_t node) const { return row(in_start_, in_, node); }

 private:
  static std::vector<std::int32_t> sorted(const Graph& graph, std::span<const std::int32_t> end, std::vector<std::size_t>& start) {
    start.assign(graph.nodes() + 1, 0);
    for (std::size_t l = 0; l < graph.links(); ++l) {
      if (graph.link_up[l] != 0) ++start[static_cast<std::size_t>(end[l]) + 1];
    }
    for (std::size_t n = 0; n < graph.nodes(); ++n) start[n + 1] += start[n];
    std::vector<std::size_t> next(start.begin(), start.end() - 1);
    std::vector<std::int32_t> links(start.back());
    for (std::size_t l = 0; l < graph.links(); ++l) {
      if (graph.link_up[l] != 0) links[next[static_cast<std::size_t>(end[l])]++] = static_cast<std::int32_t>(l);
    }
    return links;
  }

  static std::span<const std::int32_t> row(const std::vector<std::size_t>& start, const std::vector<std::int32_t>& links,
                                           std::int32_t node) {
    const auto n = static_cast<std::size_t>(node);
    return std::span(links).subspan(start[n], start[n + 1] - start[n]);
  }

  std::vector<std::size_t> out_start_, in_start_;
  std::vector<std::int32_t> out_, in_;
};

}  // namespace wt::fabric
