// One rank: streams, waits, host, host window, repetitions.
#include "tests/builder.h"
#include "tests/check.h"

using namespace wt::exec;

TEST(single_chain) {
  Builder b;
  b.add_template({{.seconds = 1.0}, {.seconds = 2.0}, {.seconds = 0.5}});
  b.ranks = {{task(0), task(0, {}, 3)}};
  const Timeline t = b.run();
  NEAR(t.makespan, 14.0);
  NEAR(t.end[0], 3.5);
  NEAR(t.begin[1], 3.5);
  CHECK(t.ops == 12);
  CHECK(std::isnan(t.transfer[0]));
  NEAR(total(t.path.seconds), 14.0);
  CHECK(t.path.rank.size() == 2);  // merged by instance
  CHECK(t.path.cause[0] == static_cast<std::uint8_t>(Cause::kBegin));
  CHECK(t.path.cause[1] == static_cast<std::uint8_t>(Cause::kStream));
}

TEST(host_bound_chain) {  // the host needs 3 s for each operator of 1 s: starts at 3, 6, 9
  Builder b;
  b.add_template({{.seconds = 1.0, .host = 3.0}});
  b.ranks = {{task(0), task(0), task(0)}};
  const Timeline t = b.run();
  NEAR(t.begin[0], 3.0);
  NEAR(t.begin[1], 6.0);
  NEAR(t.makespan, 10.0);
  NEAR(t.idle[1], 7.0);  // one category, then host
  NEAR(t.idle[2], 0.0);
  NEAR(t.host_end[0], 9.0);
  CHECK(t.path.kind[0] == static_cast<std::uint8_t>(HopKind::kHost));  // one hop of 9 s of host, then the last operator
  NEAR(t.path.seconds[0], 9.0);
  NEAR(total(t.path.seconds), 10.0);
}

TEST(host_runs_ahead_of_a_slow_device) {  // 1 s of host hides behind 4 s of device but for the first
  Builder b;
  b.add_template({{.seconds = 4.0, .host = 1.0}});
  b.ranks = {{task(0, {}, 5)}};
  NEAR(b.run().makespan, 21.0);
}

TEST(host_sync_stops_the_host) {  // sync at 5; then 2 s of host before the next operator may start
  Builder b;
  b.add_template({{.seconds = 3.0, .host = 2.0}});
  b.ranks = {{task(0, {}, 1, kHostSync), task(0)}};
  const Timeline t = b.run();
  NEAR(t.end[0], 5.0);
  NEAR(t.begin[1], 7.0);
  NEAR(t.makespan, 10.0);
  NEAR(t.idle[1], 4.0);
  CHECK(t.path.rank.size() == 4);  // host, op, host, op
  NEAR(total(t.path.seconds), 10.0);
}

TEST(host_sync_on_another_stream_is_charged_to_what_it_waits_for) {
  Builder b;
  b.categories = 2;
  b.add_template({{.seconds = 1.0}});
  b.add_template({{.seconds = 5.0, .stream = 1, .category = 1}});
  b.add_template({{.seconds = 1.0, .host = 2.0}});
  b.ranks = {{task(0), task(1, {0}, 1, kHostSync), task(2)}};
  const Timeline t = b.run();
  NEAR(t.begin[2], 8.0);  // 1 + 5 + 2
  NEAR(t.idle[1], 5.0);   // while the host was held by the 5 s
  NEAR(t.idle[2], 2.0);   // while it enqueued
}

