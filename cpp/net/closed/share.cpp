#include "net/closed/share.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <utility>

#include "base/check.h"

namespace wt::net {

namespace {

void check(const fabric::Graph& graph, const Paths& paths, std::span<const double> bytes, std::span<const double> start) {
  if (paths.start.size() != bytes.size() + 1 || start.size() != bytes.size()) {
    fail("closed flows: ", paths.start.size(), " path starts, ", bytes.size(), " sizes, ", start.size(), " start times");
  }
  for (std::size_t f = 0; f < bytes.size(); ++f) {
    if (!(bytes[f] >= 0.0) || !std::isfinite(bytes[f])) fail("closed flows: flow ", f, " has ", bytes[f], " bytes");
    if (!(start[f] >= 0.0) || !std::isfinite(start[f])) fail("closed flows: flow ", f, " starts at ", start[f], " s");
    if (paths.start[f + 1] < paths.start[f]) fail("closed flows: the path of flow ", f, " ends before it begins");
  }
  if (paths.start[0] != 0 || paths.start.back() != static_cast<std::int64_t>(paths.links.size())) {
    fail("closed flows: path starts do not cover the ", paths.links.size(), " links");
  }
  for (const std::int32_t link : paths.links) {
    if (link < 0 || static_cast<std::size_t>(link) >= graph.links()) fail("closed flows: a path names link ", link);
  }
}

// One link's flows, in order of their starts, each with its bytes; serves all that are there at equal rates.
class Shared {
 public:
  // Calls end(flow, time) for each flow.
  template <class End>
  void run(std::span<const std::int32_t> flows, std::span<const double> bytes, std::span<const double> start, double rate,
           End&& end) {
    double now = 0.0, served = 0.0;  // bytes that a flow which was always there would have had
    for (const std::int32_t flow : flows) {
      const auto f = static_cast<std::size_t>(flow);
      drain(start[f], now, served, rate, end);
      now = start[f];
      active_.emplace(served + bytes[f], flow);
    }
    drain(HUGE_VAL, now, served, rate, end);
  }

 private:
  using Entry = std::pair<double, std::int32_t>;

  // Ends those that are done by `until`, and moves on to it.
  template <class End>
  void drain(double until, double& now, double& served, double rate, End&& end) {
    while (!active_.empty()) {
      const auto [target, flow] = active_.top();
      const double each = rate / static_cast<double>(active_.size());
      const double finish = now + (target - served) / each;
      if (finish > until) {
        served += (until - now) * each;
        return;
      }
      now = finish;
      served = target;
      end(flow, finish);
      active_.pop();
    }
    served = 0.0;  // idle: sums start again, so that they stay small
  }

  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> active_;
};

}  // namespace

std::vector<double> share(const fabric::Graph& graph, const Paths& paths, std::span<const double> bytes,
                          std::span<const double> start) {
  check(graph, paths, bytes, start);
  const std::size_t flows = bytes.size();
  std::vector<std::int32_t> order(flows);
  for (std::size_t f = 0; f < flows; ++f) order[f] = static_cast<std::int32_t>(f);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return start[static_cast<std::size_t>(a)] < start[static_cast<std::size_t>(b)];
  });
  std::vector<std::size_t> first(graph.links() + 1, 0);
  for (const std::int32_t link : paths.links) ++first[static_cast<std::size_t>(link) + 1];
  for (std::size_t l = 0; l < graph.links(); ++l) first[l + 1] += first[l];
  std::vector<std::int32_t> through(paths.links.size());  // flows of each link, by start
  std::vector<std::size_t> next(first.begin(), first.end() - 1);
  std::vector<double> seconds(flows, 0.0);
  for (const std::int32_t flow : order) {
    const auto f = static_cast<std::size_t>(flow);
    for (auto i = static_cast<std::size_t>(paths.start[f]); i < static_cast<std::size_t>(paths.start[f + 1]); ++i) {
      through[next[static_cast<std::size_t>(paths.links[i])]++] = flow;
    }
  }
  Shared shared;
  for (std::size_t l = 0; l < graph.links(); ++l) {
    const auto here = std::span(through).subspan(first[l], first[l + 1] - first[l]);
    shared.run(here, bytes, start, graph.link_rate[l], [&](std::int32_t flow, double end) {
      const auto f = static_cast<std::size_t>(flow);
      seconds[f] = std::max(seconds[f], end - start[f]);
    });
  }
  return seconds;
}

}  // namespace wt::net
