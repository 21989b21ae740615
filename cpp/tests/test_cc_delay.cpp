// Swift, TIMELY and the MegaScale-style hybrid by hand: 400 Gb/s, 12 us idle round trip, 6 links, packets of 4096 B.
#include <cmath>

#include "tests/cc_drive.h"
#include "tests/check.h"

using namespace drive;

namespace {

constexpr double kLine = 400.0 * kGb;
constexpr double kBdp = 600'000.0;  // B

Ack packet(Time now, Time rtt, std::int64_t seq = 0, std::int64_t next = 0) {
  Ack a;
  a.now = now;
  a.rtt = rtt;
  a.bytes = 4096;
  a.seq = seq;
  a.next = next;
  return a;
}

}  // namespace

TEST(swift_gains_a_packet_a_window_below_the_target) {
  Pair p("swift", {});
  CHECK(p.window(0) == 600'000);
  NEAR(p.rate(0), kLine);
  double w = kBdp / 4096;
  for (int n = 0; n < 200; ++n) {
    p.ack(packet((100 + n) * kUs, 12 * kUs));
    w += 1.0 / w;
  }
  CHECK(p.window(300 * kUs) == static_cast<std::int64_t>(w * 4096));
  for (int n = 0; n < 200'000; ++n) p.ack(packet((300 + n) * kUs, 12 * kUs));
  const double target = 20e-6 + 6 * 20e-6 / 6.55;  // a window that fills the line for longer than the target is of no use
  CHECK(std::abs(static_cast<double>(p.window(Time{1'000'000} * kUs)) - kLine * target) < 1.0);
}

TEST(swift_cuts_once_a_round_trip_and_by_half_at_most) {
  Pair p("swift", {});
  const double target = 20 + 6 * 20 / 6.55;  // us; the window is above 100 packets, so nothing is added for small windows
  p.ack(packet(200 * kUs, 60 * kUs));
  double w = kBdp * (1 - 0.8 * (60 - target) / 60);
  CHECK(p.window(200 * kUs) == static_cast<std::int64_t>(w));
  p.ack(packet(259 * kUs, 60 * kUs));
  CHECK(p.window(259 * kUs) == static_cast<std::int64_t>(w));
  p.ack(packet(5000 * kUs, 4000 * kUs));  // 1 - 0.8 (4000 - 40) / 4000 would be 0.2
  CHECK(p.window(5000 * kUs) == static_cast<std::int64_t>(w / 2));
}

TEST(swift_target_rises_for_small_windows) {
  // At a window of w packets the target gains fa / sqrt(w) + fb; with w = 1/4 of 100 that is fa (1/5 - 1/10).
  Pair p("swift", {{"fs_range", 100e-6}, {"base", 38e-6}, {"hop", 0.0}}, {100.0 * 4096 / 38e-6 / 4, 38 * kUs, 6, 4096});
  const double fa = 100 / (1 / std::sqrt(0.1) - 0.1);
  const double target = 47.5 + fa * (0.2 - 0.1);  // us, 1.25 idle round trips before the gain
  CHECK(p.window(0) == 25 * 4096);
  p.ack(packet(200 * kUs, static_cast<Time>((target - 0.01) * 1e6)));
  CHECK(p.window(200 * kUs) == static_cast<std::int64_t>((25 + 1.0 / 25) * 4096));
  p.ack(packet(400 * kUs, static_cast<Time>((target + 0.01) * 1e6)));
  CHECK(p.window(400 * kUs) < static_cast<std::int64_t>((25 + 1.0 / 25) * 4096));
}

TEST(swift_paces_windows_below_a_packet) {
  Pair p("swift", {});
  Time now = 0;
  for (int n = 0; n < 12; ++n) p.ack(packet(now += 2000 * kUs, 1000 * kUs));
  CHECK(p.window(now) == 4096);
  NEAR(p.rate(now), 0.1 * 4096 / 1e-3);
  p.ack(packet(now += kUs, 30 * kUs));  // below the target each acknowledged packet counts whole
  CHECK(p.window(now) == static_cast<std::int64_t>(1.1 * 4096));
  NEAR(p.rate(now), kLine);
}

TEST(swift_answers_losses) {
  Pair p("swift", {});
  p.lost(100 * kUs, false);
  CHECK(p.window(100 * kUs) == 300'000);
  p.lost(101 * kUs, false);
  CHECK(p.window(101 * kUs) == 300'000);
  for (int n = 0; n < 6; ++n) p.lost((200 + 100 * n) * kUs, true);
  CHECK(p.window(800 * kUs) == 4096);  // six timeouts in a row: a tenth of a packet
  NEAR(p.rate(800 * kUs), 0.1 * 4096 / 12e-6);
}

TEST(timely_rises_below_the_low_threshold_and_faster_after_five) {
  Pair p("timely", {{"rai", 1e9}, {"rhai", 2e9}});
  p.ack(packet(kUs, 1000 * kUs, 1, 1));
  p.ack(packet(2 * kUs, 1000 * kUs, 2, 2));  // far above the high one: x (1 - 0.8 (1 - 0.5))
  double rate = kLine * 0.6;
  NEAR(p.rate(2 * kUs), rate);
  for (int n = 3; n < 12; ++n) {
    p.ack(packet(n * kUs, 49 * kUs, n, n));
    rate += n < 8 ? 1e9 : 2e9;
    NEAR(p.rate(n * kUs), std::min(rate, kLine));
  }
}

TEST(timely_follows_the_gradient_between_the_thresholds) {
  Pair p("timely", {});
  p.ack(packet(kUs, 100 * kUs, 1, 1));
  CHECK(p.rate(kUs) == kLine);               // the first sample only starts the gradient
  p.ack(packet(2 * kUs, 120 * kUs, 2, 10));  // d = 0.875 x 20 us, gradient 17.5 / 20
  NEAR(p.rate(2 * kUs), kLine * (1 - 0.8 * 0.875));
  p.ack(packet(3 * kUs, 400 * kUs, 9, 10));  // of the same round trip: not taken
  NEAR(p.rate(3 * kUs), kLine * 0.3);
  p.ack(packet(4 * kUs, 110 * kUs, 11, 20));  // d = 17.5/8 - 8.75 < 0
  NEAR(p.rate(4 * kUs), kLine * 0.3 + 0.05 * kGb);
  p.ack(packet(5 * kUs, 210 * kUs, 21, 30));  // a jump whose gradient would turn the rate negative
  NEAR(p.rate(5 * kUs), 0.1 * kGb);
}

TEST(hybrid_cuts_at_once_and_rises_as_swift_does) {
  Pair p("hybrid", {});
  CHECK(p.window(0) == 600'000);
  NEAR(p.rate(0), kLine);
  p.notify(100 * kUs);
  const double cut = kLine * (1 - 0.5 * 1023 / 1024);
  NEAR(p.rate(100 * kUs), cut);
  CHECK(p.window(100 * kUs) == 600'000);  // Swift's window does not move
  p.notify(111 * kUs);                    // within the round trip
  NEAR(p.rate(111 * kUs), cut);
  p.ack(packet(111 * kUs, 12 * kUs));  // a share 4096/600000 of a packet more, each idle round trip
  CHECK(std::abs(p.rate(111 * kUs) / (cut + 4096.0 / kBdp * 4096 / 12e-6) - 1) < 1e-7);
  p.ack(packet(300 * kUs, 60 * kUs));  // above the target: the window takes over where it is below the cap
  const double w = (kBdp + 4096.0 * 4096 / kBdp) * (1 - 0.8 * (60 - 20 - 120 / 6.55) / 60);
  CHECK(std::abs(static_cast<double>(p.window(300 * kUs)) - w) < 1.0);
  CHECK(std::abs(p.rate(300 * kUs) / (w / 60e-6) - 1) < 1e-9);
}

TEST(none_is_line_rate_and_a_window) {
  Pair open("none", {});
  NEAR(open.rate(0), kLine);
  CHECK(open.window(0) == kNoWindow);
  Pair held("none", {{"window", 1e6}});
  CHECK(held.window(0) == 1'000'000);
}
