// Runs that faults interrupt, worked out by hand: faults at fixed times, so that every second is known.
#include "faults/faults.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "tests/check.h"

using wt::faults::Kind;
using wt::faults::kParts;
using wt::faults::Law;
using wt::faults::Outcome;
using wt::faults::Part;
using wt::faults::Shape;
using wt::faults::Task;

namespace {

Law fixed(double seconds) { return {Shape::fixed, seconds, 0.0}; }

Task long_task(double horizon, double interval, double save) {
  Task task;
  task.work = std::numeric_limits<double>::infinity();
  task.horizon = horizon;
  task.interval = interval;
  task.save = save;
  task.queue = fixed(-1.0);
  return task;
}

Kind every(double seconds) {
  Kind kind;
  kind.gap = fixed(seconds);
  return kind;
}

Outcome once(const Task& task, const Kind& kind) { return wt::faults::run(task, std::vector<Kind>{kind}, 1, 0, 1, 1); }

double of(const Outcome& out, Part part) { return out.parts[static_cast<std::size_t>(part)]; }

double sum(const Outcome& out) {
  double total = 0.0;
  for (std::size_t p = 0; p < kParts; ++p) total += out.parts[p];
  return total;
}

}  // namespace

// Start 10; 90 s of RUN hold four intervals of 20 + 1 and 6 s that are lost; recovery 20; 70 s of work are left: 3 x 21 + 10.
TEST(faults_lose_work_since_the_mark) {
  Task task = long_task(1000.0, 20.0, 1.0);
  task.work = 150.0;
  task.init = fixed(10.0);
  task.load = fixed(2.0);
  Kind kind = every(100.0);
  kind.detect = fixed(3.0);
  kind.diagnose = fixed(5.0);
  const Outcome out = once(task, kind);
  NEAR(out.wall[0], 193.0);
  NEAR(of(out, Part::useful), 150.0);
  NEAR(of(out, Part::replay), 6.0);
  NEAR(of(out, Part::save), 7.0);
  NEAR(of(out, Part::detect), 3.0);
  NEAR(of(out, Part::diagnose), 5.0);
  NEAR(of(out, Part::init), 20.0);
  NEAR(of(out, Part::load), 2.0);
  NEAR(sum(out), 193.0);
  CHECK(out.count[0] == 1 && out.done[0] == 1);
}

// A mark is durable 5 s after its save. Faults 3 s after it lose it, again and again.
TEST(faults_before_the_flush_ends_lose_the_mark) {
  Task task = long_task(70.0, 20.0, 1.0);
  task.flush = 5.0;
  task.drag = 0.25;
  task.init = fixed(10.0);
  const Outcome out = once(task, every(34.0));
  NEAR(of(out, Part::useful), 0.0);
  NEAR(of(out, Part::replay), 2.0 * (20.0 + 3.0 * 0.8));
  NEAR(of(out, Part::save), 2.0);
  NEAR(of(out, Part::drag), 2.0 * 0.6);
  NEAR(of(out, Part::init), 22.0);
  NEAR(sum(out), 70.0);
}

// One second later than the flush: 5 s of flush are 4 s of work, and the mark holds.
TEST(faults_after_the_flush_keep_the_mark) {
  Task task = long_task(37.5, 20.0, 1.0);
  task.flush = 5.0;
  task.drag = 0.25;
  task.init = fixed(10.0);
  const Outcome out = once(task, every(37.0));
  NEAR(of(out, Part::useful), 20.0);
  NEAR(of(out, Part::replay), 5.0);
  NEAR(of(out, Part::init), 10.5);
}

// From the second interval on a cycle is 5 s beside the flush (4 s of work), 16 s and the save: whole ones are counted at once.
TEST(faults_whole_cycles_are_as_single_ones) {
  Task task = long_task(21.0 + 100 * 22.0 + 7.0, 20.0, 1.0);
  task.flush = 5.0;
  task.drag = 0.25;
  const Outcome out = wt::faults::run(task, {}, 1, 0, 1, 1);
  NEAR(of(out, Part::useful), 101 * 20.0 + 4.0 + 2.0);
  NEAR(of(out, Part::save), 101.0);
  NEAR(of(out, Part::drag), 101.0);
}

// One spare, repairs of 150 s: the second and third fault wait for the first repair and the second, 50 s each.
TEST(faults_wait_for_a_repair) {
  Task task = long_task(360.0, 1.0, 0.0);
  task.spares = 1;
  task.spare_repair = fixed(150.0);
  task.swap = fixed(1.0);
  Kind kind = every(100.0);
  kind.replaces = true;
  const Outcome out = once(task, kind);
  NEAR(of(out, Part::wait), 1.0 + 51.0 + 51.0);
  CHECK(out.count[0] == 3);
}

// A queue of 10 s stands in at 200; the spare that ends its repair at 250 is there at 300.
TEST(faults_take_from_the_queue) {
  Task task = long_task(360.0, 1.0, 0.0);
  task.spares = 1;
  task.spare_repair = fixed(150.0);
  task.swap = fixed(1.0);
  task.queue = fixed(10.0);
  Kind kind = every(100.0);
  kind.replaces = true;
  NEAR(of(once(task, kind), Part::wait), 1.0 + 11.0 + 1.0);
}

