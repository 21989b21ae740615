#include "net/packet/part.h"

#include <algorithm>

namespace wt::net::packet {

Part::Part(World& world, std::int32_t self, Time span)
    : w_(world), self_(self), fetches_(world.links.size() > kFewLinks), wheel_(span), pool_(world.pages) {
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

namespace {

// Inline assembly, since gcc drops the builtin where it sees no use of what it brings.
inline void fetch(const void* at) {
#if defined(__x86_64__) && defined(__GNUC__)
  asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(at)));
#elif defined(__GNUC__)
  __builtin_prefetch(at);
#else
  (void)at;
#endif
}

}  // namespace

// What soon comes is brought into the cache in three steps, each of which reads what the one before has brought: the port, the
// packet on it, and the port that the packet goes to.
void Part::fetch_ahead() {
  constexpr std::uint64_t kIndex = (std::uint64_t{1} << 40) - 1;
  if (const std::uint64_t soon = wheel_.ahead(kFar); soon >> 40 == kArrival && soon != 0) {
    const auto l = static_cast<std::uint32_t>((soon & kIndex) >> 1);
    const char* link = reinterpret_cast<const char*>(&w_.links[l]);
    fetch(link);
    fetch(link + 64);
    fetch(&w_.info[l]);
  }
  const auto slot_of = [&](std::uint64_t event) -> const Slot* {
    if (event >> 40 != kArrival || event == 0) return nullptr;
    const auto l = static_cast<std::uint32_t>((event & kIndex) >> 1);
    const std::int32_t cut = w_.info[l].cut;
    if (cut >= 0) {
      const Wire::Side& side = (event & 1) == 0 ? w_.wires[cut].data : w_.wires[cut].control;
      return side.slots + (side.head.load(std::memory_order_relaxed) & side.mask);
    }
    const Ring& ring = (event & 1) == 0 ? w_.links[l].data : w_.links[l].control;
    return ring.slots() == nullptr ? nullptr : &ring[ring.head];
  };
  if (const Slot* slot = slot_of(wheel_.ahead(kNear)); slot != nullptr) fetch(slot);
  const std::uint64_t next = wheel_.ahead(kNext);
  if (const Slot* slot = slot_of(next); slot != nullptr) {
    const Frame& frame = slot->frame;
    const std::size_t hop = std::min<std::size_t>(frame.hop + ((next & 1) == 0 ? 1 : 0), w_.way.size() - 1);
    const std::uint32_t on = w_.way[hop] & ~World::kFirst;
    const char* link = reinterpret_cast<const char*>(&w_.links[on]);
    if ((next & 1) == 0) {
      fetch(link);
      fetch(link + 64);
    }
  }
}

bool Part::run_to(Time limit, std::int64_t& most) {
  while (most-- > 0) {
    if (!wheel_.next(limit, now_, event_)) return false;
    if (fetches_) fetch_ahead();
    const std::uint64_t event = event_;
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
    Wire& wire = w_.wires[w_.info[l].cut];
    const std::int32_t far = w_.nodes[w_.info[l].to].part;
    tell(2 * l, link.data, wire.data, wire.told_data, far);
    tell(2 * l + 1, link.control, wire.control, wire.told_control, far);
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

void Part::tell(std::uint32_t link, Ring& ring, Wire::Side& side, std::uint32_t& told, std::int32_t part) {
  ring.head = side.head.load(std::memory_order_acquire);
  if (!ring.on_wire()) return;
  news.push_back({told == ring.sent ? kForever : ring[told].time, ring.slots(), ring.mask(), ring.sent, link, part});
  told = ring.sent;
}

void Part::take(const Mail& m) {
  Wire& wire = w_.wires[w_.info[m.link / 2].cut];
  Wire::Side& side = (m.link & 1) == 0 ? wire.data : wire.control;
  const std::uint32_t head = side.head.load(std::memory_order_relaxed);
  const bool first = head == side.sent;
  side.slots = m.slots;
  side.mask = m.mask;
  side.sent = m.sent;
  if (first && head != m.sent) wheel_.insert(m.slots[head & m.mask].time, id(kArrival, m.link));
}

}  // namespace wt::net::packet
