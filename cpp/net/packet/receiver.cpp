// What a receiver does with a packet: accepts it in order (go-back-N) or in any order (selective repeat), ACKs, notifies of marks.
#include "net/packet/part.h"

namespace wt::net::packet {

// ACK, NACK or CNP for a packet, on the path of its lane: a packet that chose its way may have come over another link. ACKs and
// NACKs take over the packet's trace.
void Part::answer(const Frame& frame, Kind kind, Receiver& r) {
  Frame back = local(kind);
  back.pair = frame.pair;
  back.seq = r.next;
  back.hop = frame.hop;
  back.other = static_cast<std::int32_t>(frame.seq);
  if (kind != Kind::kNotify) {
    back.stamp = frame.stamp;
    back.flags = r.marked ? kMarked : std::uint8_t{0};
    r.marked = false;
    r.count = 0;
  }
  send_control(static_cast<std::uint32_t>(w_.info[w_.way[frame.hop] & ~World::kFirst].reverse), back);
}

void Part::receive(std::uint32_t link, const Frame& frame) {
  Receiver& r = w_.receivers[frame.pair];
  if ((frame.flags & kMarked) != 0) {
    r.marked = true;
    Time& last = w_.port_notified.empty() ? r.notified : w_.port_notified[link];
    if (w_.notify && now_ - last >= w_.notify_interval) {
      last = now_;
      ++stats.notifications;
      answer(frame, Kind::kNotify, r);
    }
  }
  const bool selective = !w_.arrived.empty();
  if (frame.seq == r.next) [[likely]] {
    const Time due = r.in_slice + 1 == r.per || r.next + 1 == r.total ? delivery_of(frame) : now_;
    std::uint32_t ends = step(r) ? 1 : 0;
    if (selective && w_.arrived[frame.pair].top() > r.next) {
      Known& known = w_.arrived[frame.pair];
      while (known.has(r.next)) ends += step(r) ? 1 : 0;
      known.forget_below(r.next);
    }
    arrived_ += frame.size;
    if (++r.count >= static_cast<std::uint32_t>(w_.options.ack_every) || ends > 0) {
      answer(frame, Kind::kAck, r);
    } else {
      drop_trace(frame);
    }
    for (; ends > 0; --ends) {
      if (due == now_) {
        slice_delivered(frame.pair);
      } else {
        wheel_.insert(due, id(kDelivered, frame.pair));
      }
    }
    return;
  }
  if (frame.seq < r.next || (selective && w_.arrived[frame.pair].has(frame.seq))) {
    ++stats.repeats;
    answer(frame, Kind::kAck, r);
    return;
  }
  ++stats.out_of_order;
  if (selective) {
    w_.arrived[frame.pair].add(frame.seq);
    arrived_ += frame.size;
    answer(frame, Kind::kNack, r);
    return;
  }
  if (r.nack_of == r.next && now_ - r.nacked < w_.nack_interval) {
    drop_trace(frame);
    return;
  }
  r.nack_of = r.next;
  r.nacked = now_;
  answer(frame, Kind::kNack, r);
}

// Takes the packet that is expected; true at the end of a slice.
bool Part::step(Receiver& r) {
  ++r.next;
  if (++r.in_slice < r.per && r.next != r.total) return false;
  r.in_slice = 0;
  return true;
}

}  // namespace wt::net::packet
