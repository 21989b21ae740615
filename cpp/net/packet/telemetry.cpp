// What is written down on the way: in-band telemetry of packets, series at an interval, and what links carry over time.
#include "base/check.h"
#include "net/packet/part.h"

namespace wt::net::packet {

std::uint32_t Part::new_trace(Time at) {
  std::uint32_t number = 0;
  if (free_traces_.empty()) {
    Traces& mine = *w_.traces[self_];
    if (mine.full()) fail("packet engine: more than ", Traces::kMostTraces, " packets with telemetry are under way");
    number = (static_cast<std::uint32_t>(self_) << 22) | mine.make();
  } else {
    number = free_traces_.back();
    free_traces_.pop_back();
  }
  Trace& t = trace(number);
  t.stamp = static_cast<std::uint32_t>(at >> 10);
  t.count = 0;
  return number;
}

// Switches write what they know of the port as the packet leaves it.
void Part::note(std::uint32_t l, const Link& link, Time start, const Frame& frame) {
  if (!w_.is_switch(w_.info[l].from)) return;
  Trace& t = trace(frame.stamp);
  if (t.count == Trace::kMost) return;
  t.hops[t.count++] = {.time = start, .sent = link.left, .queue = behind(link, start), .rate = link.rate};
}

// A data frame's service begins; of what waits it is no part any more.
void Part::count(std::uint32_t l, const Link& link, Time start, const Frame& frame) {
  w_.loads[l].sent(start, frame.size, w_.tag_of(frame.pair));
  w_.loads[l].waits(start, link.joined - link.left);
}

void Part::count_control(std::uint32_t l, const Frame& frame) {
  const bool of_lane = frame.kind == Kind::kAck || frame.kind == Kind::kNack || frame.kind == Kind::kNotify;
  w_.loads[l].sent(now_, frame.size, of_lane ? w_.tag_of(frame.pair) : LinkLoad::kNobody);
}

// State at next_sample_: everything before it has happened.
void Part::sample() {
  for (const std::uint32_t column : sample_links_) {
    const auto l = static_cast<std::uint32_t>(w_.options.sample_links[column]);
    Link& link = w_.links[l];
    advance(l, link, next_sample_);
    Track& track = w_.link_tracks[column];
    track.first.push_back(static_cast<double>(link.joined - link.left));
    track.second.push_back(link.left);
    track.third.push_back(link.pauses);
  }
  for (const std::uint32_t column : sample_lanes_) {
    const auto pair = static_cast<std::uint32_t>(w_.options.sample_lanes[column]);
    const Sender& s = w_.senders[pair];
    Track& track = w_.lane_tracks[column];
    if (s.link >= 0) advance_on(static_cast<std::uint32_t>(s.link), w_.links[s.link], next_sample_);
    const bool live = s.begun && s.pace != Pace::kDone;
    track.first.push_back(live ? w_.control_of(pair).permit(w_.row_of(pair), next_sample_).rate : 0.0);
    track.second.push_back(byte_of(pair, s.una));
    track.third.push_back(s.notified);
  }
  next_sample_ += sample_every_;
}

void Part::sample_to(Time end) {
  while (next_sample_ <= end) sample();
}

}  // namespace wt::net::packet
