// A port where lanes start: it pulls the next packet from its queue pairs when it is free, in turn, each at its pace.
#include <algorithm>
#include <functional>

#include "net/packet/part.h"

namespace wt::net::packet {

Time Part::next_own(const Source& source, const Link& link) {
  if (source.head != source.tail) return std::max(link.free, source.since);
  return source.later.empty() ? kForever : std::max(link.free, source.later.front().time);
}

// Its own packets are taken straight into service while nothing else waits; beside forwarded packets (a GPU or NIC that also
// relays) one of its own at a time stands in the common queue.
void Part::advance_source(std::uint32_t l, Link& link, Time limit) {
  Source& source = w_.sources[link.source];
  while (link.stopped == 0) {
    if (!link.data.waiting()) {
      const Time at = next_own(source, link);
      if (at >= limit) return;
      if (!pull(l, link, source, at, at)) continue;
      if (at > source.over) ++stats.events;  // nothing was on the wire: it took an event to wake the source
    } else if (!source.queued && next_own(source, link) < kForever) {
      const Time at = std::max(source.last, source.head != source.tail ? source.since : source.later.front().time);
      const Time joined = std::max(at, link.data[link.data.tail - 1].time);
      const Time first = std::max(link.data[link.data.sent].time, link.free);  // what has begun by then does not wait any more
      if (joined < std::min(first, limit) && pull(l, link, source, at, joined)) {
        source.queued = true;
        continue;
      }
    }
    const Slot& slot = link.data[link.data.sent];
    const Time start = std::max(slot.time, link.free);
    if (start >= limit) return;
    if (slot.frame.other < 0) {
      source.queued = false;
      source.last = start;
      source.over = start + serial(link.cost, slot.frame.size) + link.latency;
    }
    commit(l, link, start);
  }
}

// Moves one packet of the pair whose turn it is at the end of the queue; false if none may send after all.
bool Part::pull(std::uint32_t l, Link& link, Source& source, Time at, Time joined) {
  while (!source.later.empty() && source.later.front().time <= at) {
    const std::uint32_t pair = source.later.front().pair;
    std::pop_heap(source.later.begin(), source.later.end(), std::greater<>());
    source.later.pop_back();
    Sender& s = w_.senders[pair];
    if (static_cast<std::uint32_t>(s.link) != l) continue;  // it has moved to another port
    if (s.ready > at) {                                     // congestion control may have raised the rate since
      const Permit permit = w_.control_of(pair).permit(w_.row_of(pair), at);
      s.ready = s.sent + gap(s.size, std::min(permit.rate, s.rate));
      if (s.ready > at) {
        wait(source, pair, std::min(s.ready, std::max(permit.until, at + 1)));
        continue;
      }
    }
    push_ready(source, pair);
  }
  while (source.head != source.tail) {
    const std::uint32_t pair = source.ready[source.head++ & (source.ready.size() - 1)];
    Sender& s = w_.senders[pair];
    if (static_cast<std::uint32_t>(s.link) != l || s.pace == Pace::kDone) continue;
    const std::uint32_t seq = next_packet(pair, s);
    if (seq == kNothing) {
      s.pace = Pace::kIdle;
      continue;
    }
    if (!s.begun) begin_pair(pair, at);
    const Permit permit = w_.control_of(pair).permit(w_.row_of(pair), at);
    const std::uint32_t in_slice = seq == s.next ? s.in_slice : seq % s.per;
    const std::uint16_t payload = seq + 1 == s.total      ? s.last
                                  : in_slice + 1 == s.per ? s.tail
                                                          : static_cast<std::uint16_t>(w_.options.mtu);
    if (seq == s.next && permit.window != kNoWindow && s.next != s.una &&
        byte_of(pair, s.next) - byte_of(pair, s.una) + payload > permit.window) {
      s.pace = Pace::kBlocked;
      continue;
    }
    Frame frame;
    frame.pair = pair;
    frame.seq = seq;
    frame.hop = s.hop;
    frame.size = static_cast<std::uint16_t>(std::max(1, payload + w_.options.header));
    if (payload == 0) frame.size = std::max(frame.size, w_.control_size);
    // A lane's own rate holds on average: what the port made it wait it may catch up, by one packet at a time.
    const Time spacing = gap(frame.size, std::min(permit.rate, s.rate));
    const Time paced = permit.rate < s.rate ? at : std::max(s.ready, at - spacing);
    const Time left = w_.hold.empty() ? at : paced;  // holds count from when the lane let it go
    frame.stamp = w_.telemetry ? new_trace(left) : static_cast<std::uint32_t>(left >> 10);
    frame.left = static_cast<std::uint8_t>(s.hops - 1);
    if (s.next == s.una) s.progress = at;
    if (seq < s.high) ++stats.retransmits;
    if (seq == s.next) {
      ++s.next;
      s.high = std::max(s.high, s.next);
      s.in_slice = s.in_slice + 1 == s.per ? 0 : s.in_slice + 1;
    } else {
      w_.recover[pair].again = seq + 1;
    }
    if (!s.timer) {
      s.timer = true;
      wheel_.insert(std::max(now_, at + w_.timeouts[std::min<std::size_t>(s.tries, w_.timeouts.size() - 1)]), id(kRetry, pair));
    }
    w_.control_of(pair).sent(w_.row_of(pair), at, frame.size);
    s.sent = at;
    s.size = frame.size;
    s.ready = paced + spacing;
    if (next_packet(pair, s) == kNothing) {
      s.pace = Pace::kIdle;
    } else if (s.ready <= at + serial(link.cost, frame.size)) {
      push_ready(source, pair);
    } else {
      wait(source, pair, std::min(s.ready, std::max(permit.until, at + 1)));
    }
    link.joined += frame.size;
    push(l, link.data, joined, frame);
    return true;
  }
  return false;
}

void Part::push_ready(Source& source, std::uint32_t pair) {
  const auto capacity = static_cast<std::uint32_t>(source.ready.size());
  if (source.tail - source.head == capacity) {
    std::vector<std::uint32_t> bigger(capacity == 0 ? 2 : 2 * std::size_t{capacity});
    for (std::uint32_t i = source.head; i != source.tail; ++i) bigger[i & (bigger.size() - 1)] = source.ready[i & (capacity - 1)];
    source.ready = std::move(bigger);
  }
  source.ready[source.tail++ & (source.ready.size() - 1)] = pair;
  w_.senders[pair].pace = Pace::kReady;
}

// A pair that was idle or blocked has something that it may send.
void Part::offer(std::uint32_t pair) {
  Sender& s = w_.senders[pair];
  if ((s.pace != Pace::kIdle && s.pace != Pace::kBlocked) || next_packet(pair, s) == kNothing) return;
  Source& source = w_.sources[w_.links[s.link].source];
  if (s.ready <= now_) {
    s.ready = now_;  // nothing to catch up: it had nothing to send
    source.since = now_;
    push_ready(source, pair);
    return;
  }
  wait(source, pair, s.ready);
}

void Part::wait(Source& source, std::uint32_t pair, Time until) {
  w_.senders[pair].pace = Pace::kLater;
  source.later.push_back({until, pair});
  std::push_heap(source.later.begin(), source.later.end(), std::greater<>());
}

// The packet that a pair would send next: a hole while it recovers, else new data.
std::uint32_t Part::next_packet(std::uint32_t pair, const Sender& s) {
  if (!w_.recover.empty() && w_.recover[pair].on) {
    Recover& r = w_.recover[pair];
    r.again = std::max(r.again, s.una);
    const std::uint32_t end = std::min(std::max(r.end, r.heard.top()), s.next);
    while (r.again < end && r.heard.has(r.again)) ++r.again;
    if (r.again < end) return r.again;
  }
  return s.next < s.limit ? s.next : kNothing;
}

// After anything that happened at a source's node: what may start now starts.
void Part::kick(std::uint32_t l) {
  Link& link = w_.links[l];
  advance_on(l, link, now_ + 1);
  if (link.due == kForever) arm(l, link);
}

void Part::begin_pair(std::uint32_t pair, Time at) {
  Sender& s = w_.senders[pair];
  s.begun = true;
  const auto full = static_cast<std::uint64_t>(w_.options.mtu + w_.options.header);
  // A lane that its sender paces has no more than that to control.
  Line line{.rate = std::min(w_.links[s.link].rate, s.rate), .base_rtt = 0, .hops = s.hops, .mtu = w_.options.mtu};
  for (std::uint32_t i = s.hop; i < s.hop + s.hops; ++i) {
    const Link& out = w_.links[w_.way[i] & ~World::kFirst];
    const Link& back = w_.links[w_.info[w_.way[i] & ~World::kFirst].reverse];
    line.rate = std::min(line.rate, out.rate);
    line.base_rtt += serial(out.cost, full) + out.latency + serial(back.cost, w_.control_size) + back.latency;
  }
  w_.control_of(pair).begin(w_.row_of(pair), at, line);
}

// Payload bytes before a packet of a lane.
std::int64_t Part::byte_of(std::uint32_t pair, std::uint32_t packet) const {
  const Sender& s = w_.senders[pair];
  if (packet >= s.total) return w_.lanes.bytes[w_.lane_of(pair)];
  if (packet < s.per) return std::int64_t{packet} * w_.options.mtu;
  return std::int64_t{packet / s.per} * w_.lanes.slice[w_.lane_of(pair)] + std::int64_t{packet % s.per} * w_.options.mtu;
}

}  // namespace wt::net::packet