TEST(two_streams_with_waits) {
  // stream 0: a 2 s, c 1 s after b; stream 1: b 3 s after a; d on stream 0 waits for nothing but its stream
  Builder b;
  b.categories = 4;
  b.add_template({{.seconds = 2.0, .category = 0},
                  {.seconds = 3.0, .stream = 1, .category = 1, .wait0 = 0},
                  {.seconds = 1.0, .category = 2, .wait0 = 1},
                  {.seconds = 1.0, .category = 3}});
  b.ranks = {{task(0)}};
  const Timeline t = b.run();
  NEAR(t.makespan, 7.0);
  NEAR(t.idle[1], 3.0);  // stream 0 waits for b, category 1
  NEAR(t.busy[0 * 4 + 0], 2.0);
  NEAR(t.busy[1 * 4 + 1], 3.0);
  CHECK(t.path.rank.size() == 1);
}

TEST(instances_stretch_operators_by_the_factor_of_their_group) {
  Builder b;
  b.groups = 2;
  b.factors = {1.0, 1.0, 1.0, 3.0};
  b.add_template({{.seconds = 1.0}, {.seconds = 2.0, .group = 1}});
  InstanceSpec stretched = task(0, {}, 2);
  stretched.scale = 1;
  b.ranks = {{task(0), stretched}};
  NEAR(b.run().makespan, 3.0 + 2.0 * (1.0 + 6.0));
  b.factors[3] = -1.0;
  THROWS(b.run(), "scales of row 3 is -1");
}

TEST(wait_on_instances_takes_the_last_end) {
  Builder b;
  b.add_template({{.seconds = 1.0, .stream = 1}});
  b.add_template({{.seconds = 4.0, .stream = 2}});
  b.add_template({{.seconds = 1.0}});
  b.ranks = {{task(0), task(1), task(2, {0, 1})}};
  const Timeline t = b.run();
  NEAR(t.begin[2], 4.0);
  NEAR(t.makespan, 5.0);
}

TEST(join_holds_each_repetition) {
  // stream 0 1 s, then stream 1 2 s behind it; without join stream 0 runs ahead
  Builder b;
  b.categories = 2;
  b.add_template({{.seconds = 1.0}, {.seconds = 2.0, .stream = 1, .category = 1, .wait0 = 0}});
  b.ranks = {{task(0, {}, 3)}};
  NEAR(b.run().makespan, 7.0);  // 1 + 3 x 2
  b.ranks = {{task(0, {}, 3, kJoin)}};
  const Timeline t = b.run();
  NEAR(t.makespan, 9.0);
  NEAR(t.idle[1], 4.0);  // two waits of 2 s for category 1
  NEAR(t.idle[3], 2.0);  // tail
  NEAR(total(t.path.seconds), 9.0);
}

TEST(host_waits_for_an_operator) {
  // host 1 s an operator, device 4, 2, 3 s: the host comes to operator 2 at 7 (start 1, ends 5, operator 1 to 7), not at 2
  Builder b;
  b.add_template({{.seconds = 4.0, .host = 1.0}, {.seconds = 2.0, .host = 1.0, .sync = true}, {.seconds = 3.0, .host = 1.0}});
  b.ranks = {{task(0)}};
  const Timeline t = b.run();
  NEAR(t.makespan, 11.0);    // 7 + 1 of host + 3
  NEAR(t.host_end[0], 8.0);  // enqueued the last at 8
  NEAR(t.idle[1], 2.0);      // the host: before operator 0 and before operator 2
  NEAR(total(t.path.seconds), 11.0);
  b.ranks = {{task(0, {}, 2)}};
  const Timeline twice = b.run();
  NEAR(twice.makespan, 21.0);  // operator 0 was enqueued at 9 and runs when 2 has ended: 11 to 15, 17, 1 of host, 3
  NEAR(twice.host_end[0], 18.0);
  NEAR(twice.host[0], 0.0);
  b.host_window = 8;
  NEAR(b.run().makespan, 21.0);
}

TEST(a_host_that_waits_comes_late_to_the_next_instance) {
  Builder b;
  b.add_template({{.seconds = 5.0, .sync = true}});
  b.add_template({{.seconds = 1.0, .stream = 1, .host = 1.0}});
  b.ranks = {{task(0), task(1)}};
  const Timeline t = b.run();
  NEAR(t.host[1], 5.0);
  NEAR(t.begin[1], 6.0);  // another stream, but the host was away
}

