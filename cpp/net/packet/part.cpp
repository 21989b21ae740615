#include "net/packet/part.h"

namespace wt::net::packet {

Part::Part(World& world, std::int32_t self, std::int32_t parts, Time span) : outbox(static_cast<std::size_t>(parts)), w_(world), self_(self), wheel_(span) {}

bool Part::run(Time limit, std::int64_t most) {
  std::uint64_t event = 0;
  while (most-- > 0) {
    if (!wheel_.next(limit, now_, event)) return false;
    const std::uint64_t index = event & ((std::uint64_t{1} << 40) - 1);
    if (event >> 40 == kArrival) [[likely]] {
      const auto l = static_cast<std::uint32_t>(index >> 1);
      if ((index & 1) == 0) {
        arrive(l);
      } else {
        arrive_control(l);
      }
    } else {
      handle(event);
    }
  }
  return true;
}

void Part::handle(std::uint64_t event) {
  const auto index = static_cast<std::uint32_t>(event & UINT32_MAX);
  switch (static_cast<Event>(event >> 40)) {
    case kBegin:
      ++stats.events;
      open(index);
      break;
    case kReady: {
      ++stats.events;
      std::vector<std::uint32_t>& pending = w_.pending[index];
      const std::uint32_t slices = pending.front();
      pending.erase(pending.begin());
      let(index, slices);
      break;
    }
    case kRetry:
      retry(index);
      break;
    case kWatch:
      watch(index);
      break;
    default:
      break;
  }
}

Time Part::hand_over(Time limit) {
  Time next = kForever;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < dirty_.size(); ++i) {
    const std::uint32_t l = dirty_[i];
    Link& link = w_.links[l];
    advance(l, link, limit);
    std::vector<Mail>& box = outbox[w_.nodes[w_.info[l].to].part];
    for (; link.data.on_wire(); ++link.data.head) box.push_back({link.data[link.data.head].time, 2 * l, link.data[link.data.head].frame});
    for (; link.control.on_wire(); ++link.control.head)
      box.push_back({link.control[link.control.head].time, 2 * l + 1, link.control[link.control.head].frame});
    Time start = kForever;
    if (!link.paused) {
      if (link.data.waiting()) start = std::max(link.data[link.data.sent].time, link.free);
      if (link.source >= 0) start = std::min(start, next_own(w_.sources[link.source], link));
    }
    link.dirty = start != kForever;
    if (!link.dirty) continue;
    dirty_[kept++] = l;
    next = std::min(next, start);
  }
  dirty_.resize(kept);
  return next;
}

void Part::take(std::span<const Mail> mail) {
  for (const Mail& m : mail) {
    Wire& wire = w_.wires[w_.info[m.link / 2].cut];
    Ring& ring = (m.link & 1) == 0 ? wire.data : wire.control;
    const bool first = !ring.on_wire();
    ring.push(m.time, m.frame);
    ++ring.sent;
    if (first) wheel_.insert(m.time, id(kArrival, m.link));
  }
}

}  // namespace wt::net::packet
