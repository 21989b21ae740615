// A closed loop in a page: senders of equal lines share one port with one FIFO that marks, reports telemetry and never drops.
// Enough of a network to see whether an algorithm converges, and independent of the packet engine.
#pragma once

#include <algorithm>
#include <deque>
#include <limits>
#include <queue>
#include <vector>

#include "tests/cc_drive.h"

namespace drive {

struct Marking {
  double kmin = 1600e3;  // B, the HPCC fork's at 400G
  double kmax = 6400e3;
  double pmax = 0.2;
};

// What NVIDIA's Ethernet switches set for RoCE, and SimAI at 400G.
inline constexpr Marking kSpectrum{150e3, 1500e3, 1.0};
inline constexpr Marking kSimai{800e3, 3200e3, 0.2};

struct Flow {
  Time begin = 0;
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
  Time end = 0;                // when the last byte was acknowledged
  std::int64_t delivered = 0;  // bytes acknowledged
  std::int64_t sent = 0;
  Time last = 0;                                      // its last packet left
  bool waiting = false;                               // for an ACK to open the window
  Time heard = std::numeric_limits<Time>::min() / 2;  // the receiver's last notification
  std::int64_t turn = 0;                              // only the latest wake-up counts
};

class Loop {
 public:
  Loop(std::string_view algorithm, const Settings& settings, std::vector<Flow> flows, const Marking& marking = {},
       Line line = line400())
      : flows_(std::move(flows)),
        marking_(marking),
        line_(line),
        control_(make_control(algorithm, settings, static_cast<std::int32_t>(flows_.size()))) {
    for (std::size_t f = 0; f < flows_.size(); ++f) {
      control_->begin(static_cast<std::int32_t>(f), flows_[f].begin, line_);
      flows_[f].last = flows_[f].begin - 1'000'000'000'000;
      push({flows_[f].begin, kWake, f, ++flows_[f].turn});
    }
  }

  void run(Time until) {
    while (!events_.empty() && events_.top().time <= until) {
      const Event e = events_.top();
      events_.pop();
      now_ = e.time;
      if (e.kind == kWake) wake(e.flow, e.value);
      if (e.kind == kArrive) arrive({e.flow, e.value, now_});
      if (e.kind == kDepart) depart();
      if (e.kind == kAck) ack(e);
      if (e.kind == kNotify) control_->notified(static_cast<std::int32_t>(e.flow), now_);
    }
    now_ = until;
  }

  [[nodiscard]] const std::vector<Flow>& flows() const { return flows_; }
  [[nodiscard]] double rate(std::size_t f) { return control_->permit(static_cast<std::int32_t>(f), now_).rate; }
  [[nodiscard]] std::int64_t queue() const { return queued_; }
  [[nodiscard]] std::int64_t delivered() const {
    std::int64_t sum = 0;
    for (const Flow& f : flows_) sum += f.delivered;
    return sum;
  }

 private:
  enum Kind { kWake, kArrive, kDepart, kAck, kNotify };
  struct Event {
    Time time;
    Kind kind;
    std::size_t flow;
    std::int64_t value = 0;  // turn, or the time the packet was sent
    bool marked = false;
    Hop hop{};
    std::int64_t order = 0;
    bool operator<(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
  };
  struct Packet {
    std::size_t flow;
    std::int64_t sent;
    Time arrived;
  };

  void push(Event e) {
    e.order = ++order_;
    events_.push(e);
  }
  [[nodiscard]] Time gap(double rate) const { return static_cast<Time>(line_.mtu / rate * 1e12); }
  [[nodiscard]] Time way() const { return (line_.base_rtt - gap(line_.rate)) / 2; }  // one way, without the port's own time

  void wake(std::size_t f, std::int64_t turn) {
    Flow& flow = flows_[f];
    if (turn != flow.turn || flow.sent >= flow.bytes) return;
    const Permit p = control_->permit(static_cast<std::int32_t>(f), now_);
    const Time next = flow.last + gap(std::min(p.rate, line_.rate));
    if (next > now_) {
      push({std::min(next, std::max(p.until, now_ + 1)), kWake, f, ++flow.turn});
      return;
    }
    const std::int64_t out = flow.sent - flow.delivered;
    flow.waiting = out > 0 && out + line_.mtu > p.window;
    if (flow.waiting) return;
    flow.sent += line_.mtu;
    flow.last = now_;
    control_->sent(static_cast<std::int32_t>(f), now_, line_.mtu);
    push({now_ + way(), kArrive, f, now_});
    push({now_ + gap(line_.rate), kWake, f, ++flow.turn});
  }

