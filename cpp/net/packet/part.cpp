#include "net/packet/part.h"

#include <algorithm>

namespace wt::net::packet {

Part::Part(World& world, std::int32_t self, std::int32_t parts, Time span)
    : outbox(static_cast<std::size_t>(parts)), w_(world), self_(self), wheel_(span) {
  if (w_.lossy_links) frames_.resize(2 * w_.links.size());
  const auto mine = [&](std::int32_t node) { return w_.nodes[node].part == self_; };
  for (std::size_t i = 0; i < w_.faults.flaps.size(); ++i) {
    const LinkInfo& info = w_.info[w_.faults.flaps[i].link];
    if (mine(info.from) || mine(info.to)) wheel_.insert(w_.flap_times[i], id(kFlap, i));
  }
  for (std::size_t i = 0; i < w_.faults.detours.size(); ++i)
    if (mine(w_.graph.endpoint[w_.lanes.src[w_.faults.detours[i].lane]])) wheel_.insert(w_.detour_times[i], id(kDetour, i));
  if (w_.options.sample <= 0) return;
  sample_every_ = static_cast<Time>(w_.options.sample / kPicosecond + 0.5);
  next_sample_ = 0;
  for (std::size_t i = 0; i < w_.options.sample_links.size(); ++i)
    if (mine(w_.info[w_.options.sample_links[i]].from)) sample_links_.push_back(static_cast<std::uint32_t>(i));
  for (std::size_t i = 0; i < w_.options.sample_lanes.size(); ++i)
    if (mine(w_.graph.endpoint[w_.lanes.src[w_.options.sample_lanes[i]]])) sample_lanes_.push_back(static_cast<std::uint32_t>(i));
}

bool Part::run(Time limit, std::int64_t most) {
  while (next_sample_ < limit) {
    if (run_to(next_sample_, most)) return true;
    if (limit == kForever && wheel_.peek() == kForever) return false;
    sample();
  }
  return run_to(limit, most);
}

bool Part::run_to(Time limit, std::int64_t& most) {
  std::uint64_t event = 0;
  while (most-- > 0) {
    if (!wheel_.next(limit, now_, event)) return false;
    const std::uint64_t index = event & ((std::uint64_t{1} << 40) - 1);
    if (event >> 40 == kArrival) [[likely]] {
      last_ = now_;
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
      last_ = now_;
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
    case kDelivered:
      last_ = now_;
      ++stats.events;
      slice_delivered(index);
      break;
    case kRetry:
      retry(index);
      break;
    case kFlap: {
      const Flap& f = w_.faults.flaps[index];
      if (w_.nodes[w_.info[f.link].from].part == self_) ++stats.events;  // the other end's part has the same event
      const std::int32_t back = w_.info[f.link].reverse;
      flap(static_cast<std::uint32_t>(f.link), f.up);
      if (back >= 0) flap(static_cast<std::uint32_t>(back), f.up);
      break;
    }
    case kDetour:
      ++stats.events;
      detour(w_.faults.detours[index]);
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
    for (; link.data.on_wire(); ++link.data.head)
      box.push_back({link.data[link.data.head].time, 2 * l, link.data[link.data.head].frame});
    for (; link.control.on_wire(); ++link.control.head)
      box.push_back({link.control[link.control.head].time, 2 * l + 1, link.control[link.control.head].frame});
    Time start = kForever;
    if (link.stopped == 0) {
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