// A detection longer than the gap: every recovery is cut short by the next fault.
TEST(faults_in_recovery_begin_it_anew) {
  Kind kind = every(10.0);
  kind.detect = fixed(15.0);
  const Outcome out = once(long_task(100.0, 20.0, 0.0), kind);
  NEAR(of(out, Part::replay), 10.0);
  NEAR(of(out, Part::detect), 90.0);
  CHECK(out.count[0] == 9 && out.done[0] == 0);
}

// The same, but it does not strike outside RUN: 10 s of RUN, 15 of detection, and so on.
TEST(faults_that_wait_for_run) {
  Kind kind = every(10.0);
  kind.detect = fixed(15.0);
  kind.in_recovery = false;
  const Outcome out = once(long_task(100.0, 20.0, 0.0), kind);
  NEAR(of(out, Part::detect), 90.0);
  NEAR(of(out, Part::replay), 10.0);
}

// Half pace for 20 s, then a save, and 4 s until RUN goes on: nothing is done again.
TEST(faults_slow_places_are_stopped_when_seen) {
  Kind kind = every(50.0);
  kind.slows = 2.0;
  kind.detect = fixed(20.0);
  kind.diagnose = fixed(4.0);
  kind.saves_first = true;
  const Outcome out = once(long_task(80.0, 1000.0, 1.0), kind);
  NEAR(of(out, Part::useful), 65.0);
  NEAR(of(out, Part::slow), 10.0);
  NEAR(of(out, Part::save), 1.0);
  NEAR(of(out, Part::diagnose), 4.0);
  NEAR(of(out, Part::replay), 0.0);
}

TEST(faults_that_only_pause) {
  Kind kind = every(30.0);
  kind.repair = fixed(7.0);
  kind.restarts = false;
  const Outcome out = once(long_task(60.0, 1000.0, 1.0), kind);
  NEAR(of(out, Part::useful), 53.0);
  NEAR(of(out, Part::repair), 7.0);
}

// A person's time on top of the diagnosis where nothing is automatic.
TEST(faults_by_hand) {
  Kind kind = every(30.0);
  kind.diagnose = fixed(2.0);
  kind.by_hand = fixed(9.0);
  kind.automatic = 0.0;
  NEAR(of(once(long_task(50.0, 1000.0, 0.0), kind), Part::diagnose), 11.0);
}

// Daly 2006: an interval of t + w takes (1/L + R)(exp(L (t + w)) - 1) in the mean, where faults of rate L strike in RUN and a
// recovery of R is not struck. 2000 runs of 1000 intervals: the mean is within 0.5 %.
TEST(faults_agree_with_daly) {
  Task task = long_task(1e12, 1000.0, 20.0);
  task.work = 1e6;
  Kind kind;
  kind.rate = 1.0 / 3000.0;
  kind.detect = fixed(200.0);
  kind.in_recovery = false;
  const Outcome out = wt::faults::run(task, std::vector<Kind>{kind}, 7, 0, 2000, 2);
  double mean = 0.0;
  for (const double wall : out.wall) mean += wall / 2000.0;
  const double expected = 1000.0 * (3000.0 + 200.0) * std::expm1(1020.0 / 3000.0);
  CHECK(std::abs(mean / expected - 1.0) < 0.005);
}

TEST(faults_depend_on_seed_and_number_alone) {
  Task task = long_task(1e6, 100.0, 1.0);
  task.spare_repair = {Shape::lognormal, 5000.0, 1.0};
  task.swap = {Shape::exponential, 10.0, 0.0};
  Kind kind;
  kind.rate = 1e-3;
  kind.detect = {Shape::uniform, 30.0, 0.5};
  kind.replaces = true;
  kind.returns = 0.3;
  kind.after = {Shape::exponential, 100.0, 0.0};
  const std::vector<Kind> kinds{kind};
  const Outcome all = wt::faults::run(task, kinds, 3, 0, 40, 1), spread = wt::faults::run(task, kinds, 3, 0, 40, 4);
  const Outcome late = wt::faults::run(task, kinds, 3, 30, 10, 1), other = wt::faults::run(task, kinds, 4, 0, 40, 1);
  CHECK(all.parts == spread.parts && all.count == spread.count);
  CHECK(std::vector<double>(all.parts.begin() + 30 * kParts, all.parts.end()) == late.parts);
  CHECK(all.parts != other.parts);
}

TEST(faults_numbers_out_of_bounds_are_named) {
  Kind kind;
  kind.rate = -1.0;
  THROWS(once(long_task(1.0, 1.0, 0.0), kind), "rate");
  THROWS(once(long_task(std::numeric_limits<double>::infinity(), 1.0, 0.0), Kind{}), "horizon");
  THROWS(once(long_task(1.0, 0.0, 0.0), Kind{}), "interval");
}
