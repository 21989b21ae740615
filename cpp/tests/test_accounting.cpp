// Busy and idle seconds by cause, and the tax where computing meets communication.
#include "tests/builder.h"
#include "tests/check.h"

using namespace wt::exec;

TEST(busy_and_idle_add_up) {
  Builder b;
  b.categories = 3;
  b.add_template({{.seconds = 0.1, .category = 0, .host = 0.15},
                  {.seconds = 0.7, .stream = 1, .category = 1, .wait0 = 0},
                  {.seconds = 0.3, .category = 2, .wait0 = 1}});
  b.ranks = {{task(0, {}, 7)}, {task(0, {}, 3, kJoin)}};
  const Timeline t = b.run();
  for (std::size_t r = 0; r < 2; ++r) {
    double sum = 0.0;
    for (std::size_t c = 0; c < 3; ++c) sum += t.busy[(r * 2 + 0) * 3 + c];
    for (std::size_t c = 0; c < 5; ++c) sum += t.idle[r * 5 + c];
    NEAR(sum, t.makespan);
  }
}

TEST(rendezvous_on_stream_zero_is_busy_time) {
  Builder b;
  b.categories = 3;
  b.add_template({{.seconds = 2.0}});
  InstanceSpec m = meet({{1, 1.0, 2}}, {}, 0);
  m.cat_wait = 1;
  m.cat_transfer = 2;
  b.ranks = {{m}, {task(0), m}};
  const Timeline t = b.run();
  NEAR(t.busy[1], 2.0);
  NEAR(t.busy[2], 1.0);
  NEAR(t.busy[3 + 0], 2.0);
  NEAR(t.busy[3 + 1], 0.0);
  NEAR(t.makespan, 3.0);
}

TEST(tax_stretches_computing_beside_communication) {
  // Communication 0..4 on stream 1; computing of 3 s from 0 at three quarters of its speed ends at 4.
  Builder b;
  b.compute_tax = 0.25;
  b.categories = 2;
  b.add_template({{.seconds = 4.0, .stream = 1, .category = 1, .comm = true}, {.seconds = 3.0}, {.seconds = 1.0}});
  b.ranks = {{task(0)}};
  const Timeline t = b.run();
  NEAR(t.makespan, 5.0);
  NEAR(t.stretch[0], 1.0);
  NEAR(t.busy[0], 5.0);
}

TEST(tax_applies_to_the_overlapping_part_only) {
  // Computing 2 s before it is known to meet: starts at 0, transfer 1..2 seen because it was issued first.
  Builder b;
  b.compute_tax = 0.5;
  b.add_template({{.seconds = 1.0, .stream = 2}, {.seconds = 1.0, .stream = 1, .comm = true, .wait0 = 0}, {.seconds = 2.0}});
  b.ranks = {{task(0)}};
  // 1 s free, 1 s at half speed does 0.5 s, 0.5 s free: ends at 2.5. Stream 2 computes beside it from 0 to 1 untaxed.
  NEAR(b.run().makespan, 2.5);
}

TEST(full_tax_stops_computing) {
  Builder b;
  b.compute_tax = 1.0;
  b.add_template({{.seconds = 4.0, .stream = 1, .comm = true}, {.seconds = 1.0}});
  b.ranks = {{task(0)}};
  NEAR(b.run().makespan, 5.0);
}

TEST(tax_of_a_transfer_waits_for_its_times) {
  // Rank 0 posts a receive, then computes 4 s; rank 1 sends at 1 s, 2 s long: the transfer is 1..3 and costs a quarter of 2 s.
  Builder b;
  b.compute_tax = 0.25;
  b.add_template({{.seconds = 4.0}});
  b.add_template({{.seconds = 1.0}});
  b.ranks = {{meet({{1, 2.0, 2}}), task(0)}, {task(1), meet({{1, 2.0, 2}}, {0})}};
  const Timeline t = b.run();
  NEAR(t.transfer[0], 1.0);
  NEAR(t.end[1], 4.5);
  NEAR(t.stretch[0], 0.5);
  std::swap(b.ranks[0], b.ranks[1]);
  NEAR(b.run().end[2 + 1], 4.5);  // whichever rank is walked first
}

TEST(tax_does_not_deadlock_a_ring) {
  // Each rank receives from the other what that one computes behind its own receive: the transfers cannot begin before.
  Builder b;
  b.compute_tax = 0.25;
  b.add_template({{.seconds = 1.0}});
  b.ranks = {{meet({{1, 3.0, 2}}, {}, 1), task(0), meet({{2, 3.0, 2}}, {1}, 2)},
             {meet({{2, 3.0, 2}}, {}, 1), task(0), meet({{1, 3.0, 2}}, {1}, 2)}};
  const Timeline t = b.run();
  NEAR(t.end[1], 1.0);
  NEAR(t.end[0], 4.0);
  NEAR(t.makespan, 4.0);
}

TEST(ranks_that_tie_for_the_earliest_start_go_together) {
  // The same ring, computing 1 s and 2 s: both start at 0 without a transfer, whichever rank comes first. Were the first one
  // placed alone, the other would see the transfer that follows from it.
  Builder b;
  b.compute_tax = 0.25;
  b.add_template({{.seconds = 1.0}});
  b.add_template({{.seconds = 2.0}});
  b.ranks = {{meet({{1, 3.0, 2}}, {}, 1), task(0), meet({{2, 3.0, 2}}, {1}, 2)},
             {meet({{2, 3.0, 2}}, {}, 1), task(1), meet({{1, 3.0, 2}}, {1}, 2)}};
  const Timeline t = b.run();
  std::swap(b.ranks[0], b.ranks[1]);
  const Timeline swapped = b.run();
  NEAR(t.end[1], 1.0);
  NEAR(t.end[4], 2.0);
  NEAR(swapped.end[1], 2.0);
  NEAR(swapped.end[4], 1.0);
}
