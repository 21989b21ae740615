#include "net/packet/engine.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "net/packet/part.h"

namespace wt::net::packet {

namespace {

constexpr std::int64_t kSlab = 1 << 19;  // events between two polls

double seconds(Time t) { return t == kForever ? -1.0 : static_cast<double>(t) * kPicosecond; }

// Most events lie this far ahead at most: a full packet and its way over the slowest of the usual links.
Time span_of(const World& w) {
  Time most = 0;
  for (const Link& link : w.links)
    if (link.latency < 20'000'000) most = std::max(most, link.latency + serial(link.cost, static_cast<std::uint64_t>(w.options.mtu + w.options.header)));
  return most + most / 4;
}

Result collect(const World& w, Stats stats, Time end) {
  Result r;
  r.stats = stats;
  r.end = seconds(end);
  for (std::size_t i = 0; i < w.delivered.size(); ++i) {
    r.delivered.push_back(seconds(w.delivered[i]));
    r.acked.push_back(seconds(w.acked[i]));
  }
  for (const Link& link : w.links) {
    r.link_data.push_back(link.left);
    r.link_control.push_back(link.control_bytes);
    r.link_peak.push_back(link.peak);
    r.link_paused.push_back(static_cast<double>(link.paused_for) * kPicosecond);
  }
  return r;
}

}  // namespace

Result run(const fabric::Graph& graph, const Paths& paths, const Lanes& lanes, const Options& options, const Poll& poll) {
  World world(graph, paths, lanes, options);
  const auto bytes = static_cast<double>(std::accumulate(lanes.bytes.begin(), lanes.bytes.end(), std::int64_t{0}));
  Part part(world, 0, 1, span_of(world));
  std::vector<std::uint32_t> all(lanes.src.size());
  std::iota(all.begin(), all.end(), 0U);
  part.start(all);
  while (part.run(kForever, kSlab))
    if (poll && poll(bytes > 0 ? static_cast<double>(part.arrived()) / bytes : 1.0)) fail("stopped");
  if (part.finished() != 2 * static_cast<std::int64_t>(lanes.src.size())) fail("packet engine: ", lanes.src.size(), " lanes, not all of them end");
  return collect(world, part.stats, part.now());
}

}  // namespace wt::net::packet
