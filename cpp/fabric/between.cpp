#include "fabric/between.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "fabric/hash.h"

namespace wt::fabric {

namespace {

constexpr std::int32_t kUnknown = -2;
constexpr std::int32_t kNoWay = -1;
constexpr std::uint16_t kFar = 0xffff;
constexpr std::uint8_t kFarByte = 0xff;
constexpr std::size_t kNarrow = 12;  // nodes with no more links are scanned: a table of a large torus would not fit

}  // namespace

std::size_t Between::HashLinks::operator()(const std::vector<std::int32_t>& links) const {
  std::uint64_t hash = links.size();
  for (const std::int32_t link : links) hash = mix(hash ^ static_cast<std::uint32_t>(link));
  return hash;
}

Between::Between(const Graph& graph, const Adjacency& adjacency)
    : graph_(graph),
      adjacency_(adjacency),
      dense_(graph.nodes(), -1),
      wide_(graph.nodes(), -1),
      target_anchor_(graph.nodes(), kUnknown) {
  for (std::size_t n = 0; n < graph.nodes(); ++n) {
    const auto kind = static_cast<NodeKind>(graph.node_kind[n]);
    if (graph.node_site[n] >= 0 || kind == NodeKind::kHost || kind == NodeKind::kNic) continue;
    const auto node = static_cast<std::int32_t>(n);
    dense_[n] = static_cast<std::int32_t>(forwarders_.size());
    forwarders_.push_back(node);
    if (adjacency.out(node).size() > kNarrow) wide_[n] = static_cast<std::int32_t>(wides_++);
  }
}

std::uint16_t Between::hops(const Anchor& anchor, std::int32_t node) const {
  const auto at = static_cast<std::size_t>(dense_[static_cast<std::size_t>(node)]);
  if (anchor.near.empty()) return anchor.far[at];
  return anchor.near[at] == kFarByte ? kFar : anchor.near[at];
}

Between::Anchor Between::search(std::span<const std::int32_t> roots) const {
  std::vector<std::uint16_t> distance(forwarders_.size(), kFar);
  std::vector<std::int32_t> queue(roots.begin(), roots.end());
  for (const std::int32_t root : roots) distance[static_cast<std::size_t>(dense_[static_cast<std::size_t>(root)])] = 0;
  std::uint16_t farthest = 0;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    farthest = distance[static_cast<std::size_t>(dense_[static_cast<std::size_t>(queue[i])])];
    if (farthest + 1 == kFar) fail("graph: more than ", kFar - 1, " hops between two nodes");
    for (const std::int32_t link : adjacency_.in(queue[i])) {
      const std::int32_t from = graph_.link_from[static_cast<std::size_t>(link)];
      if (!forwards(from)) continue;
      std::uint16_t& known = distance[static_cast<std::size_t>(dense_[static_cast<std::size_t>(from)])];
      if (known != kFar) continue;
      known = static_cast<std::uint16_t>(farthest + 1);
      queue.push_back(from);
    }
  }
  Anchor anchor;
  if (farthest < kFarByte) {
    anchor.near.resize(distance.size());
    std::transform(distance.begin(), distance.end(), anchor.near.begin(),
                   [](std::uint16_t d) { return d == kFar ? kFarByte : static_cast<std::uint8_t>(d); });
  } else {
    anchor.far = std::move(distance);
  }
  anchor.choices.assign(wides_, nullptr);
  return anchor;
}

std::int32_t Between::anchor_of(std::int32_t target) {
  std::int32_t& known = target_anchor_[static_cast<std::size_t>(target)];
  if (known != kUnknown) return known;
  std::vector<std::int32_t> roots;
  if (forwards(target)) {
    roots.push_back(target);
  } else {
    for (const std::int32_t link : adjacency_.in(target)) {
      const std::int32_t from = graph_.link_from[static_cast<std::size_t>(link)];
      if (forwards(from)) roots.push_back(from);
    }
    std::sort(roots.begin(), roots.end());
    roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
  }
  if (roots.empty()) return known = kNoWay;
  const auto [entry, fresh] = anchor_by_roots_.try_emplace(roots, static_cast<std::int32_t>(anchors_.size()));
  if (fresh) anchors_.push_back(search(roots));
  return known = entry->second;
}

// Links of `node` to whichever forwarding neighbours are nearest to the anchor.
void Between::towards(const Anchor& anchor, std::int32_t node) {
  scratch_.clear();
  std::uint16_t best = forwards(node) ? hops(anchor, node) : kFar;  // only what is nearer than itself; an end takes the nearest
  for (const std::int32_t link : adjacency_.out(node)) {
    const std::int32_t to = graph_.link_to[static_cast<std::size_t>(link)];
    if (!forwards(to)) continue;
    const std::uint16_t distance = hops(anchor, to);
    if (distance < best) {
      best = distance;
      scratch_.clear();
    }
    if (distance == best && distance != kFar && (!forwards(node) || distance < hops(anchor, node))) scratch_.push_back(link);
  }
}

std::span<const std::int32_t> Between::direct(std::int32_t node, std::int32_t target) {
  scratch_.clear();
  for (const std::int32_t link : adjacency_.in(target)) {
    if (graph_.link_from[static_cast<std::size_t>(link)] == node) scratch_.push_back(link);
  }
  return scratch_;
}

const std::vector<std::int32_t>* Between::kept() { return &*lists_.insert(scratch_).first; }

std::span<const std::int32_t> Between::next(std::int32_t node, std::int32_t target, bool keep) {
  if (node == target) return {};
  const std::int32_t index = anchor_of(target);
  const std::int32_t wide = wide_[static_cast<std::size_t>(node)];
  if (index != kNoWay && wide >= 0 && hops(anchors_[static_cast<std::size_t>(index)], node) > 0) {
    Anchor& anchor = anchors_[static_cast<std::size_t>(index)];
    const std::vector<std::int32_t>*& known = anchor.choices[static_cast<std::size_t>(wide)];
    if (known == nullptr) {
      towards(anchor, node);
      known = kept();
    }
    return *known;
  }
  const std::uint64_t key = (static_cast<std::uint64_t>(node) << 32U) | static_cast<std::uint32_t>(target);
  if (keep) {
    if (const auto found = kept_.find(key); found != kept_.end()) return *found->second;
  }
  // a direct link is the shortest way there is
  if (direct(node, target).empty() && index != kNoWay) towards(anchors_[static_cast<std::size_t>(index)], node);
  if (!keep) return scratch_;
  return *(kept_[key] = kept());
}

}  // namespace wt::fabric
