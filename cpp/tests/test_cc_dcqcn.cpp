// DCQCN by hand: one congested flow of 400 Gb/s, every rate computed on paper.
#include <algorithm>
#include <cmath>

#include "net/packet/cc/alpha.h"
#include "tests/cc_drive.h"
#include "tests/check.h"

using namespace drive;

namespace {

constexpr double kLine = 400.0 * kGb;

}  // namespace

TEST(dcqcn_starts_at_line_rate_without_a_window) {
  Pair p("dcqcn", {});
  NEAR(p.rate(0), kLine);
  CHECK(p.window(0) == kNoWindow);
  CHECK(p.control().wants_notifications());
  CHECK(p.control().notification_interval() == 4 * kUs);
  CHECK(p.control().notifications_per_port());
  CHECK(!Pair("dcqcn", paper_dcqcn()).control().notifications_per_port());
  p.sent(5 * kUs, 100'000'000);
  NEAR(p.rate(kUs * 1'000'000), kLine);
}

TEST(dcqcn_paper_cuts_on_each_notification_and_alpha_decays) {
  Pair p("dcqcn", paper_dcqcn());
  const double g = 1.0 / 256;
  p.notify(0);
  NEAR(p.rate(0), kLine / 2);  // alpha 1: half; alpha stays (1-g) + g = 1
  p.notify(50 * kUs);
  NEAR(p.rate(50 * kUs), kLine / 4);
  // Three quiet alpha periods after 50 us end at 105, 160, 215: alpha (1-g)^3. The timer ends at 105, 160, 215 too, each a fast
  // recovery towards the target of 1/2: 1/4 -> 3/8 -> 7/16 -> 15/32 of the line, of which the cut then takes alpha/2.
  NEAR(p.rate(104 * kUs), kLine / 4);
  NEAR(p.rate(105 * kUs), kLine * 3 / 8);
  NEAR(p.rate(160 * kUs), kLine * 7 / 16);
  p.notify(216 * kUs);
  const double alpha = (1 - g) * (1 - g) * (1 - g);
  NEAR(p.rate(216 * kUs), kLine * 15 / 32 * (1 - alpha / 2));
  p.notify(217 * kUs);  // alpha was raised by the one before
  const double raised = (1 - g) * alpha + g;
  NEAR(p.rate(217 * kUs), kLine * 15 / 32 * (1 - alpha / 2) * (1 - raised / 2));
}

TEST(dcqcn_timer_goes_from_fast_recovery_to_additive_increase) {
  Pair p("dcqcn", paper_dcqcn());
  p.notify(0);
  p.notify(1);  // target 1/2, rate 1/4 of the line
  double target = kLine / 2;
  double rate = kLine / 4;
  for (int n = 1; n <= 12; ++n) {
    if (n > 5) target += 0.04 * kGb;  // five periods of fast recovery, then additive: the byte counter has not moved
    rate = 0.5 * (target + rate);
    NEAR(p.rate(n * 55 * kUs + 1), rate);
  }
}

TEST(dcqcn_hyper_increase_needs_both_counters) {
  Pair p("dcqcn", paper_dcqcn());
  p.notify(0);
  p.notify(1);
  double target = kLine / 2;
  double rate = kLine / 4;
  for (int j = 0; j < 8; ++j) {  // eight byte periods, no timer: five of fast recovery, three additive
    p.sent(2, 10'000'000);
    if (j >= 5) target += 0.04 * kGb;
    rate = 0.5 * (target + rate);
    NEAR(p.rate(2), rate);
  }
  for (int i = 0; i < 10; ++i) {  // the timer joins in: additive until it is past five as well, then hyper, twice and three times
    const int over = std::min(i, 8) - 5;
    target += over > 0 ? 0.2 * kGb * over : 0.04 * kGb;
    rate = 0.5 * (target + rate);
    NEAR(p.rate((i + 1) * 55 * kUs + 1), rate);
  }
}

TEST(dcqcn_fork_cuts_once_a_window_at_its_end) {
  Pair p("dcqcn", fork_dcqcn());
  CHECK(!p.control().wants_notifications());  // marks come back in ACKs
  Ack ack;
  ack.marked = true;
  for (const Time t : {0L, 1L, 2L, 3L}) {
    ack.now = t * kUs;
    p.ack(ack);
  }
  NEAR(p.rate(4 * kUs - 1), kLine);
  // Periods end at 1, 2, 3, 4 us. The notification at 0 starts alpha at 1 and counts for none; those at 1, 2, 3 us count for the
  // periods that end at 2, 3, 4. So alpha is 1 - g, then (1-g)^2 + g, ((1-g)^2 + g)(1-g) + g, ...
  const double g = 1.0 / 256;
  double alpha = 1 - g;
  for (int n = 0; n < 3; ++n) alpha = alpha * (1 - g) + g;
  NEAR(p.rate(4 * kUs), kLine * (1 - alpha / 2));
  NEAR(p.rate(8 * kUs), kLine * (1 - alpha / 2));  // no mark in the second window: no cut
}

TEST(dcqcn_fork_without_clamp_keeps_its_target_until_it_has_risen) {
  Pair p("dcqcn", fork_dcqcn());
  p.notify(0);
  p.notify(5 * kUs);  // cuts at 4 and 8 us, both towards a target of the line rate
  const double low = p.rate(8 * kUs);
  CHECK(low < 0.3 * kLine);
  NEAR(p.rate(908 * kUs), 0.5 * (kLine + low));  // the timer ends 900 us after the last cut: half the gap
  const double risen = p.rate(908 * kUs);
  p.notify(909 * kUs);  // this cut lowers the target to what it has risen to
  const double cut = p.rate(912 * kUs);
  CHECK(cut < risen);
  NEAR(p.rate(1812 * kUs), 0.5 * (risen + cut));
}

