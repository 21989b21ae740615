// What holds for every algorithm: rates stay between the smallest one and the line, whatever comes in whatever order; and in a
// closed loop with one bottleneck they share it.
#include <cmath>

#include "tests/cc_loop.h"
#include "tests/check.h"

using namespace drive;

namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  double unit() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state_ >> 11) * 0x1p-53;
  }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(unit() * static_cast<double>(n)); }

 private:
  std::uint64_t state_;
};

// Each parameter at its default, at an edge, or between a hundredth and a hundred times its default.
Settings any_settings(const Algorithm& a, Random& random) {
  Settings out;
  for (const Parameter& p : a.parameters) {
    double value = p.value;
    const double pick = random.unit();
    if (pick < 0.1) value = p.least;
    if (pick > 0.9) value = p.most;
    if (pick > 0.1 && pick < 0.5 && p.unit != "0/1") {
      value = std::clamp(value * std::pow(100.0, 2 * random.unit() - 1), p.least, p.most);
    }
    out.push_back({std::string(p.name), value});
  }
  return out;
}

double setting(const Settings& all, std::string_view name) {
  for (const Setting& s : all) {
    if (s.name == name) return s.value;
  }
  return 0.0;
}

void any_events(const Algorithm& a, std::uint64_t seed) {
  Random random(seed);
  const Settings settings = seed % 4 == 0 ? Settings{} : any_settings(a, random);
  const double rate = std::pow(10.0, 8 + 3 * random.unit());
  const Line line{rate, 1 + random.below(100 * kUs), static_cast<std::int32_t>(random.below(8)), 4096};
  Pair p(a.name, settings, line);
  const bool floor = a.name != "hybrid" && a.name != "swift";  // their windows also shrink below a packet
  const double least = floor ? std::min(setting(settings, "rmin"), line.rate) * (1 - 1e-12) : 0.0;
  Time now = 0;
  std::int64_t seq = 0;
  std::int64_t next = 0;
  std::vector<Hop> hops(3, Hop{0, 0, 0, line.rate});
  for (int n = 0; n < 300; ++n) {
    now += static_cast<Time>(std::pow(10.0, 12 * random.unit()));  // 1 ps to 1 s
    const double pick = random.unit();
    if (pick < 0.3) {
      p.sent(now, 4096);
      next += 4096;
    } else if (pick < 0.5) {
      p.notify(now);
    } else if (pick < 0.55) {
      p.lost(now, random.unit() < 0.5);
    } else {
      if (random.unit() < 0.1) hops.resize(1 + static_cast<std::size_t>(random.below(5)), Hop{0, 0, 0, line.rate});
      for (Hop& h : hops) h = {now - random.below(kUs), h.sent + random.below(1 << 20), random.below(1 << 24), line.rate};
      Ack ack;
      ack.now = now;
      ack.rtt = random.below(1000 * kUs);
      ack.bytes = random.below(3) * 4096;
      ack.seq = seq = std::min(seq + ack.bytes, next);
      ack.next = next;
      ack.marked = random.unit() < 0.3;
      if (p.control().wants_telemetry()) ack.hops = hops;
      p.ack(ack);
    }
    const Permit permit = p.control().permit(0, now);
    const bool ok = permit.rate > 0.0 && permit.rate >= least && permit.rate <= line.rate * (1 + 1e-12) && permit.window > 0 &&
                    permit.until > now;
    if (!ok) std::cerr << a.name << " seed " << seed << ": rate " << permit.rate << " window " << permit.window << "\n";
    CHECK(ok);
    if (!ok) return;
  }
}

}  // namespace

TEST(any_events_keep_every_algorithm_in_bounds) {
  for (const Algorithm& a : algorithms()) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) any_events(a, seed);
  }
}

TEST(dcqcn_never_falls_without_a_notification) {
  Random random(7);
  Pair p("dcqcn", {});
  Time now = 0;
  for (int n = 0; n < 20; ++n) p.notify(now += 3 * kUs);
  now += 4 * kUs;
  double before = p.rate(now);
  for (int n = 0; n < 2000; ++n) {
    now += random.below(20 * kUs);
    if (random.unit() < 0.5) p.sent(now, 4096);
    const double rate = p.rate(now);
    CHECK(rate >= before);
    before = rate;
  }
  NEAR(before, 400 * kGb);
}

TEST(closed_loops_share_a_port) {
  const Share hpcc = share("hpcc", {});
  CHECK(hpcc.used > 0.93 && hpcc.used < 0.96);  // eta is 0.95
  CHECK(hpcc.fairness > 0.9 && hpcc.queue < 50e3);
  const Share swift = share("swift", {});
  CHECK(swift.used > 0.99 && swift.fairness > 0.99);
  CHECK(swift.queue > 0.9e6 && swift.queue < 1.7e6);  // the target of 38 us less the idle round trip, and what small windows add
  const Share hybrid = share("hybrid", {}, kSimai);
  CHECK(hybrid.used > 0.97 && hybrid.fairness > 0.98 && hybrid.queue < 2e6);
  const Share dcqcn = share("dcqcn", {{"cnp_per_port", 0.0}}, kSpectrum);
  CHECK(dcqcn.used > 0.9 && dcqcn.fairness > 0.95 && dcqcn.queue < 1e6);
  const Share nscc = share("nscc", {}, {120e3, 480e3, 1.0});
  CHECK(nscc.used > 0.99 && nscc.fairness > 0.99 && nscc.queue < 0.9e6);  // the target is 600 KB
  const Share none = share("none", {});
  CHECK(none.used > 0.999 && none.queue > 1e9);      // nobody slows down; a lossless fabric would pause
  const Share port = share("dcqcn", {}, kSpectrum);  // an eighth of the notifications each: slower to act, never idle
  CHECK(port.used > 0.999 && port.queue > 100 * dcqcn.queue && port.queue < 0.2 * none.queue);
}

TEST(dcqcn_converges_with_paced_increases) {
  // The paper's 40G: 5/200 KB, Pmax 1 %, a round trip of 8 us, packets of 1 KB.
  const Line line{40 * kGb, 8 * kUs, 4, 1024};
  Loop loop("dcqcn", paper_dcqcn(), std::vector<Flow>(2), {5e3, 200e3, 0.01}, line);
  loop.run(50'000 * kUs);
  const std::int64_t before = loop.delivered();
  loop.run(100'000 * kUs);
  const double used = static_cast<double>(loop.delivered() - before) / (40 * kGb * 0.05);
  CHECK(used > 0.9);
  const std::int64_t apart = std::abs(loop.flows()[0].delivered - loop.flows()[1].delivered);
  CHECK(apart < loop.delivered() / 10);
}

TEST(stock_dcqcn_recovers_slower_than_hpcc_at_400g) {
  const double hpcc = recovery("hpcc", {});
  const double fork = recovery("dcqcn", fork_dcqcn());
  const double paper = recovery("dcqcn", paper_dcqcn());
  CHECK(hpcc < 1e-3);
  CHECK(fork > 2 * hpcc);
  CHECK(paper > 2 * hpcc);
  CHECK(recovery("dcqcn", {}, kSpectrum) < std::min(fork, paper));  // a NIC's defaults count bytes as well
}
