// Several ranks: meetings, pipelines, deadlocks, networks with a clock of their own.
#include "tests/builder.h"
#include "tests/check.h"
#include "tests/shared_link.h"

using namespace wt::exec;

TEST(p2p_pair) {
  // rank 0 computes 4 s and sends (0.5 s); rank 1 computes 1 s, receives, computes 1 s
  Builder b;
  b.categories = 3;
  b.add_template({{.seconds = 4.0}});
  b.add_template({{.seconds = 1.0}});
  InstanceSpec send = meet({{9, 0.5, 2}}, {0});
  InstanceSpec receive = meet({{9, 0.25, 2}}, {0});  // the longer of the two durations counts
  send.cat_wait = receive.cat_wait = 1;
  send.cat_transfer = receive.cat_transfer = 2;
  b.ranks = {{task(0), send}, {task(1), receive, task(1, {1})}};
  const Timeline t = b.run();
  NEAR(t.makespan, 5.5);
  NEAR(t.begin[3], 1.0);     // posted
  NEAR(t.transfer[3], 4.0);  // begun
  NEAR(t.end[3], 4.5);
  const std::size_t r1 = 1 * 5;
  NEAR(t.idle[r1 + 1], 3.0);  // waiting for the sender
  NEAR(t.idle[r1 + 2], 0.5);  // transfer
  NEAR(t.busy[(1 * 2 + 1) * 3 + 1], 3.0);
  NEAR(t.busy[(1 * 2 + 1) * 3 + 2], 0.5);
  // path: 4 s on rank 0, 0.5 s transfer, 1 s on rank 1
  CHECK((t.path.rank == std::vector<std::int32_t>{0, 1, 1}));
  NEAR(t.path.seconds[0], 4.0);
  NEAR(t.path.seconds[1], 0.5);
  CHECK(t.path.cause[1] == static_cast<std::uint8_t>(Cause::kPartner));
}

TEST(three_participants) {
  Builder b;
  b.add_template({{.seconds = 1.0}});
  b.add_template({{.seconds = 2.0}});
  b.add_template({{.seconds = 3.0}});
  for (int r = 0; r < 3; ++r) b.ranks.push_back({task(r), meet({{-5, 1.0, 3}}, {0})});
  const Timeline t = b.run();
  for (std::size_t r = 0; r < 3; ++r) {
    NEAR(t.transfer[2 * r + 1], 3.0);
    NEAR(t.end[2 * r + 1], 4.0);
  }
}

TEST(parts_of_one_instance_post_together) {
  // rank 1 exchanges with both neighbours at once; the stream is held until the slower one is done
  Builder b;
  b.add_template({{.seconds = 1.0}});
  b.ranks = {{meet({{1, 2.0, 2}})},
             {meet({{1, 2.0, 2}, {2, 1.0, 2}}), meet({{3, 1.0, 2}})},
             {task(0, {}, 5), meet({{2, 1.0, 2}}, {0}), meet({{3, 1.0, 2}})}};
  const Timeline t = b.run();
  NEAR(t.end[0], 2.0);
  NEAR(t.end[1], 6.0);  // key 2 begins at 5
  NEAR(t.transfer[1], 5.0);
  NEAR(t.begin[2], 6.0);  // behind it on its stream
  NEAR(t.makespan, 7.0);
}

TEST(two_stage_1f1b_with_four_micro_batches) {
  // F = 1 s, B = 2 s, transfers 0. Stage 0: F F B F B F B B; stage 1: F B F B F B F B.
  // Without transfers the step is (m + p - 1)(F + B) = 5 x 3 s, and each stage idles (p - 1)(F + B) = 3 s.
  Builder b;
  b.categories = 2;
  const int f = b.add_template({{.seconds = 1.0}});
  const int g = b.add_template({{.seconds = 2.0}});
  std::vector<InstanceSpec> first, second;
  const auto add = [](std::vector<InstanceSpec>& rank, InstanceSpec i) {
    i.cat_wait = i.cat_transfer = 1;
    rank.push_back(std::move(i));
    return static_cast<int>(rank.size()) - 1;
  };
  const auto forward_0 = [&](int m) { add(first, meet({{m, 0.0, 2}}, {add(first, task(f))}, 1)); };
  const auto backward_0 = [&](int m) { add(first, task(g, {add(first, meet({{100 + m, 0.0, 2}}, {}, 2))})); };
  forward_0(0);
  forward_0(1);
  for (int m = 0; m < 4; ++m) {
    backward_0(m);
    if (m + 2 < 4) forward_0(m + 2);
  }
  for (int m = 0; m < 4; ++m) {
    const int received = add(second, meet({{m, 0.0, 2}}, {}, 1));
    add(second, task(f, {received}));
    const int done = add(second, task(g));
    add(second, meet({{100 + m, 0.0, 2}}, {done}, 2));
  }
  b.ranks = {first, second};
  const Timeline t = b.run();
  NEAR(t.makespan, 15.0);
  NEAR(t.busy[0], 12.0);  // rank 0, stream 0, category 0: 4 x 3 s
  NEAR(t.idle[0 * 4 + 1] + t.idle[0 * 4 + 3], 3.0);
  NEAR(t.idle[1 * 4 + 1] + t.idle[1 * 4 + 3], 3.0);
  NEAR(total(t.path.seconds), 15.0);
}

