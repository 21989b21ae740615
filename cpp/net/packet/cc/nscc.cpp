#include "net/packet/cc/nscc.h"

#include <algorithm>

namespace wt::net::packet {

namespace {

constexpr double kReferenceBytes = 150e3;  // 100 Gb/s x 12 us
constexpr double kReferenceTime = 12e6;    // ps
constexpr std::int32_t kAdjustPackets = 8;

}  // namespace

Nscc::Nscc(const Values& v, std::int32_t pairs)
    : target_(v["target"] / kPicosecond),
      target_rtts_(v["target_rtts"]),
      alpha_(v["alpha"]),
      fi_(v["fi"]),
      eta_(v["eta"]),
      fast_(v["fast"]),
      fast_below_(v["fast_below"] / kPicosecond),
      gamma_(v["gamma"]),
      gain_(v["gain"]),
      qa_delay_(v["qa_delay"]),
      qa_gate_(v["qa_gate"]),
      most_(v["window_most"]),
      pairs_(static_cast<std::size_t>(pairs)) {}

void Nscc::begin(std::int32_t pair, Time now, const Line& line) {
  Pair p;
  p.line = line.rate;
  p.round_trip = std::max<Time>(line.base_rtt, 1);
  p.mtu = std::max(line.mtu, 1);
  const double bytes = line.rate * static_cast<double>(p.round_trip) * kPicosecond;
  p.scale = static_cast<float>(p.mtu * (bytes / kReferenceBytes));
  p.target = static_cast<float>(target_ > 0.0 ? target_ : target_rtts_ * static_cast<double>(p.round_trip));
  p.most = static_cast<float>(std::max(most_ * bytes, static_cast<double>(p.mtu)));
  p.window = p.most;
  p.cut = p.adjusted = now - p.round_trip;
  pairs_[static_cast<std::size_t>(pair)] = p;
}

void Nscc::bound(Pair& p) const { p.window = std::clamp(p.window, static_cast<double>(p.mtu), static_cast<double>(p.most)); }

bool Nscc::quick_adapt(Pair& p, const Ack& ack, double delay) const {
  if (p.ignore > 0.0F) {
    p.ignore -= static_cast<float>(ack.bytes);
    if (ack.marked) return true;
  }
  if (ack.now <= p.adapt) return false;
  const bool late = p.adapt != 0 && (p.losses || delay > qa_delay_ * p.target) && p.achieved < p.most / qa_gate_;
  if (late) {
    p.window = std::min(p.window, static_cast<double>(p.achieved));
    bound(p);
    p.ignore = static_cast<float>(ack.next - ack.seq);
    p.inc = 0.0;
    p.received = 0;
  }
  p.losses = false;
  p.achieved = 0.0F;
  p.adapt = ack.now + p.round_trip + static_cast<Time>(p.target);
  return late;
}

void Nscc::rise(Pair& p, double bytes, double delay) const {
  if (delay < fast_below_) {
    p.empty += static_cast<float>(bytes);
    p.rising = p.rising || p.empty > p.window;
  } else {
    p.empty = 0.0F;
    p.rising = false;
  }
  if (p.rising) {
    p.window += bytes * fast_ * p.scale / p.mtu;
  } else {
    p.inc += bytes * alpha_ * p.scale * (p.target - delay) / kReferenceTime;
  }
}

void Nscc::acked(std::int32_t pair, const Ack& ack) {
  Pair& p = pairs_[static_cast<std::size_t>(pair)];
  const double delay = static_cast<double>(std::max<Time>(ack.rtt - p.round_trip, 0));
  const bool late = delay >= p.target;
  const auto bytes = static_cast<double>(ack.bytes);
  const double sample = !ack.marked && delay > p.target ? 0.25 * static_cast<double>(p.round_trip) : delay;
  p.delay += static_cast<float>(gain_ * (sample - p.delay));
  p.achieved += static_cast<float>(bytes);
  if (quick_adapt(p, ack, delay)) return;
  p.received += static_cast<std::int32_t>(std::min<std::int64_t>(ack.bytes, 1 << 20));
  if (!ack.marked && !late) {
    rise(p, bytes, delay);
  } else if (!ack.marked) {
    p.inc += bytes * fi_ * p.scale;
  } else if (late) {
    p.rising = false;
    p.empty = 0.0F;
    if (p.delay > p.target && ack.now - p.cut > p.round_trip) {
      p.window *= std::max(1.0 - gamma_ * (p.delay - p.target) / p.delay, 0.5);
      p.cut = ack.now;
    }
  }
  bound(p);
  const Time since = ack.now - p.adjusted;
  if (p.received <= kAdjustPackets * p.mtu && since <= p.round_trip) return;
  p.window += p.inc / p.window;
  if (since >= p.round_trip) {
    p.window += eta_ * p.scale;
    p.adjusted = ack.now;
  }
  p.inc = 0.0;
  p.received = 0;
  bound(p);
}

void Nscc::lost(std::int32_t pair, Time, bool) {
  Pair& p = pairs_[static_cast<std::size_t>(pair)];
  p.losses = true;
  p.window -= p.mtu;
  bound(p);
}

Permit Nscc::permit(std::int32_t pair, Time) {
  const Pair& p = pairs_[static_cast<std::size_t>(pair)];
  return {p.line, static_cast<std::int64_t>(p.window)};
}

}  // namespace wt::net::packet
