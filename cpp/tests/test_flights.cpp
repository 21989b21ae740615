#include "exec/flights.h"
#include "tests/check.h"

using wt::exec::Flights;

TEST(intervals_merge) {
  Flights f;
  f.add(5.0, 6.0);
  f.add(1.0, 2.0);
  f.add(3.0, 4.0);
  CHECK(f.size() == 3);
  f.add(2.0, 3.0);
  CHECK(f.size() == 2);
  f.add(0.0, 10.0);
  CHECK(f.size() == 1);
  f.add(12.0, 12.0);  // empty
  CHECK(f.size() == 1);
}

TEST(compute_walks_over_intervals) {
  Flights f;
  f.add(1.0, 3.0);
  f.add(4.0, 6.0);
  NEAR(f.compute(0.0, 1.0, 0.5), 1.0);
  NEAR(f.compute(0.0, 2.0, 0.5), 3.0);
  NEAR(f.compute(0.0, 4.0, 0.5), 6.0);  // 1 + 1 + 1 + 1
  NEAR(f.compute(0.0, 5.0, 0.5), 7.0);
  NEAR(f.compute(5.0, 0.25, 0.5), 5.5);
  NEAR(f.compute(2.0, 0.5, 0.5), 3.0);  // back in time
  NEAR(f.compute(7.0, 1.0, 0.5), 8.0);
  NEAR(f.compute(2.0, 1.0, 0.0), 4.0);  // nothing gets done in 2..3
}

TEST(held_intervals_enter_in_program_order) {
  Flights f;
  f.hold(7, 0.0, 1.0);
  f.hold(3, 1.0, 2.0);
  f.take_before(3);
  CHECK(f.size() == 0);
  f.take_before(7);
  CHECK(f.size() == 1);
  NEAR(f.compute(0.0, 1.0, 0.5), 1.0);  // instance 7 is not seen yet
  f.take_before(8);
  NEAR(f.compute(0.0, 1.0, 0.5), 2.0);
}