TEST(streams_make_progress_past_a_blocked_one) {
  // Rank 0 posts a receive that depends, by way of rank 1, on what rank 0 sends behind it on another stream. A walk that
  // stopped at the first open meeting would call this a deadlock.
  Builder b;
  b.add_template({{.seconds = 1.0}});
  b.ranks = {{meet({{1, 0.5, 2}}, {}, 1), task(0, {0}), meet({{2, 0.5, 2}}, {}, 2)},
             {meet({{2, 0.5, 2}}, {}, 2), meet({{1, 0.5, 2}}, {0}, 1)}};
  const Timeline t = b.run();
  NEAR(t.end[2], 0.5);
  NEAR(t.end[0], 1.0);
  NEAR(t.makespan, 2.0);
}

TEST(host_sync_blocks_what_is_behind_it) {
  // the same, but the host waits for the receive before it posts the send: now it is a deadlock
  Builder b;
  b.add_template({{.seconds = 1.0}});
  InstanceSpec receive = meet({{1, 0.5, 2}}, {}, 1);
  receive.flags = kHostSync;
  b.ranks = {{receive, meet({{2, 0.5, 2}}, {}, 2)}, {meet({{2, 0.5, 2}}, {}, 2), meet({{1, 0.5, 2}}, {0}, 1)}};
  THROWS(b.run(), "rank 0, instance 0 waits at key 1 (1 of 2 have posted; missing: rank 1, instance 1)");
}

TEST(host_window_blocks_what_is_behind_it) {
  Builder b;
  b.add_template({{.seconds = 1.0}});
  b.ranks = {{meet({{1, 0.5, 2}}, {}, 1), task(0, {0}), task(0), meet({{2, 0.5, 2}}, {}, 2)},
             {meet({{2, 0.5, 2}}, {}, 2), meet({{1, 0.5, 2}}, {0}, 1)}};
  NEAR(b.run().makespan, 3.0);
  b.host_window = 3;
  NEAR(b.run().makespan, 3.0);
  b.host_window = 2;  // the send is enqueued only once the first task has started, which it never does
  THROWS(b.run(), "deadlock");
}

TEST(deadlock_names_ranks_and_keys) {
  Builder b;
  b.ranks = {{meet({{1, 1.0, 2}}), meet({{2, 1.0, 2}})}, {meet({{2, 1.0, 2}}), meet({{1, 1.0, 2}})}};
  THROWS(b.run(), "rank 1, instance 0 waits at key 2 (1 of 2 have posted; missing: rank 0, instance 1)");
}

TEST(participants_must_agree) {
  Builder b;
  b.ranks = {{meet({{1, 1.0, 2}})}, {meet({{1, 1.0, 3}})}};
  THROWS(b.run(), "said to have");
  b.ranks = {{meet({{1, 1.0, 2}})}};
  THROWS(b.run(), "has 2 participants, but 1 instances name it");
  b.ranks = {{meet({{1, 1.0, 0}})}};
  THROWS(b.run(), "1 or more");
  b.ranks = {{meet({{1, 1.0, 2}}), meet({{1, 1.0, 2}})}};
  THROWS(b.run(), "twice");
  b.ranks = {{meet({})}};
  THROWS(b.run(), "no parts");
}

TEST(a_network_with_its_own_clock) {
  // Two transfers of 2 s each share a link: the first begins at 0, the second at 1. The first has 1 s left at 1, runs at half
  // speed to 3; the second then has 1 s left and ends at 4. What waits for the first starts at 3.
  Builder b;
  b.add_template({{.seconds = 1.0}});
  b.ranks = {
      {meet({{1, 2.0, 2}}), task(0, {0})}, {meet({{1, 2.0, 2}})}, {task(0), meet({{2, 2.0, 2}}, {0})}, {meet({{2, 2.0, 2}})}};
  SharedLink link;
  const Timeline t = run(b.build(), link);
  NEAR(t.end[0], 3.0);
  NEAR(t.begin[1], 3.0);
  NEAR(t.transfer[4], 1.0);
  NEAR(t.makespan, 4.0);
  NEAR(b.run().makespan, 3.0);  // the closed form knows no sharing
}

TEST(one_participant_needs_nobody) {
  // Two calls of equal ranks that are folded into one each: they begin when posted, and meet on the link only.
  Builder b;
  b.ranks = {{meet({{1, 2.0, 1}})}, {meet({{2, 2.0, 1}})}};
  NEAR(b.run().makespan, 2.0);
  SharedLink link;
  NEAR(run(b.build(), link).makespan, 4.0);
}

TEST(tax_beside_a_transfer_of_unknown_end) {
  // Both transfers state 2 s and share the link to 4. Computing of 1 s beside the first runs at half speed for the 2 s stated and
  // ends there; the next second of it is taxed no more.
  Builder b;
  b.compute_tax = 0.5;
  b.add_template({{.seconds = 1.0}});
  b.ranks = {{meet({{1, 2.0, 1}}), task(0), task(0)}, {meet({{2, 2.0, 1}})}};
  SharedLink link;
  const Timeline t = run(b.build(), link);
  NEAR(t.end[1], 2.0);
  NEAR(t.end[2], 3.0);
  NEAR(t.end[0], 4.0);
  NEAR(b.run().end[2], 3.0);  // the closed form ends the transfer at 2
}
