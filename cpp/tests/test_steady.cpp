// Where a program repeats, and whether a run of it is steady there.
#include "exec/steady.h"

#include <vector>

#include "tests/builder.h"
#include "tests/check.h"

using namespace wt::exec;

namespace {

constexpr std::int64_t kTogether[] = {1, 2, 3};

// A lead-in of 2 s, n passes of 1 s and a tail, on one rank; each pass waits for the one before it.
struct Chain {
  Builder b;
  std::vector<std::uint8_t> pass;
  std::vector<std::int32_t> kind, number;

  explicit Chain(int passes) {
    b.grid = 0x1p-30;
    b.outcomes = true;
    b.critical_path = false;
    for (const double seconds : {2.0, 1.0, 3.0}) b.add_template({{.seconds = seconds}});
    b.ranks = {{task(0)}};
    for (int i = 0; i < passes; ++i) b.ranks[0].push_back(task(1, {i}));
    b.ranks[0].push_back(task(2, {passes}));
    pass.assign(b.ranks[0].size(), 1);
    pass.front() = pass.back() = 0;
    kind.assign(pass.size(), 7);
    for (int i = -1; i <= passes; ++i) number.push_back(i < passes ? i : -1);
  }

  std::vector<Periods> periods() { return find_periods(b.build(), {pass, kind, number, 1}); }

  std::optional<Steady> steady(const Timeline& t) {
    const RunTimes times{t.makespan, t.begin, t.end, t.transfer, t.host, t.outcome};
    return find_steady(b.build(), periods(), times, kTogether, 1e-13);
  }
};

}  // namespace

TEST(periods_lie_between_what_has_no_micro_batch) {
  Chain chain(8);
  const auto found = chain.periods();
  CHECK(found.size() == 1);
  CHECK(found[0].first == 1 && found[0].last == 9 && found[0].size == 1);
}

TEST(what_waits_otherwise_does_not_repeat) {
  Chain chain(8);
  chain.b.ranks[0][7].waits = {5};  // not the one before it
  const auto found = chain.periods();
  CHECK(found[0].first == 1 && found[0].last == 7);
}

TEST(another_kind_ends_the_periods) {
  Chain chain(8);
  chain.kind[2] = 8;
  CHECK(chain.periods()[0].first == 3);
}

TEST(a_rank_without_passes_has_no_periods) {
  Chain chain(8);
  chain.pass.assign(chain.pass.size(), 0);
  CHECK(chain.periods()[0].size == 0);
}

TEST(equal_passes_are_steady) {
  Chain chain(8);
  const auto found = chain.steady(chain.b.run());
  CHECK(found.has_value());
  CHECK(found->together == 1);
  NEAR(found->seconds, 1.0);
}

TEST(an_instance_that_went_otherwise_is_not_steady) {
  Chain chain(8);
  Timeline t = chain.b.run();
  t.outcome[7] += 1;
  CHECK(!chain.steady(t).has_value());
}

TEST(a_transfer_out_of_line_is_not_steady) {
  Chain chain(8);
  Timeline t = chain.b.run();
  t.transfer = t.begin;
  t.transfer[7] += 1e-9;
  CHECK(!chain.steady(t).has_value());
}

TEST(too_short_a_stretch_is_not_steady) {
  Chain chain(2);
  CHECK(!chain.steady(chain.b.run()).has_value());
}
