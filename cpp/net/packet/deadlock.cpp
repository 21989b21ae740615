#include "net/packet/deadlock.h"

#include <string>

#include "base/check.h"

namespace wt::net::packet {

namespace {

// Ports that must send before what came in over link l is gone: those where a packet of it waits that are stopped themselves.
std::vector<std::int32_t> blockers(const World& w, std::int32_t l) {
  std::vector<std::int32_t> found;
  const std::int32_t node = w.info[l].to;
  for (std::int32_t i = w.out_start[node]; i < w.out_start[node + 1]; ++i) {
    const Link& out = w.links[w.out[i]];
    if ((out.stopped & (kPaused | kNoCredit)) == 0) continue;
    for (std::uint32_t s = out.data.sent; s != out.data.tail; ++s) {
      if (out.data[s].frame.other != l) continue;
      found.push_back(w.out[i]);
      break;
    }
  }
  return found;
}

}  // namespace

void check_deadlock(const World& w) {
  enum : std::uint8_t { kNew, kOpen, kClosed };
  std::vector<std::uint8_t> state(w.links.size(), kNew);
  struct Step {
    std::int32_t link;
    std::vector<std::int32_t> next;
    std::size_t at = 0;
  };
  for (std::size_t first = 0; first < w.links.size(); ++first) {
    if ((w.links[first].stopped & (kPaused | kNoCredit)) == 0 || state[first] != kNew) continue;
    std::vector<Step> way;
    way.push_back({static_cast<std::int32_t>(first), blockers(w, static_cast<std::int32_t>(first))});
    state[first] = kOpen;
    while (!way.empty()) {
      if (way.back().at == way.back().next.size()) {
        state[way.back().link] = kClosed;
        way.pop_back();
        continue;
      }
      const std::int32_t next = way.back().next[way.back().at++];
      if (state[next] == kNew) {
        state[next] = kOpen;
        way.push_back({next, blockers(w, next)});
      } else if (state[next] == kOpen) {
        std::string nodes;
        bool inside = false;
        for (const Step& s : way) {
          inside = inside || s.link == next;
          if (inside) nodes += std::to_string(w.info[s.link].from) + " -> ";
        }
        fail("packet engine: deadlock, full buffers wait for each other in a circle of nodes: ", nodes, w.info[next].from);
      }
    }
  }
}

void explain(const World& w) {
  check_deadlock(w);
  std::size_t left = 0, first = 0;
  for (std::size_t i = w.acked.size(); i-- > 0;)
    if (w.acked[i] == kForever) ++left, first = i;
  const Gate& gate = w.gates[first];
  if (gate.open < gate.slices)
    fail("packet engine: ", left, " lanes never end; lane ", first, " (", w.lanes.src[first], " -> ", w.lanes.dst[first],
         ") waits for lanes that do not deliver: slice ", gate.open, " of ", gate.slices);
  fail("packet engine: ", left, " lanes never end; lane ", first, " (", w.lanes.src[first], " -> ", w.lanes.dst[first],
       ") is stuck at packet ", w.senders[first].una, " of ", w.senders[first].total);
}

}  // namespace wt::net::packet
