// Ports: a packet arrives, joins a queue, is served, and is on the wire.
#include <algorithm>

#include "net/packet/part.h"
#include "net/packet/random.h"

namespace wt::net::packet {

void Part::arrive(std::uint32_t l) {
  const LinkInfo& info = w_.info[l];
  Frame frame;
  if (info.cut < 0) [[likely]] {
    Link& link = w_.links[l];
    Ring& ring = link.data;
    if (link.due != now_) [[unlikely]]
      return;
    advance(l, link, now_);
    if (!ring.on_wire() || ring[ring.head].time > now_) [[unlikely]] {  // a control frame or a pause went first
      link.due = kForever;
      arm(l, link);
      return;
    }
    frame = ring[ring.head++].frame;
    if (ring.on_wire()) [[likely]] {
      link.due = ring[ring.head].time;
      wheel_.insert(link.due, id(kArrival, 2 * std::uint64_t{l}));
    } else {
      link.due = kForever;
      arm(l, link);
    }
  } else {
    frame = take_off(w_.wires[info.cut].data, id(kArrival, 2 * std::uint64_t{l}));
  }
  ++stats.events;
  if (w_.lossy_links && lost(l, frame, ++w_.frames[2 * std::size_t{l}])) [[unlikely]]
    return;
  ++stats.data_hops;
  if (!w_.direct.empty() && !follow(l, frame, info.to)) return;
  if (frame.left == 0) {
    receive(l, frame);
    return;
  }
  --frame.left;
  forward(w_.way[++frame.hop], frame, static_cast<std::int32_t>(l));
}

// What arrives over a link that another partition sends on; it sees what it was told of.
Frame Part::take_off(Wire::Side& side, std::uint64_t event) {
  const std::uint32_t head = side.head.load(std::memory_order_relaxed);
  const Frame frame = side.slots[head & side.mask].frame;
  side.head.store(head + 1, std::memory_order_release);
  if (head + 1 != side.sent) wheel_.insert(side.slots[(head + 1) & side.mask].time, event);
  return frame;
}

void Part::forward(std::uint32_t out, Frame frame, std::int32_t in) {
  Link& link = w_.links[out];
  advance(out, link, now_);  // whether it starts at once must not depend on who looked here before
  frame.other = in;
  if ((link.stopped & kDown) != 0) [[unlikely]] {
    ++stats.losses;
    drop_trace(frame);
    if (w_.nodes[w_.info[out].from].loss == Loss::kCredits) give_back(in, frame.size);
    return;
  }
  if (!admit(out, frame, in)) [[unlikely]] {
    ++stats.drops;
    drop_trace(frame);
    return;
  }
  const bool first = !link.data.waiting();
  link.joined += frame.size;
  push(out, link.data, now_, frame);
  if (first && link.free <= now_ && link.stopped == 0) {
    commit(out, link, now_);
  } else {
    link.peak = std::max(link.peak, link.joined - link.left);
    if (w_.counts) [[unlikely]]
      w_.loads[out].waits(now_, link.joined - link.left);
  }
  if (link.due == kForever) arm(out, link);
  if (w_.nodes[w_.info[out].from].watched) [[unlikely]]
    watch_from(out, link);
}

void Part::advance_on(std::uint32_t l, Link& link, Time limit) {
  if (link.source >= 0) {
    advance_source(l, link, limit);
    return;
  }
  while (link.data.waiting() && link.stopped == 0) {
    const Time start = std::max(link.data[link.data.sent].time, link.free);
    if (start >= limit) return;
    commit(l, link, start);
  }
}

void Part::commit(std::uint32_t l, Link& link, Time start) {
  Slot& slot = link.data[link.data.sent];
  link.left += slot.frame.size;
  if (link.joined - link.left > link.kmin) mark(l, link, start, slot);
  if (w_.telemetry) note(l, link, start, slot.frame);
  if (w_.counts) [[unlikely]]
    count(l, link, start, slot.frame);
  ++link.data.sent;
  link.free = start + serial(link.cost, slot.frame.size);
  slot.time = link.free + link.latency;
  if (link.credits != INT64_MAX) [[unlikely]] {
    link.credits -= slot.frame.size;
    if (link.credits < w_.full) halt(link, kNoCredit, start);
  }
  if (slot.frame.other >= 0) release(slot.frame, w_.info[l].from);  // last: it may lead back here
}

// Bytes that waited behind a packet when its service began, at `start`: what joined at that very moment does not count.
std::int64_t Part::behind(const Link& link, Time start) const {
  std::int64_t bytes = link.joined - link.left;
  for (std::uint32_t i = link.data.tail; i != link.data.sent + 1;) {
    const Slot& slot = link.data[--i];
    if (slot.time < start) break;
    bytes -= slot.frame.size;
  }
  return bytes;
}

void Part::mark(std::uint32_t l, const Link& link, Time start, Slot& slot) {
  const std::int64_t bytes = behind(link, start);
  if (bytes <= link.kmin) return;
  if (bytes <= link.kmax) {
    const double p = link.pmax * static_cast<double>(bytes - link.kmin) / static_cast<double>(link.kmax - link.kmin);
    if (uniform(w_.options.seed, l, link.data.sent) >= p) return;
  }
  slot.frame.flags |= kMarked;
  ++stats.marks;
}

// The event of the first packet on the wire; if none is, of the earliest arrival that there can be.
void Part::arm(std::uint32_t l, Link& link) {
  if (w_.info[l].cut >= 0) {
    if (!link.dirty) dirty_.push_back(l);
    link.dirty = true;
    return;
  }
  const Ring& ring = link.data;
  if (ring.on_wire()) {
    link.due = ring[ring.head].time;
    wheel_.insert(link.due, id(kArrival, 2 * std::uint64_t{l}));
  } else if (link.stopped != 0) {
    return;
  } else if (ring.waiting()) {
    const Slot& slot = ring[ring.sent];
    link.due = std::max(slot.time, link.free) + serial(link.cost, slot.frame.size) + link.latency;
    wheel_.insert(link.due, id(kArrival, 2 * std::uint64_t{l}));
  } else if (link.source >= 0) {
    Source& source = w_.sources[link.source];
    const Time at = next_own(source, link);
    if (at >= source.wake) return;
    source.wake = at;
    wheel_.insert(at, id(kWatch, l));
  }
}

// The start of a service that something waits for: a source's packet, or buffer space for a paused ingress.
void Part::watch(std::uint32_t l) {
  Link& link = w_.links[l];
  link.watched = false;
  if (link.source >= 0 && w_.sources[link.source].wake <= now_) w_.sources[link.source].wake = kForever;
  advance(l, link, now_ + 1);
  if (link.due == kForever) arm(l, link);
  if (w_.nodes[w_.info[l].from].watched) watch_from(l, link);
}

void Part::watch_from(std::uint32_t l, Link& link) {
  if (link.watched || link.stopped != 0 || !link.data.waiting()) return;
  wheel_.insert(std::max({link.data[link.data.sent].time, link.free, now_}), id(kWatch, l));
  link.watched = true;
}

// Control frames go before all data that has not begun, behind each other.
void Part::send_control(std::uint32_t out, Frame frame) {
  Link& link = w_.links[out];
  if ((link.stopped & kDown) != 0) [[unlikely]] {
    ++stats.losses;
    drop_trace(frame);
    return;
  }
  advance(out, link, now_);
  link.free = std::max(link.free, now_) + serial(link.cost, frame.size);
  link.control_bytes += frame.size;
  if (w_.counts) [[unlikely]]
    count_control(out, frame);
  const bool first = !link.control.on_wire();
  const Time time = link.free + link.latency;
  push(out, link.control, time, frame);
  ++link.control.sent;
  if (w_.info[out].cut >= 0) {
    if (!link.dirty) dirty_.push_back(out);
    link.dirty = true;
  } else if (first) {
    wheel_.insert(time, id(kArrival, 2 * std::uint64_t{out} + 1));
  }
}

void Part::arrive_control(std::uint32_t l) {
  const LinkInfo& info = w_.info[l];
  Frame frame;
  if (info.cut < 0) [[likely]] {
    Ring& ring = w_.links[l].control;
    frame = ring[ring.head++].frame;
    if (ring.on_wire()) wheel_.insert(ring[ring.head].time, id(kArrival, 2 * std::uint64_t{l} + 1));
  } else {
    frame = take_off(w_.wires[info.cut].control, id(kArrival, 2 * std::uint64_t{l} + 1));
  }
  ++stats.events;
  if (w_.lossy_links && lost(l, frame, ++w_.frames[2 * std::size_t{l} + 1])) [[unlikely]]
    return;
  if (frame.kind == Kind::kAck || frame.kind == Kind::kNack) {
    ++stats.ack_hops;
  } else {
    ++stats.control_hops;
    if (frame.kind == Kind::kPause || frame.kind == Kind::kResume) {
      stop(static_cast<std::uint32_t>(info.reverse), kPaused, frame.kind == Kind::kPause);
      return;
    }
    if (frame.kind == Kind::kCredit) {
      grant(static_cast<std::uint32_t>(info.reverse), frame.other);
      return;
    }
  }
  if ((w_.way[frame.hop] & World::kFirst) != 0) {
    hear(frame);
    return;
  }
  --frame.hop;
  send_control(static_cast<std::uint32_t>(w_.info[w_.way[frame.hop] & ~World::kFirst].reverse), frame);
}

}  // namespace wt::net::packet
