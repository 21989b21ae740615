// NSCC by hand: 400 Gb/s and 12 us are four times the reference, so mss x a = 16 KiB; the target is 12 us of queueing.
#include <cmath>

#include "tests/cc_drive.h"
#include "tests/check.h"

using namespace drive;

namespace {

constexpr double kMss = 4096.0;
constexpr double kScale = 4 * kMss;

Ack packet(Time now, Time queueing, bool marked, std::int64_t bytes = 4096) {
  Ack a;
  a.now = now;
  a.rtt = 12 * kUs + queueing;
  a.bytes = bytes;
  a.marked = marked;
  a.next = 500'000;  // a.seq is 0: so much is outstanding
  return a;
}

bool close(std::int64_t got, double want) {
  const bool ok = std::abs(static_cast<double>(got) - want) < 1.0 + 1e-6 * want;
  if (!ok) std::cerr << "window " << got << ", expected " << want << "\n";
  return ok;
}

}  // namespace

TEST(nscc_starts_with_one_and_a_half_round_trips) {
  Pair p("nscc", {});
  CHECK(p.window(0) == 900'000);
  NEAR(p.rate(0), 400 * kGb);
  CHECK(!p.control().wants_notifications());
}

TEST(nscc_cuts_when_marks_and_the_average_delay_agree) {
  Pair p("nscc", {{"gain", 0.5}, {"eta", 0.0}});
  p.ack(packet(kUs, 40 * kUs, true));  // A = 20 us: 1 - 0.8 (20 - 12) / 20
  CHECK(close(p.window(kUs), 900e3 * 0.68));
  p.ack(packet(12 * kUs, 40 * kUs, true));  // within a round trip
  CHECK(close(p.window(12 * kUs), 900e3 * 0.68));
  p.ack(packet(14 * kUs, 10 * kUs, true));  // marked, but not late: only A moves, to 20 us (30 before)
  CHECK(close(p.window(14 * kUs), 900e3 * 0.68));
  p.ack(packet(15 * kUs, 4 * 400 * kUs, true));  // A far above: half at most
  CHECK(close(p.window(15 * kUs), 900e3 * 0.34));
}

TEST(nscc_increases_proportionally_and_fairly) {
  Pair p("nscc", {{"gain", 1.0}, {"eta", 0.0}});
  p.ack(packet(kUs, 47 * kUs, true));  // 1 - 0.8 x 35 / 47
  double w = 900e3 * std::max(0.5, 1 - 0.8 * 35 / 47);
  CHECK(close(p.window(kUs), w));
  for (int n = 0; n < 9; ++n) p.ack(packet(2 * kUs, 6 * kUs, false));  // more than eight packets
  double inc = 9 * 4096.0 * 4 * kScale * (12 - 6) / 12;
  w += inc / w;
  CHECK(close(p.window(2 * kUs), w));
  for (int n = 0; n < 9; ++n) p.ack(packet(3 * kUs, 12 * kUs, false));
  inc = 9 * 4096.0 * 5 * kScale;
  w += inc / w;
  CHECK(close(p.window(3 * kUs), w));
}

TEST(nscc_rises_fast_on_an_empty_path) {
  Pair p("nscc", {{"gain", 1.0}, {"alpha", 0.0}, {"eta", 0.0}});
  p.ack(packet(kUs, 47 * kUs, true));
  const double w = 900e3 * 0.5;
  CHECK(close(p.window(kUs), w));
  p.ack(packet(2 * kUs, 0, false, 400'000));
  CHECK(close(p.window(2 * kUs), w));
  p.ack(packet(3 * kUs, 0, false, 60'000));  // more than a window with no queue
  CHECK(close(p.window(3 * kUs), w + 60'000 * 0.25 * 4));
  p.ack(packet(4 * kUs, 2 * kUs, false, 60'000));
  CHECK(close(p.window(4 * kUs), w + 60'000));
}

TEST(nscc_adds_eta_each_round_trip) {
  Pair p("nscc", {{"gain", 1.0}, {"alpha", 0.0}});
  p.ack(packet(kUs, 47 * kUs, true));  // begins at -12 us: an adjustment is due with it
  const double w = 450e3 + 0.15 * kScale;
  CHECK(close(p.window(kUs), w));
  p.ack(packet(12 * kUs, 5 * kUs, false));
  CHECK(close(p.window(12 * kUs), w));
  p.ack(packet(14 * kUs, 5 * kUs, false));
  CHECK(close(p.window(14 * kUs), w + 0.15 * kScale));
}

TEST(nscc_adapts_quickly_to_what_got_through) {
  Pair p("nscc", {{"gain", 0.0}, {"eta", 0.0}});
  p.ack(packet(kUs, 60 * kUs, true));  // the first period begins, and ends 24 us later
  p.ack(packet(20 * kUs, 60 * kUs, true, 40'000));
  CHECK(p.window(20 * kUs) == 900'000);
  p.ack(packet(26 * kUs, 60 * kUs, true, 20'000));  // 60 000 B in it, below 900 000 / 8, at five targets
  CHECK(close(p.window(26 * kUs), 60'000));
  p.ack(packet(27 * kUs, 600 * kUs, true));
  p.lost(28 * kUs, false);
  CHECK(close(p.window(28 * kUs), 60'000 - 4096));
}
