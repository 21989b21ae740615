// What a sender hears: ACKs, NACKs, congestion notifications, and its own timeout.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "net/packet/part.h"

namespace wt::net::packet {

void Part::hear(const Frame& frame) {
  Sender& s = w_.senders[frame.pair];
  const auto l = static_cast<std::uint32_t>(s.link);
  advance_on(l, w_.links[l], now_);
  if (frame.kind == Kind::kNotify) {
    ++s.notified;
    w_.control_of(frame.pair).notified(w_.row_of(frame.pair), now_);
  } else {
    heard_ack(frame.pair, s, frame);
  }
  kick(l);
}

void Part::heard_ack(std::uint32_t pair, Sender& s, const Frame& frame) {
  const std::uint32_t before = s.una;
  if (frame.seq > s.una) {
    s.una = frame.seq;
    s.progress = now_;
    s.tries = 0;
    if (s.next < s.una) rewind(s, s.una);  // it had gone back further than it had to
  }
  Ack ack;
  ack.now = now_;
  std::uint32_t stamp = frame.stamp;
  if (w_.telemetry) {
    const Trace& t = trace(frame.stamp);
    stamp = t.stamp;
    ack.hops = std::span<const Hop>(t.hops.data(), t.count);
  }
  ack.rtt = Time{static_cast<std::uint32_t>(static_cast<std::uint32_t>(now_ >> 10) - stamp)} << 10;
  ack.seq = byte_of(pair, s.una);
  ack.bytes = ack.seq - byte_of(pair, before);
  ack.next = byte_of(pair, s.next);
  ack.marked = (frame.flags & kMarked) != 0;
  w_.control_of(pair).acked(w_.row_of(pair), ack);
  drop_trace(frame);
  if (!w_.recover.empty()) {
    heard_out_of_order(pair, s, frame);
  } else if (frame.kind == Kind::kNack) {
    w_.control_of(pair).lost(w_.row_of(pair), now_, false);
    if (frame.seq >= s.una && s.next > s.una) rewind(s, s.una);
  }
  if (s.una == s.total && before != s.total) {
    w_.acked[pair] = now_ + skipped_;
    s.pace = Pace::kDone;
    ended(pair, false);
    return;
  }
  if (w_.gates[pair].window > 0) open(pair);
  if (s.pace == Pace::kBlocked || s.pace == Pace::kIdle) offer(pair);
}

// Selective repeat: holes are sent again, once in each recovery; one begins when a packet further on than `reorder` has arrived.
void Part::heard_out_of_order(std::uint32_t pair, Sender& s, const Frame& frame) {
  Recover& r = w_.recover[pair];
  if (frame.kind == Kind::kNack && static_cast<std::uint32_t>(frame.other) >= s.una)
    r.heard.add(static_cast<std::uint32_t>(frame.other));
  r.heard.forget_below(s.una);
  if (r.on && s.una >= r.until) r.on = false;
  if (r.on || r.heard.top() <= s.una + w_.reorder) return;
  r = {.heard = std::move(r.heard), .again = s.una, .end = 0, .until = s.next, .on = true};
  w_.control_of(pair).lost(w_.row_of(pair), now_, false);
}

void Part::rewind(Sender& s, std::uint32_t to) {
  s.next = to;
  s.in_slice = to % s.per;
}

// The timeout of a pair has run out, or would have if there had been no progress since it was set.
void Part::retry(std::uint32_t pair) {
  Sender& s = w_.senders[pair];
  const auto l = static_cast<std::uint32_t>(s.link);
  advance_on(l, w_.links[l], now_);  // first: what it has sent by now was sent under this timer
  s.timer = false;
  if (s.una == s.next || s.pace == Pace::kDone) return;
  const auto wait = [&] { return w_.timeouts[std::min<std::size_t>(s.tries, w_.timeouts.size() - 1)]; };
  s.timer = true;
  if (now_ < s.progress + wait()) {
    wheel_.insert(s.progress + wait(), id(kRetry, pair));
    return;
  }
  ++stats.events;
  ++stats.timeouts;
  if (++s.tries > w_.options.retries)
    fail("packet engine: lane ", pair, " (", w_.lanes.src[w_.lane_of(pair)], " -> ", w_.lanes.dst[w_.lane_of(pair)],
         ") gave up after ", w_.options.retries, " timeouts without progress at ",
         static_cast<double>(now_ + std::max(w_.faults.origin, std::int64_t{0})) * kPicosecond, " s");
  s.progress = now_;
  wheel_.insert(now_ + wait(), id(kRetry, pair));
  w_.control_of(pair).lost(w_.row_of(pair), now_, true);
  if (w_.recover.empty()) {
    rewind(s, s.una);
  } else {
    Recover& r = w_.recover[pair];
    r = {.heard = std::move(r.heard), .again = s.una, .end = s.next, .until = s.next, .on = true};
  }
  offer(pair);
  kick(l);
}

}  // namespace wt::net::packet
