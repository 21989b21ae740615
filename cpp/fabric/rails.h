// The GPU of a server on a rail: the intermediate GPU of PXN, and the receiving GPU of kRail.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "fabric/graph.h"

namespace wt::fabric {

// Endpoints of each server, by rail, in order of their numbers.
class Rails {
 public:
  explicit Rails(const Graph& graph) : graph_(graph), place_(graph.endpoints(), 0) {
    for (std::size_t h = 0; h < graph.endpoints(); ++h) {
      if (site(static_cast<std::int32_t>(h)) >= 0 && graph.rail[h] >= 0) sorted_.push_back(static_cast<std::int32_t>(h));
    }
    std::stable_sort(sorted_.begin(), sorted_.end(), [this](std::int32_t a, std::int32_t b) { return key(a) < key(b); });
    for (std::size_t i = 1; i < sorted_.size(); ++i) {
      if (key(sorted_[i]) == key(sorted_[i - 1])) place_[at(sorted_[i])] = place_[at(sorted_[i - 1])] + 1;
    }
  }

  // The endpoint of `beside`'s server that is on `rail`; of several the one with the same place as `beside` has on its own. -1:
  // none.
  [[nodiscard]] std::int32_t on(std::int32_t beside, std::int32_t rail) const {
    if (rail < 0 || site(beside) < 0) return -1;
    if (graph_.rail[at(beside)] == rail) return beside;
    const std::pair<std::int32_t, std::int32_t> want{site(beside), rail};
    const auto less = [this](std::int32_t h, const std::pair<std::int32_t, std::int32_t>& k) { return key(h) < k; };
    const auto more = [this](const std::pair<std::int32_t, std::int32_t>& k, std::int32_t h) { return k < key(h); };
    const auto first = std::lower_bound(sorted_.begin(), sorted_.end(), want, less);
    const auto last = std::upper_bound(first, sorted_.end(), want, more);
    return first == last ? -1 : first[place_[at(beside)] % (last - first)];
  }

 private:
  static std::size_t at(std::int32_t h) { return static_cast<std::size_t>(h); }
  [[nodiscard]] std::int32_t site(std::int32_t h) const { return graph_.node_site[at(graph_.endpoint[at(h)])]; }
  [[nodiscard]] std::pair<std::int32_t, std::int32_t> key(std::int32_t h) const { return {site(h), graph_.rail[at(h)]}; }

  const Graph& graph_;
  std::vector<std::int32_t> sorted_;
  std::vector<std::int32_t> place_;
};

}  // namespace wt::fabric
