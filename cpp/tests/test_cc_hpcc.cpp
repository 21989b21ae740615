// HPCC by hand: 400 Gb/s, 12 us, so a window of 600 000 B; its additive increase is 50 Mb/s x 12 us = 75 B.
#include "tests/cc_drive.h"
#include "tests/check.h"

using namespace drive;

namespace {

constexpr double kLine = 400.0 * kGb;

// Hops of a path whose ports report (us, B sent, B queued).
Ack report(const std::vector<Hop>& hops, std::int64_t seq, std::int64_t next) {
  Ack a;
  a.bytes = 4096;
  a.seq = seq;
  a.next = next;
  a.hops = hops;
  return a;
}

}  // namespace

TEST(hpcc_multiplies_from_the_committed_window) {
  Pair p("hpcc", {});
  CHECK(p.control().wants_telemetry());
  CHECK(p.window(0) == 600'000);
  const std::vector<Hop> first{{0, 0, 0, kLine}};
  p.ack(report(first, 4096, 100'000));  // only leaves its telemetry
  CHECK(p.window(0) == 600'000);
  const std::vector<Hop> full{{12 * kUs, 600'000, 0, kLine}};
  p.ack(report(full, 100'001, 200'000));  // load 1 over a whole round trip
  const double w = 600'000 * 0.95 + 75;
  NEAR(p.rate(0), w / 12e-6);
  const std::vector<Hop> less{{18 * kUs, 870'000, 0, kLine}};
  p.ack(report(less, 150'000, 200'000));  // 0.9 for half a round trip: U = 0.95; the same round trip, so not committed
  NEAR(p.rate(0), (w + 75) / 12e-6);
  const std::vector<Hop> queue{{24 * kUs, 1'170'000, 60'000, kLine}};
  p.ack(report(queue, 160'000, 200'000));  // load 1; the queue was empty before, so it does not count yet: U = 0.975
  NEAR(p.rate(0), (w * 0.95 / 0.975 + 75) / 12e-6);
  const std::vector<Hop> queued{{36 * kUs, 1'770'000, 90'000, kLine}};
  p.ack(report(queued, 200'001, 300'000));  // 1 + 60 000 / 600 000 for a whole round trip
  NEAR(p.rate(0), (w * 0.95 / 1.1 + 75) / 12e-6);
  CHECK(p.window(0) == static_cast<std::int64_t>(w * 0.95 / 1.1 + 75));
}

TEST(hpcc_takes_the_busiest_hop) {
  Pair p("hpcc", {});
  const std::vector<Hop> first{{0, 0, 0, kLine}, {0, 0, 0, kLine / 2}, {0, 0, 0, kLine}};
  p.ack(report(first, 1, 1));
  const std::vector<Hop> second{{12 * kUs, 300'000, 0, kLine}, {12 * kUs, 300'000, 75'000, kLine / 2}, {12 * kUs, 0, 0, kLine}};
  p.ack(report(second, 2, 2));
  NEAR(p.rate(0), (600'000 * 0.95 + 75) / 12e-6);  // the slow port is full
  const std::vector<Hop> shorter{{24 * kUs, 600'000, 0, kLine}};
  p.ack(report(shorter, 3, 3));  // another path: only leaves its telemetry
  NEAR(p.rate(0), (600'000 * 0.95 + 75) / 12e-6);
}

TEST(hpcc_adds_for_so_many_stages_before_it_multiplies) {
  Pair p("hpcc", {{"stages", 2.0}, {"flows", 10.0}});  // Wai = 600 000 x 0.05 / 10 = 3000 B
  std::int64_t sent = 0;
  Time now = 0;
  std::int64_t seq = 1;
  const auto round = [&](double load) {
    now += 12 * kUs;
    sent += static_cast<std::int64_t>(600'000 * load);
    ++seq;
    const std::vector<Hop> hop{{now, sent, 0, kLine}};
    p.ack(report(hop, seq, seq));
  };
  round(0.0);
  round(1.9);
  double w = 600'000 * 0.95 / 1.9 + 3000;
  NEAR(p.rate(now), w / 12e-6);
  for (int n = 0; n < 2; ++n) {
    round(0.5);
    w += 3000;
    NEAR(p.rate(now), w / 12e-6);
  }
  round(0.76);
  w = w * 0.95 / 0.76 + 3000;
  NEAR(p.rate(now), w / 12e-6);
  round(0.5);
  w += 3000;
  NEAR(p.rate(now), w / 12e-6);
}
