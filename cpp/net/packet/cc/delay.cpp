#include "net/packet/cc/delay.h"

#include <algorithm>
#include <cmath>

namespace wt::net::packet {

DelayRule::DelayRule(const Values& v)
    : base(v["base"] / kPicosecond),
      base_rtts(v["base_rtts"]),
      hop(v["hop"] / kPicosecond),
      fs_range(v["fs_range"] / kPicosecond),
      fa(fs_range / (1.0 / std::sqrt(v["least"]) - 1.0 / std::sqrt(v["fs_most"]))),
      fb(-fa / std::sqrt(v["fs_most"])),
      least(v["least"]),
      ai(v["ai"]),
      b(v["b"]),
      keep(1.0 - v["mdf"]),
      retries(static_cast<std::int32_t>(v["retries"])) {}

void DelayWindow::begin(const DelayRule& rule, Time now, const Line& line) {
  *this = {};
  mtu_ = std::max(1.0, static_cast<double>(line.mtu));
  rtt_ = std::max(1.0, static_cast<double>(line.base_rtt));
  fixed_ = std::max(rule.base, rule.base_rtts * rtt_) + rule.hop * line.hops;
  const double packets_in_time = line.rate * kPicosecond / mtu_;  // a picosecond
  most_ = std::max(packets_in_time * std::max(fixed_, rtt_), rule.least);
  packets_ = std::clamp(packets_in_time * rtt_, rule.least, most_);
  cut_ = now - line.base_rtt;
}

double DelayWindow::target(const DelayRule& rule) const {
  return fixed_ + std::clamp(rule.fa / std::sqrt(packets_) + rule.fb, 0.0, rule.fs_range);
}

double DelayWindow::acked(const DelayRule& rule, const Ack& ack) {
  rtt_ = std::max(1.0, static_cast<double>(ack.rtt));
  if (ack.bytes > 0) timeouts_ = 0;
  const double aim = target(rule);
  if (rtt_ < aim) {
    const double gain = rule.ai * static_cast<double>(ack.bytes) / mtu_;
    const double before = packets_;
    packets_ = std::min(packets_ + (packets_ >= 1.0 ? gain / packets_ : gain), most_);
    return packets_ - before;
  }
  cut(rule, ack.now, std::max(1.0 - rule.b * (rtt_ - aim) / rtt_, rule.keep));
  return 0.0;
}

void DelayWindow::lost(const DelayRule& rule, Time now, bool timed_out) {
  timeouts_ = timed_out ? timeouts_ + 1 : 0;
  if (timeouts_ > rule.retries) {
    packets_ = rule.least;
    cut_ = now;
  } else {
    cut(rule, now, rule.keep);
  }
}

void DelayWindow::cut(const DelayRule& rule, Time now, double factor) {
  if (static_cast<double>(now - cut_) < rtt_) return;
  packets_ = std::max(packets_ * factor, rule.least);
  cut_ = now;
}

}  // namespace wt::net::packet
