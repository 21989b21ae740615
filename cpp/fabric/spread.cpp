#include "fabric/spread.h"

#include <algorithm>
#include <map>

#include "fabric/ways.h"

namespace wt::fabric {

namespace {

struct Crossing {
  std::int32_t anchor, target, from;
  double weight;
};

class Spreader {
 public:
  Spreader(const Graph& graph, const RouteOptions& options) : ways_(graph, options), load_(graph.links(), 0.0) {}

  void flow(std::int32_t src, std::int32_t dst, std::uint64_t key, double weight) {
    ways_.check(src, dst);
    const std::int32_t from = ways_.node(src), to = ways_.node(dst);
    if (from == to) return;
    const std::uint64_t hash = Ways::hash_of(src, dst, key);
    links_.clear();
    if (!ways_.inside.walk(from, to, hash, links_)) {
      const bool found = ways_.first(src, dst, hash, [&](const Way& way) { return take(from, way, to, hash, weight); });
      if (!found) ways_.no_way(src, dst);
    }
    for (const std::int32_t link : links_) load_[static_cast<std::size_t>(link)] += weight;
  }

  std::vector<double> loads() {
    const auto before = [](const Crossing& x, const Crossing& y) {
      return std::pair(x.anchor, x.target) < std::pair(y.anchor, y.target);
    };
    std::stable_sort(crossings_.begin(), crossings_.end(), before);
    for (auto first = crossings_.begin(); first != crossings_.end();) {
      const auto last = std::find_if(first, crossings_.end(), [&](const Crossing& c) { return c.anchor != first->anchor; });
      spread({first, last});
      first = last;
    }
    return std::move(load_);
  }

 private:
  bool take(std::int32_t src, const Way& way, std::int32_t dst, std::uint64_t hash, double weight) {
    links_.clear();
    const std::int32_t out = way.out < 0 ? src : way.out;
    const std::int32_t in = way.in < 0 ? way.b : way.in;
    const auto go = [&](std::int32_t a, std::int32_t b) { return a == b || ways_.inside.walk(a, b, hash, links_); };
    if (!go(src, out) || !go(out, way.a) || !go(way.b, in) || !go(in, dst)) return false;
    if (way.a == way.b) return true;
    if (ways_.choices(way.a, way.b).empty()) return false;
    crossings_.push_back({ways_.between.anchor_of(way.b), way.b, way.a, weight});
    return true;
  }

  void split(std::span<const std::int32_t> links, double weight) {
    const double part = weight / static_cast<double>(links.size());
    for (const std::int32_t link : links) {
      load_[static_cast<std::size_t>(link)] += part;
      const std::int32_t to = ways_.graph.link_to[static_cast<std::size_t>(link)];
      if (ways_.between.forwards(to)) at(to) += part;
    }
  }

  double& at(std::int32_t node) {
    const auto [entry, fresh] = held_.try_emplace({ways_.between.hops_to(anchor_, node), node}, 0.0);
    return entry->second;
  }

  // Flows to targets that hang on the same switches, which share all but their last link.
  void spread(std::span<const Crossing> flows) {
    anchor_ = flows.front().anchor;
    held_.clear();
    std::map<std::int32_t, double> arriving;
    for (const Crossing& c : flows) {
      const auto direct = ways_.between.direct(c.from, c.target);
      if (!direct.empty() && !ways_.between.forwards(c.from)) {
        split_last(direct, c.weight);
      } else {
        if (c.target != c.from) arriving[c.target] += c.weight;
        if (ways_.between.forwards(c.from)) {
          at(c.from) += c.weight;
        } else {
          split(ways_.choices(c.from, c.target), c.weight);
        }
      }
    }
    const std::int32_t any = flows.front().target;
    double total = 0.0;
    while (!held_.empty()) {  // farthest first: everything that reaches a node has reached it when its turn comes
      const auto farthest = std::prev(held_.end());
      const auto [distance, node] = farthest->first;
      if (distance == 0) break;
      const double weight = farthest->second;
      held_.erase(farthest);
      split(ways_.choices(node, any), weight);
    }
    for (const auto& [key, weight] : held_) total += weight;
    for (const auto& [key, weight] : held_) {
      for (const auto& [target, sent] : arriving) {
        if (target != key.second) split_last(ways_.between.direct(key.second, target), sent * weight / total);
      }
    }
  }

  void split_last(std::span<const std::int32_t> links, double weight) {
    for (const std::int32_t link : links) load_[static_cast<std::size_t>(link)] += weight / static_cast<double>(links.size());
  }

  Ways ways_;
  std::vector<double> load_;
  std::vector<std::int32_t> links_;
  std::vector<Crossing> crossings_;
  std::map<std::pair<std::uint16_t, std::int32_t>, double> held_;  // (hops to go, node) -> weight there
  std::int32_t anchor_ = 0;
};

}  // namespace

std::vector<double> spread(const Graph& graph, const RouteOptions& options, std::span<const std::int32_t> src,
                           std::span<const std::int32_t> dst, std::span<const std::uint64_t> key, std::span<const double> weight) {
  validate(graph);
  Spreader spreader(graph, options);
  for (std::size_t f = 0; f < src.size(); ++f) spreader.flow(src[f], dst[f], key[f], weight[f]);
  return spreader.loads();
}

}  // namespace wt::fabric