TEST(dcqcn_fork_phases_by_timer_alone) {
  Settings s = fork_dcqcn();
  s.push_back({"clamp", 1.0});
  Pair p("dcqcn", s);
  p.notify(0);
  p.notify(5 * kUs);
  double target = p.rate(7 * kUs);
  double rate = p.rate(8 * kUs);
  for (int i = 0; i < 6; ++i) {  // one fast recovery, one additive, then hyper
    target += i == 0 ? 0.0 : i == 1 ? 0.05 * kGb : 0.1 * kGb;
    rate = 0.5 * (target + rate);
    NEAR(p.rate((908 + 900 * i) * kUs), rate);
  }
}

TEST(dcqcn_connectx_cuts_by_half_at_most_and_recovers_by_bytes) {
  constexpr std::int64_t kReset = 64 * 32767;
  Pair p("dcqcn", {{"min_factor", 0.9}});
  p.notify(0);
  NEAR(p.rate(4 * kUs), 0.9 * kLine);
  p.sent(5 * kUs, kReset);  // fast recovery towards the line rate
  NEAR(p.rate(5 * kUs), 0.95 * kLine);
  p.sent(6 * kUs, kReset - 1);
  NEAR(p.rate(6 * kUs), 0.95 * kLine);
  p.sent(6 * kUs, 1);  // additive now, but the target is the line rate already
  NEAR(p.rate(6 * kUs), 0.975 * kLine);
  p.sent(7 * kUs, kReset * 40);  // a burst counts for each period that it fills; then the limiter lets go
  CHECK(p.rate(7 * kUs) == kLine);
}

TEST(dcqcn_many_periods_at_once_equal_one_by_one) {
  const Settings s = {{"timer", 1e-6}, {"bytes", 0.0}, {"threshold", 3.0}, {"rai", 1e5}, {"rhai", 1e5}, {"clamp", 1.0}};
  Pair slow("dcqcn", s);
  Pair fast("dcqcn", s);
  for (Pair* p : {&slow, &fast}) {
    for (int n = 0; n < 40; ++n) p->notify(n * kUs);
    (void)p->rate(50 * kUs);
  }
  for (Time t = 51; t <= 9000; ++t) (void)slow.rate(t * kUs);
  CHECK(std::abs(fast.rate(9000 * kUs) / slow.rate(9000 * kUs) - 1.0) < 1e-9);
  CHECK(fast.rate(9000 * kUs) < 0.99 * kLine);
  CHECK(fast.rate(Time{4'000'000'000} * kUs) == kLine);  // an hour later
}

TEST(dcqcn_alpha_of_many_periods) {
  const AlphaRule rule{0.25, 1.0, kUs, true};
  Alpha a;
  a.start(rule, 0);
  a.notify(rule, 2 * kUs + 1);  // 0.75^2 by then; counts for the period that ends at 3 us
  NEAR(a.advance(rule, 3 * kUs), 0.75 * 0.75 * 0.75 + 0.25);
  NEAR(a.advance(rule, 13 * kUs), (0.421875 + 0.25) * std::pow(0.75, 10));
  CHECK(a.advance(rule, Time{1} << 60) < 1e-300);
  NEAR(power(0.5, 10), 1.0 / 1024);
  NEAR(power(0.5, 0), 1.0);
}

TEST(dcqcn_scales_with_the_line_and_keeps_a_window) {
  Pair p("dcqcn", {{"scale", 25.0 * kGb},
                   {"rai", 0.01 * kGb},
                   {"threshold", 0.0},
                   {"bytes", 0.0},
                   {"clamp", 1.0},
                   {"timer", 1e-5},
                   {"min_factor", 0.5},
                   {"window", 1.0}});
  CHECK(p.window(0) == 600'000);  // 400 Gb/s x 12 us
  p.notify(0);
  p.notify(5 * kUs);
  const double target = p.rate(7 * kUs);
  const double rate = p.rate(8 * kUs);
  NEAR(p.rate(18 * kUs), 0.5 * (target + 0.16 * kGb + rate));  // 16 times as much as at 25G
  CHECK(std::abs(static_cast<double>(p.window(8 * kUs + 10 * kUs)) - p.rate(18 * kUs) * 12e-6) < 2.0);
}

TEST(registry_knows_names_and_bounds) {
  THROWS(make_control("dcqnc", {}, 1), "no congestion control 'dcqnc'; known: ");
  const Settings unknown = {{"rate", 1.0}};
  THROWS(make_control("dcqcn", unknown, 1), "dcqcn has no parameter 'rate'; known: g, ");
  for (const double bad : {-0.1, 1.5, std::nan("")}) {
    const Settings s = {{"g", bad}};
    THROWS(make_control("dcqcn", s, 1), "must be in [0, 1]");
  }
  const Settings half = {{"clamp", 0.5}};
  THROWS(make_control("dcqcn", half, 1), "must be 0 or 1");
  THROWS(make_control("dcqcn", {}, -1), "-1 queue pairs");
  for (const Algorithm& a : algorithms()) {
    CHECK(make_control(a.name, {}, 3) != nullptr);
    for (const Parameter& q : a.parameters) {
      CHECK(q.least <= q.value && q.value <= q.most);
      for (const double edge : {q.least, q.most}) {
        const Settings s = {{std::string(q.name), edge}};
        CHECK(make_control(a.name, s, 1) != nullptr);
      }
    }
  }
}