  void arrive(const Packet& p) {
    fifo_.push_back(p);
    queued_ += line_.mtu;
    if (fifo_.size() == 1) push({now_ + gap(line_.rate), kDepart, 0});
  }

  void depart() {
    const Packet p = fifo_.front();
    fifo_.pop_front();
    queued_ -= line_.mtu;
    through_ += line_.mtu;
    if (!fifo_.empty()) push({now_ + gap(line_.rate), kDepart, 0});
    const double q = static_cast<double>(queued_);
    const double chance = q <= marking_.kmin  ? 0.0
                          : q > marking_.kmax ? 1.0
                                              : marking_.pmax * (q - marking_.kmin) / (marking_.kmax - marking_.kmin);
    random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
    const bool marked = static_cast<double>(random_ >> 11) * 0x1p-53 < chance;
    Event e{now_ + way(), kAck, p.flow, p.sent, marked, {now_, through_, queued_, line_.rate}};
    push(e);
    Flow& flow = flows_[p.flow];
    Time& heard = control_->notifications_per_port() ? heard_ : flow.heard;
    if (marked && control_->wants_notifications() && now_ - heard >= control_->notification_interval()) {
      heard = now_;
      push({now_ + way(), kNotify, p.flow});
    }
  }

  void ack(const Event& e) {
    Flow& flow = flows_[e.flow];
    flow.delivered += line_.mtu;
    if (flow.delivered >= flow.bytes) flow.end = now_;
    Ack a;
    a.now = now_;
    a.rtt = now_ - e.value;
    a.bytes = line_.mtu;
    a.seq = flow.delivered;
    a.next = flow.sent;
    a.marked = e.marked;
    if (control_->wants_telemetry()) a.hops = {&e.hop, 1};
    control_->acked(static_cast<std::int32_t>(e.flow), a);
    if (flow.waiting) push({now_, kWake, e.flow, ++flow.turn});
  }

  std::vector<Flow> flows_;
  Marking marking_;
  Line line_;
  std::unique_ptr<Control> control_;
  std::priority_queue<Event> events_;
  std::deque<Packet> fifo_;
  Time now_ = 0;
  std::int64_t queued_ = 0;
  std::int64_t through_ = 0;
  std::int64_t order_ = 0;
  std::uint64_t random_ = 1;
  Time heard_ = std::numeric_limits<Time>::min() / 2;  // last notification of any flow
};

struct Share {
  double used;      // of the port
  double fairness;  // Jain's index
  double queue;     // B, mean
};

// What 8 flows that start together get of a 400 Gb/s port between 4 and 8 ms.
inline Share share(std::string_view algorithm, const Settings& settings, const Marking& marking = {}) {
  Loop loop(algorithm, settings, std::vector<Flow>(8), marking);
  loop.run(4000 * kUs);
  const std::vector<Flow> before = loop.flows();
  double queue = 0.0;
  for (int n = 1; n <= 400; ++n) {
    loop.run((4000 + 10 * n) * kUs);
    queue += static_cast<double>(loop.queue()) / 400;
  }
  double sum = 0.0;
  double squares = 0.0;
  for (std::size_t f = 0; f < before.size(); ++f) {
    const auto got = static_cast<double>(loop.flows()[f].delivered - before[f].delivered);
    sum += got;
    squares += got * got;
  }
  return {sum / (400 * kGb * 4e-3), sum * sum / (8 * squares), queue};
}

// Seconds until the last of eight flows, the others of 4 MiB, sends at 90 % of the line once it is alone; 1 if not within 0.1 s.
inline double recovery(std::string_view algorithm, const Settings& settings, const Marking& marking = {}) {
  std::vector<Flow> flows(8);
  for (std::size_t f = 1; f < 8; ++f) flows[f].bytes = 4 << 20;
  Loop loop(algorithm, settings, flows, marking);
  Time done = 0;
  for (Time t = 0; t <= 100'000; t += 10) {
    loop.run(t * kUs);
    bool alone = true;
    for (std::size_t f = 1; f < 8; ++f) alone = alone && loop.flows()[f].end > 0;
    if (!alone) continue;
    if (done == 0) done = t;
    if (loop.rate(0) >= 0.9 * 400 * kGb) return static_cast<double>(t - done) * 1e-6;
  }
  return 1.0;
}

}  // namespace drive
