// Episodes from memory: one link that flows share equally, ends by hand.
#include <cmath>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "net/replay/replay.h"
#include "tests/builder.h"
#include "tests/check.h"
#include "tests/shared_link.h"

using namespace wt::net;
using replay::Options;
using replay::Replay;

namespace {

// Keys from 0 on have the plan "so many eighths of a second"; keys below 0 have none.
Replay link(const Options& options = {}, replay::Replay::Over over = {}) {
  return Replay([](wt::net::replay::Time) { return std::make_unique<SharedLink>(); },
                [](const Flow& f) { return f.key < 0 ? -1 : static_cast<std::int32_t>(std::lround(f.seconds * 8)); }, options,
                std::move(over));
}

std::vector<Completion> drain(Network& n) {
  std::vector<Completion> all;
  double last = 0;
  while (n.next_event() != wt::kNever) {
    const auto end = n.advance();
    if (!end) continue;
    CHECK(end->end >= last);
    last = end->end;
    all.push_back(*end);
  }
  return all;
}

void start(Network& n, std::int32_t id, double begin, double seconds) {
  CHECK(!n.start({.id = id, .key = id, .begin = begin, .seconds = seconds}));
}

// 2 s from `at` on, 2 s from `at` + `gap` on.
std::vector<Completion> pair(Replay& r, double at, double gap) {
  start(r, 0, at, 2.0);
  start(r, 1, at + gap, 2.0);
  return drain(r);
}

}  // namespace

TEST(replay_of_what_was_simulated) {
  int simulated = 0;
  Replay r = link({}, [&](Network&, std::int32_t pattern) {
    CHECK(pattern == simulated);
    ++simulated;
  });
  CHECK(r.next_event() == wt::kNever);
  CHECK(!r.advance());
  for (int i = 0; i < 4; ++i) {
    const auto ends = pair(r, 10.0 * i, 1.0);  // alone to 1, half of the link to 3, alone to 4
    CHECK(ends.size() == 2 && ends[0].id == 0 && ends[1].id == 1);
    NEAR(ends[0].end, 10.0 * i + 3);
    NEAR(ends[1].end, 10.0 * i + 4);
  }
  CHECK(simulated == 1);
  const replay::Report got = r.report();
  CHECK(got.episodes == 4 && got.replayed == 3 && got.patterns == 1 && got.simulations == 1);
  CHECK(got.flows == 8 && got.skipped == 6 && got.shifted == 0 && got.error_max == 0);
  CHECK(r.uses() == std::vector<std::int64_t>{4});
  CHECK(r.launches().at(16).count == 8);
  NEAR(r.launches().at(16).total, 4 * 6.0);
  NEAR(r.launches().at(16).longest, 3.0);
  NEAR(*r.start({.id = 9, .key = -1, .begin = 50.0, .seconds = 0.25}), 50.25);
}

TEST(replay_leaves_memory) {
  Replay r = link();
  pair(r, 0, 1.0);
  auto ends = pair(r, 10, 1.5);  // another offset: 0.5 left at 1.5, so 2.5; the other has 1.5 left then
  NEAR(ends[0].end, 12.5);
  NEAR(ends[1].end, 14.0);
  start(r, 0, 20, 2.0);  // nothing starts where something did
  NEAR(drain(r).at(0).end, 22.0);
  start(r, 0, 30, 1.0);  // another plan
  NEAR(drain(r).at(0).end, 31.0);
  CHECK(r.report().simulations == 4 && r.report().replayed == 0 && r.report().patterns == 4);

  start(r, 2, 43.5, 1.0);  // as the first up to 3.5, where the second has half a second left: 4.5, and the third 5
  ends = pair(r, 40, 1.0);
  CHECK(ends.size() == 3);
  NEAR(ends[0].end, 43.0);
  NEAR(ends[1].end, 44.5);
  NEAR(ends[2].end, 45.0);
  replay::Report got = r.report();
  CHECK(got.simulations == 5 && got.checked == 1 && got.checked_max == 0 && got.patterns == 5 && got.skipped == 0);

  start(r, 2, 53.5, 1.0);  // all of them are remembered by now
  NEAR(pair(r, 50, 1.0)[2].end, 55.0);
  NEAR(pair(r, 60, 1.0)[1].end, 64.0);
  NEAR(pair(r, 70, 1.5)[0].end, 72.5);
  start(r, 0, 80, 2.0);
  NEAR(drain(r).at(0).end, 82.0);
  got = r.report();
  CHECK(got.replayed == 4 && got.patterns == 5 && got.skipped == 8);
}

TEST(replay_within_tolerance) {
  Replay r = link();
  pair(r, 0, 1.0);
  auto ends = pair(r, 10, 1.015625);  // within 1 % of 2 s: the ends are those remembered, 1/64 s too late, and exact
  NEAR(ends[0].end, 13.0);
  NEAR(ends[1].end, 14.0);
  replay::Report got = r.report();
  CHECK(got.replayed == 1 && got.shifted == 1);
  NEAR(got.shift_max, 0.015625);
  NEAR(got.error_mean, 0.015625 / 2);
  NEAR(got.error_total, 0.015625);
  NEAR(got.error_share, (0.015625 / 3 + 0.015625 / 2.984375) / 4);

  ends = pair(r, 20, 1.03125);  // not within
  NEAR(ends[0].end, 22.96875);
  NEAR(ends[1].end, 24.0);
  ends = pair(r, 30, 1.03);  // nearer to the second
  NEAR(ends[0].end, 32.96875);

  // The first end is answered 1/128 s late, and then a third flow starts that no memory has, at 3.5. The second has 0.5 s left
  // then.
  start(r, 2, 43.5, 1.0);
  ends = pair(r, 40, 1.0078125);
  NEAR(ends[0].end, 43.0);
  NEAR(ends[1].end, 44.5);
  NEAR(ends[2].end, 45.0);
  got = r.report();
  CHECK(got.checked == 1);
  NEAR(got.checked_max, 0.0078125);

  Replay exact = link({.tolerance = 0});
  pair(exact, 0, 1.0);
  NEAR(pair(exact, 10, 1.015625)[0].end, 12.984375);
  CHECK(exact.report().replayed == 0);
  THROWS(link({.tolerance = -1}), "tolerance is -1");
  THROWS(link({.tolerance = 1}), "tolerance is 1");
}

