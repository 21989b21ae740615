#include "net/packet/cc/hpcc.h"

#include <algorithm>

namespace wt::net::packet {

Hpcc::Hpcc(const Values& v, std::int32_t pairs)
    : eta_(v["eta"]),
      rai_(v["rai"]),
      flows_(v["flows"]),
      rmin_(v["rmin"]),
      stages_(static_cast<std::int32_t>(v["stages"])),
      pairs_(static_cast<std::size_t>(pairs)) {}

void Hpcc::begin(std::int32_t pair, Time, const Line& line) {
  Pair p;
  p.round_trip = static_cast<double>(std::max<Time>(line.base_rtt, 1)) * kPicosecond;
  p.rate = line.rate;
  p.window = p.committed = p.most = line.rate * p.round_trip;
  p.mtu = line.mtu;
  pairs_[static_cast<std::size_t>(pair)] = std::move(p);
}

// Brings the load up to date with an ACK's telemetry of as many hops as the last one's.
void Hpcc::measure(Pair& p, std::span<const Hop> hops) const {
  double most = -1.0;
  double seconds = 0.0;
  for (std::size_t h = 0; h < hops.size(); ++h) {
    const Hop& hop = hops[h];
    Past& past = p.past[h];
    const double dt = static_cast<double>(hop.time - past.time) * kPicosecond;
    const double bytes = static_cast<double>(hop.sent - past.sent);
    const double queue = static_cast<double>(std::min(hop.queue, past.queue));
    past = {hop.time, hop.sent, hop.queue};
    if (dt <= 0.0 || bytes < 0.0) continue;                                                    // another port than before
    const double load = (bytes * p.round_trip + queue * dt) / (dt * p.round_trip * hop.rate);  // one division
    if (load > most) {
      most = load;
      seconds = dt;
    }
  }
  if (most >= 0.0) p.load += std::min(seconds / p.round_trip, 1.0) * (most - p.load);
}

void Hpcc::acked(std::int32_t pair, const Ack& ack) {
  Pair& p = pairs_[static_cast<std::size_t>(pair)];
  if (ack.hops.empty()) return;
  const auto hops = static_cast<std::int32_t>(ack.hops.size());
  if (hops != p.hops) {
    p.past = std::make_unique<Past[]>(ack.hops.size());
    p.hops = hops;
    for (std::size_t h = 0; h < ack.hops.size(); ++h) p.past[h] = {ack.hops[h].time, ack.hops[h].sent, ack.hops[h].queue};
    p.updated = ack.next;
    return;
  }
  measure(p, ack.hops);
  const double more = flows_ > 0.0 ? p.most * (1.0 - eta_) / flows_ : rai_ * p.round_trip;
  const bool multiply = p.load >= eta_ || p.stage >= stages_;
  const double wanted = multiply ? p.committed * (eta_ / p.load) + more : p.committed + more;
  p.window = std::clamp(wanted, std::min(rmin_ * p.round_trip, p.most), p.most);
  p.rate = p.window / p.round_trip;
  if (ack.seq > p.updated) {
    p.committed = p.window;
    p.stage = multiply ? 0 : p.stage + 1;
    p.updated = ack.next;
  }
}

Permit Hpcc::permit(std::int32_t pair, Time) {
  const Pair& p = pairs_[static_cast<std::size_t>(pair)];
  return {p.rate, std::max<std::int64_t>(p.mtu, static_cast<std::int64_t>(p.window))};
}

}  // namespace wt::net::packet
