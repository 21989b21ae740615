// Ways between servers: hop distances to each distinct set of switches that a target hangs on (its anchor), found when first asked
// for.
//
// Switches forward, and so do accelerators on the fabric itself (a torus). Hosts, NICs and other nodes of a server are ends.
// All NICs of a leaf share one anchor, so distances cost (leaves x switches) bytes, not (NICs x nodes).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fabric/adjacency.h"
#include "fabric/graph.h"

namespace wt::fabric {

class Between {
 public:
  Between(const Graph& graph, const Adjacency& adjacency);

  // Links that leave `node` on a shortest path to `target`; valid until the next call, unless `keep`: then for good.
  std::span<const std::int32_t> next(std::int32_t node, std::int32_t target, bool keep);
  // The links from `node` into `target`; valid until the next call.
  std::span<const std::int32_t> direct(std::int32_t node, std::int32_t target);

  [[nodiscard]] bool forwards(std::int32_t node) const { return dense_[static_cast<std::size_t>(node)] >= 0; }
  // Number of the set of switches that the target is connected to; -1 if no link leads to it.
  std::int32_t anchor_of(std::int32_t target);
  [[nodiscard]] std::uint16_t hops_to(std::int32_t anchor, std::int32_t node) const {
    return hops(anchors_[static_cast<std::size_t>(anchor)], node);
  }

 private:
  struct Anchor {
    std::vector<std::uint8_t> near;                         // [F] hops, kFar: no way; empty if one is too far for a byte
    std::vector<std::uint16_t> far;                         // the same if a byte is too small
    std::vector<const std::vector<std::int32_t>*> choices;  // [wide] next links, null until asked for
  };
  struct HashLinks {
    std::size_t operator()(const std::vector<std::int32_t>& links) const;
  };

  [[nodiscard]] std::uint16_t hops(const Anchor& anchor, std::int32_t node) const;
  Anchor search(std::span<const std::int32_t> roots) const;
  void towards(const Anchor& anchor, std::int32_t node);
  const std::vector<std::int32_t>* kept();

  const Graph& graph_;
  const Adjacency& adjacency_;
  std::vector<std::int32_t> dense_;       // [N] position among those that forward, -1: an end
  std::vector<std::int32_t> wide_;        // [N] position among those with many links, else -1
  std::vector<std::int32_t> forwarders_;  // [F]
  std::size_t wides_ = 0;
  std::vector<std::int32_t> target_anchor_;  // [N] kUnknown, kNoWay or an index of anchors_
  std::map<std::vector<std::int32_t>, std::int32_t> anchor_by_roots_;
  std::vector<Anchor> anchors_;
  std::vector<std::int32_t> scratch_;
  std::unordered_set<std::vector<std::int32_t>, HashLinks> lists_;
  std::unordered_map<std::uint64_t, const std::vector<std::int32_t>*> kept_;  // by (node, target), for narrow nodes and last hops
};

}  // namespace wt::fabric