TEST(replay_of_an_end_before_the_clock) {
  // Remembered: 2 s from 0, 2 s from 1, 1 s from 2.9921875, before the first one's end. Then the second starts 1/64 s later, so the
  // first ends at 2.984375, but memory has the third start before that end. The fourth leaves memory: the end comes at the clock.
  Replay r = link();
  start(r, 2, 2.9921875, 1.0);
  pair(r, 0, 1.0);
  start(r, 2, 12.9921875, 1.0);
  start(r, 3, 12.99609375, 0.5);
  const auto ends = pair(r, 10, 1.015625);
  CHECK(ends.size() == 4 && ends[0].id == 0);
  NEAR(ends[0].end, 12.99609375);
  const replay::Report got = r.report();
  CHECK(got.simulations == 2 && got.checked == 0);  // nothing had been answered from memory
  NEAR(got.error_total, 0.015625 + 0.01171875);
}

TEST(replay_keeps_flows_beyond_the_episode) {
  Replay r = link();
  start(r, 1, 10.0, 2.0);  // later ones may be named first
  start(r, 0, 0.0, 2.0);
  NEAR(r.next_event(), 0.0);
  const auto ends = drain(r);
  CHECK(ends.size() == 2 && ends[0].id == 0);
  NEAR(ends[0].end, 2.0);
  NEAR(ends[1].end, 12.0);
  CHECK(r.report().episodes == 2 && r.report().replayed == 1);
}

TEST(replay_of_episodes_that_a_transfer_joins) {
  // The plan of key k takes links k: 1 is the first, 2 the second, 3 both. The network is one link that all share, so what is
  // played to it together shows: apart, flows do not share; together, all do.
  static constexpr std::int32_t kLinks[] = {0, 1};
  const auto links = [](std::int32_t plan) {
    return plan == 3 ? std::span(kLinks) : std::span(kLinks).subspan(plan == 1 ? 0 : 1, 1);
  };
  Replay r([](wt::net::replay::Time) { return std::make_unique<SharedLink>(); },
           [](const Flow& f) { return static_cast<std::int32_t>(f.key); }, {}, {}, links);
  const auto begin = [&](std::int64_t key, double at, double seconds) {
    CHECK(!r.start({.id = static_cast<std::int32_t>(key), .key = key, .begin = at, .seconds = seconds}));
  };
  for (const double at : {0.0, 100.0}) {
    begin(1, at, 1.0);
    begin(2, at + 0.5, 1.0);
    auto ends = drain(r);
    NEAR(ends[0].end, at + 1.0);
    NEAR(ends[1].end, at + 1.5);
  }
  CHECK(r.report().episodes == 4 && r.report().replayed == 2 && r.report().joined == 0);
  for (const double at : {200.0, 300.0}) {  // joined at 0.75: 0.25 and 0.5 were done alone, but now all three are played together
    begin(1, at, 1.0);                      // 0 to 0.5 alone; half to 0.75; a third to 1.875, then over
    begin(2, at + 0.5, 1.0);                // half to 0.75, a third to 1.875, 0.5 left; half to 2.875
    begin(3, at + 0.75, 1.0);               // a third to 1.875, 0.625 left; half to 2.875, 0.125 left; alone to 3
    auto ends = drain(r);
    CHECK(ends.size() == 3);
    NEAR(ends[0].end, at + 1.875);
    NEAR(ends[1].end, at + 2.875);
    NEAR(ends[2].end, at + 3.0);
  }
  const replay::Report got = r.report();
  CHECK(got.episodes == 6 && got.replayed == 3 && got.joined == 2 && got.patterns == 3 && got.flows == 10 && got.skipped == 5);
}

TEST(replay_below_the_exec_core) {
  // Two ranks send each other 2 s and 1 s at once, five times, with 1 s of computing between: 1 s each of link sharing to 2,
  // then 3.
  wt::exec::Builder b;
  b.add_template({{.seconds = 1.0}});
  b.ranks.resize(2);
  for (int i = 0; i < 5; ++i)
    for (auto& rank : b.ranks) {
      std::vector<int> before;
      if (i > 0) before = {3 * i - 1};
      rank.push_back(wt::exec::meet({{2 * i, 2.0, 2}}, before, 1));
      rank.push_back(wt::exec::meet({{2 * i + 1, 1.0, 2}}, before, 2));
      rank.push_back(wt::exec::task(0, {3 * i, 3 * i + 1}));
    }
  Replay r = link();
  NEAR(wt::exec::run(b.build(), r).makespan, 5 * 4.0);
  SharedLink plain;
  NEAR(wt::exec::run(b.build(), plain).makespan, 20.0);
  CHECK(r.report().episodes == 5 && r.report().replayed == 4);
}
