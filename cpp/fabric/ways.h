// The NICs of a flow between servers, by NicChoice, and the links that it chooses among on the fabric.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fabric/adjacency.h"
#include "fabric/between.h"
#include "fabric/graph.h"
#include "fabric/inside.h"
#include "fabric/rails.h"
#include "fabric/router.h"

namespace wt::fabric {

// From the source inside its server by way of `out` to NIC `a`, over the fabric to NIC `b`, by way of `in` to the destination.
struct Way {
  std::int32_t out = -1;  // -1: no such stop
  std::int32_t a = 0;
  std::int32_t b = 0;
  std::int32_t in = -1;
};

class Ways {
 public:
  Ways(const Graph& columns, const RouteOptions& chosen)
      : graph(columns), options(chosen), adjacency(graph), inside(graph, adjacency), between(graph, adjacency), rails_(graph) {}
  Ways(const Ways&) = delete;
  Ways& operator=(const Ways&) = delete;

  [[nodiscard]] std::int32_t node(std::int32_t h) const { return graph.endpoint[static_cast<std::size_t>(h)]; }
  static std::uint64_t hash_of(std::int32_t src, std::int32_t dst, std::uint64_t key);
  // Throws wt::Error unless both are endpoints.
  void check(std::int32_t src, std::int32_t dst) const;
  [[noreturn]] void no_way(std::int32_t src, std::int32_t dst) const;

  // Calls take(way) for the way that NicChoice prefers and then, where that is cut off, for every pair of NICs, until one is taken.
  template <class Take>
  bool first(std::int32_t src, std::int32_t dst, std::uint64_t hash, Take&& take) {
    if (take(preferred(src, dst, hash))) return true;
    for (const std::int32_t a : exits(src)) {
      for (const std::int32_t b : exits(dst)) {
        if (take(Way{-1, a, b, -1})) return true;
      }
    }
    return false;
  }

  // Next links on the fabric that the policy allows; valid until the next call.
  std::span<const std::int32_t> choices(std::int32_t at, std::int32_t target);

  const Graph graph;
  const RouteOptions options;
  const Adjacency adjacency;
  Inside inside;
  Between between;

 private:
  [[nodiscard]] std::int32_t rail(std::int32_t h) const { return graph.rail[static_cast<std::size_t>(h)]; }
  [[nodiscard]] std::span<const std::int32_t> exits(std::int32_t h) const;
  std::int32_t port(std::int32_t h, std::uint64_t hash);
  Way preferred(std::int32_t src, std::int32_t dst, std::uint64_t hash);

  Rails rails_;
  std::vector<std::int32_t> axis_links_;
};

}  // namespace wt::fabric
