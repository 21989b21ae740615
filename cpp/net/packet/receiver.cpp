// What a receiver does with a packet: go-back-N, ACKs, and congestion notifications.
#include "net/packet/part.h"

namespace wt::net::packet {

void Part::answer(std::uint32_t link, const Frame& frame, Kind kind, Receiver& r) {
  Frame back{.pair = frame.pair, .seq = r.next, .hop = frame.hop, .stamp = frame.stamp, .size = w_.control_size, .kind = kind};
  back.other = static_cast<std::int32_t>(frame.seq);
  back.left = static_cast<std::uint8_t>(w_.senders[frame.pair].hops - 1);
  if (kind != Kind::kNotify) {
    back.flags = r.marked ? kMarked : std::uint8_t{0};
    r.marked = false;
    r.count = 0;
  }
  send_control(static_cast<std::uint32_t>(w_.info[link].reverse), back);
}

void Part::receive(std::uint32_t link, const Frame& frame) {
  Receiver& r = w_.receivers[frame.pair];
  if ((frame.flags & kMarked) != 0) {
    r.marked = true;
    if (w_.notify && now_ - r.notified >= w_.notify_interval) {
      r.notified = now_;
      ++stats.notifications;
      answer(link, frame, Kind::kNotify, r);
    }
  }
  if (frame.seq == r.next) [[likely]] {
    ++r.next;
    arrived_ += frame.size;
    const bool end = ++r.in_slice == r.per || r.next == r.total;
    if (++r.count >= static_cast<std::uint32_t>(w_.options.ack_every) || end) answer(link, frame, Kind::kAck, r);
    if (end) {
      r.in_slice = 0;
      slice_arrived(frame.pair);
    }
    return;
  }
  if (frame.seq < r.next) {  // sent twice
    answer(link, frame, Kind::kAck, r);
    return;
  }
  ++stats.out_of_order;
  if (r.nack_of == r.next && now_ - r.nacked < w_.nack_interval) return;
  r.nack_of = r.next;
  r.nacked = now_;
  answer(link, frame, Kind::kNack, r);
}

}  // namespace wt::net::packet
