// Slices of lanes: which may be sent, and what their arrival sets free.
#include <algorithm>

#include "net/packet/part.h"

namespace wt::net::packet {

void Part::start(std::span<const std::uint32_t> lanes, Time from) {
  for (const std::uint32_t lane : lanes) wheel_.insert(std::max(from, w_.gates[lane].begin), id(kBegin, lane));
}

// A lane was delivered, or its sender has the last ACK.
void Part::ended(std::uint32_t lane, bool all_delivered) {
  ++finished_;
  if (!w_.copy_of.empty()) ended_lanes.push_back({now_, event_, w_.instance[lane], all_delivered});
}

// Opens the gate as far as dependencies and credits allow.
void Part::open(std::uint32_t lane) {
  Gate& gate = w_.gates[lane];
  if (now_ < gate.begin || gate.open == gate.slices) return;
  std::int64_t can = gate.slices;
  const std::uint32_t row = w_.lane_of(lane), copied = lane - row;  // a copy depends on copies
  for (std::int64_t d = w_.lanes.dep_start[row]; d < w_.lanes.dep_start[row + 1]; ++d) {
    const std::uint32_t on = static_cast<std::uint32_t>(w_.lanes.dep_lane[d]) + copied;
    const std::int64_t have = slices_in(on), lead = w_.lanes.dep_lead[d];
    if (have == w_.gates[on].slices) continue;
    can = std::min(can, lead == kAll ? 0 : have + std::max<std::int64_t>(lead, -have));
  }
  if (gate.window > 0) {
    const Sender& s = w_.senders[lane];
    if (s.una != s.total) can = std::min(can, std::int64_t{s.una / s.per} + gate.window);
  }
  if (can <= gate.open) return;
  const std::int64_t more = can - gate.open;
  gate.open = can;
  if (gate.delay == 0) {
    let(lane, more);
    return;
  }
  w_.pending[lane].push_back(static_cast<std::uint32_t>(more));
  wheel_.insert(now_ + gate.delay, id(kReady, lane));
}

void Part::let(std::uint32_t lane, std::int64_t slices) {
  Gate& gate = w_.gates[lane];
  Sender& s = w_.senders[lane];
  if (s.hops > 0) advance_on(static_cast<std::uint32_t>(s.link), w_.links[s.link], now_);  // so far by the old limit
  gate.let += slices;
  s.limit = gate.let == gate.slices ? s.total : static_cast<std::uint32_t>(gate.let) * s.per;
  if (s.hops > 0) {
    offer(lane);
    kick(static_cast<std::uint32_t>(s.link));
    return;
  }
  // to itself: no link, no time
  arrived_ += byte_of(lane, s.limit) - byte_of(lane, s.una);
  s.next = s.una = w_.receivers[lane].next = s.limit;
  if (s.una == s.total) {
    w_.acked[lane] = now_ + skipped_;
    ended(lane, false);
  }
  for (std::int64_t i = 0; i < slices; ++i) slice_delivered(lane);
  if (gate.window > 0) open(lane);
}

// When the slice that a packet ends is delivered. Where its lane has a hold, not before the lane's rate would have sent it as well,
// counted from when the lane let the packet go.
Time Part::delivery_of(const Frame& frame) {
  if (w_.hold.empty()) return now_;
  const std::uint32_t stamp = w_.telemetry ? trace(frame.stamp).stamp : frame.stamp, row = w_.lane_of(frame.pair);
  const Time unit = (now_ >> 10) - static_cast<std::uint32_t>(static_cast<std::uint32_t>(now_ >> 10) - stamp);
  const Time left = (unit << 10) + (1 << 9);  // the middle of what the stamp says
  return std::max(now_, left + gap(frame.size, w_.lanes.rate[row]) + w_.hold[row]);
}

void Part::slice_delivered(std::uint32_t lane) {
  ++w_.receivers[lane].slices;
  if (lane == pace_lane_ && slices_in(lane) >= pace_from_ && (slices_in(lane) - pace_from_) % pace_window_ == 0) [[unlikely]] {
    marks_.push_back({now_, std::vector<std::int64_t>(w_.gates.size())});
    for (std::uint32_t i = 0; i < w_.gates.size(); ++i) marks_.back().slices[i] = slices_in(i);
    if (marks_.size() > 4) marks_.erase(marks_.begin());
  }
  if (slices_in(lane) == w_.gates[lane].slices) {
    w_.delivered[lane] = now_ + skipped_;
    ended(lane, true);
  }
  const std::uint32_t row = w_.lane_of(lane), copied = lane - row;
  for (std::int64_t i = w_.after_start[row]; i < w_.after_start[row + 1]; ++i)
    open(static_cast<std::uint32_t>(w_.after[i]) + copied);
}

}  // namespace wt::net::packet
