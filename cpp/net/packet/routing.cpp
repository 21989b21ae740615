// Packets that choose their way switch by switch: spraying, flowlets, adaptive routing among the equal next hops to where their
// lane's path leaves the fabric. Before the first switch and after the last one they are on the lane's path; ACKs always take it
// backwards.
#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "net/packet/part.h"
#include "net/packet/random.h"

namespace wt::net::packet {

void World::build_direct() {
  direct.resize(senders.size());
  turn.assign(nodes.size(), 0);
  std::map<std::int32_t, std::int32_t> row_of;
  for (std::size_t k = 0; k < senders.size(); ++k) {
    const Sender& s = senders[k];
    std::uint32_t enter = s.hop;
    while (enter < s.hop + s.hops && !is_switch(info[paths.links[enter]].to)) ++enter;
    std::uint32_t exit = s.hop + s.hops;
    while (exit > s.hop && !is_switch(info[paths.links[exit - 1]].from)) --exit;
    bool fabric = enter + 1 < exit;  // else there is no choice
    for (std::uint32_t i = enter; fabric && i + 1 < exit; ++i) fabric = is_switch(info[paths.links[i]].to);
    if (!fabric) continue;
    Direct& d = direct[k];
    d.enter = enter;
    d.exit = exit - 1;
    d.after = static_cast<std::uint8_t>(s.hop + s.hops - exit);
    d.target = info[paths.links[d.exit]].to;
    d.row = row_of.try_emplace(d.target, static_cast<std::int32_t>(row_of.size())).first->second;
  }
  // links on shortest ways to each target, by a walk backwards from it
  const std::size_t n = nodes.size();
  std::vector<std::vector<std::int32_t>> in(n);
  for (std::size_t l = 0; l < links.size(); ++l)
    if (graph.link_up[l] != 0) in[info[l].to].push_back(static_cast<std::int32_t>(l));
  std::vector<std::int32_t> targets(row_of.size());
  for (const auto& [target, row] : row_of) targets[row] = target;
  hop_start.push_back(0);
  std::vector<std::int32_t> far(n), queue;
  for (const std::int32_t target : targets) {
    std::fill(far.begin(), far.end(), -1);
    far[target] = 0;
    queue.assign(1, target);
    for (std::size_t at = 0; at < queue.size(); ++at)
      for (const std::int32_t l : in[queue[at]]) {
        const std::int32_t from = info[l].from;
        if (far[from] >= 0 || !is_switch(from)) continue;
        far[from] = far[queue[at]] + 1;
        queue.push_back(from);
      }
    for (std::size_t node = 0; node < n; ++node) {
      if (far[node] > 0)
        for (std::int32_t i = out_start[node]; i < out_start[node + 1]; ++i) {
          const std::int32_t to = info[out[i]].to;
          if (far[to] == far[node] - 1 && graph.link_up[out[i]] != 0) hops.push_back(out[i]);
        }
      hop_start.push_back(static_cast<std::int32_t>(hops.size()));
    }
  }
}

void World::add_ways(std::uint32_t lane, std::vector<std::int32_t>& ways) const {
  const Sender& s = senders[lane];
  const bool chooses = !direct.empty() && direct[lane].row >= 0;
  for (std::uint32_t i = s.hop; i < s.hop + s.hops; ++i)
    if (!chooses || i <= direct[lane].enter || i >= direct[lane].exit) ways.push_back(paths.links[i]);
  if (!chooses) return;
  const Direct& d = direct[lane];
  std::vector<std::int32_t> queue{info[paths.links[d.enter]].to};
  std::vector<std::uint8_t> seen(nodes.size(), 0);
  for (std::size_t at = 0; at < queue.size(); ++at) {
    const std::size_t row = static_cast<std::size_t>(d.row) * nodes.size() + static_cast<std::size_t>(queue[at]);
    for (std::int32_t h = hop_start[row]; h < hop_start[row + 1]; ++h) {
      ways.push_back(hops[h]);
      const std::int32_t to = info[hops[h]].to;
      if (std::exchange(seen[to], std::uint8_t{1}) == 0 && to != d.target) queue.push_back(to);
    }
  }
}

// A packet has come to a node. False: it is in the fabric and has been sent on; true: it is on its lane's path.
bool Part::follow(std::uint32_t link, Frame& frame, std::int32_t node) {
  const Direct& d = w_.direct[frame.pair];
  if (d.row < 0 || frame.hop < d.enter || frame.hop >= d.exit) return true;
  if (node != d.target) {
    frame.hop = d.enter;
    forward(choose(frame, node), frame, static_cast<std::int32_t>(link));
    return false;
  }
  frame.hop = d.exit;
  frame.left = d.after;
  return true;
}

std::uint32_t Part::choose(const Frame& frame, std::int32_t node) {
  const Direct& d = w_.direct[frame.pair];
  const std::size_t at = static_cast<std::size_t>(d.row) * w_.nodes.size() + static_cast<std::size_t>(node);
  const std::span<const std::int32_t> all(w_.hops.data() + w_.hop_start[at], w_.hops.data() + w_.hop_start[at + 1]);
  if (all.empty()) fail("packet engine: lane ", frame.pair, " has no way on from node ", node);
  const auto count = static_cast<std::uint32_t>(all.size());
  const auto up = [&](std::uint32_t i) { return (w_.links[all[i % count]].stopped & kDown) == 0; };
  std::uint32_t pick = 0;
  switch (w_.options.spread) {
    case Spread::kRound:
      pick = w_.turn[node]++;
      break;
    case Spread::kRandom:
      pick = static_cast<std::uint32_t>(draw(w_.options.seed, static_cast<std::uint64_t>(node), w_.turn[node]++) >> 32);
      break;
    case Spread::kFlowlet: {
      Flowlet& f = flowlets_[(static_cast<std::uint64_t>(node) << 32) | frame.pair];
      if (f.last < 0 || now_ - f.last > w_.flowlet_gap) ++f.number;
      f.last = now_;
      pick = static_cast<std::uint32_t>(draw(w_.options.seed + f.number, static_cast<std::uint64_t>(node), frame.pair) >> 32);
      break;
    }
    case Spread::kAdaptive: {
      std::int64_t best = INT64_MAX;
      const std::uint32_t first = w_.turn[node]++;
      for (std::uint32_t i = first; i != first + count; ++i) {
        Link& link = w_.links[all[i % count]];
        advance(static_cast<std::uint32_t>(all[i % count]), link, now_);
        const std::int64_t queue = link.joined - link.left + (link.free > now_ ? 1 : 0);
        if (link.stopped != 0 || queue >= best) continue;
        best = queue;
        pick = i;
      }
      break;
    }
    case Spread::kPath:
      break;
  }
  for (std::uint32_t i = 0; i < count && !up(pick); ++i) ++pick;
  return static_cast<std::uint32_t>(all[pick % count]);
}

}  // namespace wt::net::packet