TEST(host_window_of_two) {
  // Operators of 10 s; the host may enqueue operator i only when i-2 has started: 0 and 1 at 0, 2 at start(0) = 0,
  // 3 at start(1) = 10, 4 at start(2) = 20, each with 1 s of host behind it.
  Builder b;
  b.add_template({{.seconds = 10.0, .host = 1.0}});
  b.ranks = {{task(0, {}, 5)}};
  b.host_window = 2;
  const Timeline t = b.run();
  NEAR(t.makespan, 51.0);     // device bound all the same
  NEAR(t.host_end[0], 22.0);  // start(2) = 21, + 1
}

TEST(host_window_of_one_serialises_host_and_device_starts) {
  // With a window of 1, operator i is enqueued after i-1 has started: starts 3, 6, 9.. as host bound
  Builder b;
  b.add_template({{.seconds = 5.0, .host = 3.0}});
  b.ranks = {{task(0), task(0), task(0)}};
  b.host_window = 1;
  const Timeline t = b.run();
  NEAR(t.begin[0], 3.0);
  NEAR(t.begin[1], 8.0);   // enqueued at 6, stream free at 8
  NEAR(t.begin[2], 13.0);  // enqueued at 8 + 3 = 11
  NEAR(t.makespan, 18.0);
  NEAR(t.host_end[0], 11.0);
}

TEST(host_window_binds_another_stream) {
  // Stream 0 is busy for 10 s; the second operator of stream 0 sits in the queue (window 1) until 10, so the operator
  // of stream 1 behind it is enqueued at 10 and ends at 11.
  Builder b;
  b.add_template({{.seconds = 10.0}, {.seconds = 1.0}, {.seconds = 1.0, .stream = 1}});
  b.ranks = {{task(0)}};
  NEAR(b.run().makespan, 11.0);
  b.host_window = 1;
  const Timeline t = b.run();
  b.record = true;
  const Timeline recorded = b.run();
  NEAR(recorded.record.start[2], 10.0);
  NEAR(total(t.path.seconds), 11.0);
}

TEST(record_gives_every_operator) {
  Builder b;
  b.add_template({{.seconds = 1.0}, {.seconds = 2.0}});
  b.ranks = {{task(0, {}, 2)}};
  b.record = true;
  b.critical_path = false;
  const Timeline t = b.run();
  CHECK(t.path.rank.empty());
  CHECK(t.record.start.size() == 4);
  NEAR(t.record.start[3], 4.0);
  NEAR(t.record.end[3], 6.0);
}

TEST(wrong_programs_are_refused) {
  Builder b;
  b.add_template({{.seconds = 1.0}});
  b.ranks = {{task(3)}};
  THROWS(b.run(), "names template 3");
  b.ranks = {{task(0, {0})}};
  THROWS(b.run(), "waits for instance 0");
  b.ranks = {{task(0, {}, 0)}};
  THROWS(b.run(), "runs 0 times");
  b.ranks = {{task(0)}};
  b.templates = {{{.seconds = -1.0}}};
  THROWS(b.run(), "finite and not negative");
  b.templates = {{{.seconds = wt::kUnset}}};
  THROWS(b.run(), "finite and not negative");
  b.templates = {{{.seconds = 1.0, .wait0 = 0}}};
  THROWS(b.run(), "op 0 waits for op 0");
  b.templates = {{{.seconds = 1.0, .stream = 64}}};
  THROWS(b.run(), "op stream");
  b.templates = {{{.seconds = 1.0, .category = 1}}};
  THROWS(b.run(), "op category");
  b.templates = {{}};
  THROWS(b.run(), "no operators");
  b.templates = {{{.seconds = 1.0}}};
  b.compute_tax = 1.5;
  THROWS(b.run(), "compute_tax");
}
