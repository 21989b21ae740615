// Turns of a pipeline's stages, written as instances.
#include "exec/turns.h"

#include <vector>

#include "tests/check.h"

using namespace wt::exec;

namespace {

using Column = std::vector<std::int64_t>;

// Two stages of one virtual stage each. Kinds: 0 forward, 1 backward. Activations have key 10 + micro batch, gradients 20 +.
struct Pipeline {
  Column table, stage, tmpl, group, gather;
  Column send_key{10, -1, -1, 20}, receive_key{-1, 20, 10, -1}, send_stream{1, 2}, receive_stream{3, 4}, way{0, 1};
  std::vector<double> seconds{0.5, 0.25};
  Column start{0}, pass_tmpl, task, of_pass, wait_start{0}, waits, last, gathers, before{0, 0}, of_kind{100, 101};

  void add(std::int64_t of, std::int64_t kind, std::int64_t number, std::int64_t paired = 0, std::int64_t recorded = -1) {
    table.insert(table.end(), {kind, 0, number, paired});
    stage.push_back(of), tmpl.push_back(recorded < 0 ? 7 + kind : -1), group.push_back(recorded), gather.push_back(0);
  }
  [[nodiscard]] Turns write(bool senders_wait = true) const {
    return write_turns({table, stage, tmpl, group, gather},
                       {send_key, receive_key, send_stream, receive_stream, seconds, way, 5, 6, 1, senders_wait},
                       {start, pass_tmpl, task, of_pass, wait_start, waits, last, gathers, before}, {of_kind, 102, 103, 104});
  }
};

std::vector<std::int32_t> waits_of(const Turns& of, std::size_t instance) {
  return {of.waits.begin() + of.waits_start[instance], of.waits.begin() + of.waits_start[instance + 1]};
}

}  // namespace

TEST(a_turn_receives_runs_and_sends) {
  Pipeline p;
  p.add(0, 0, 0), p.add(0, 1, 0), p.add(1, 0, 0), p.add(1, 1, 0);
  const Turns t = p.write();
  CHECK((t.start == Column{0, 2, 4, 6, 8}));  // run, send; receive, run; receive, run; run, send
  CHECK((t.done == Column{0, 3, 5, 6}));
  CHECK((t.moved == Column{0, 1, 1, 0, 1, 0, 0, 1}));
  CHECK((t.rows == std::vector<std::int32_t>{7,  1, 0, 0, -1, 1, 0, 1, -1, 1, 1, 0, 8,  1, 0, 2,  //
                                             -1, 1, 1, 0, 7,  1, 0, 1, 8,  1, 0, 0, -1, 1, 0, 1}));
  CHECK((t.keys == Column{10, 2, 20, 2, 10, 2, 20, 2}));
  CHECK((t.seconds == std::vector<double>{0.5, 0.25, 0.5, 0.25}));
  CHECK((t.meetings == std::vector<std::int32_t>{1, 5, 6, 1, 4, 5, 6, 1, 3, 5, 6, 1, 2, 5, 6, 1}));
  CHECK((waits_of(t, 3) == std::vector<std::int32_t>{2, 1}));  // what it received, then what was sent before
  CHECK((waits_of(p.write(false), 3) == std::vector<std::int32_t>{2}));
  CHECK(t.labels[0] == 100 && t.labels[3] == 103 && t.labels[6] == 104 && t.labels[9] == 101);
}

TEST(a_pair_is_one_run) {
  Pipeline p;
  p.add(1, 0, 1, 1), p.add(1, 1, 0);
  const Turns t = p.write();
  CHECK((t.start == Column{0, 3}));
  CHECK(t.labels[3] == 102 && t.labels[4] == 1);
  CHECK((t.keys == Column{11, 2, 20, 2}));
}

TEST(a_recorded_pass_moves_its_waits_and_gathers) {
  Pipeline p;
  p.start = {0, 2}, p.pass_tmpl = {3, 4}, p.task = {100, 105}, p.of_pass = {1, 0}, p.wait_start = {0, 1, 2}, p.waits = {-2, 0};
  p.last = {0}, p.gathers = {1}, p.before = {2, 0};
  p.add(0, 1, 0, 0, 0);
  const Turns t = p.write();
  CHECK((t.start == Column{0, 3}));
  CHECK((waits_of(t, 1) == std::vector<std::int32_t>{0, -1}));  // what it received, and the stage's second instance so far
  CHECK((waits_of(t, 2) == std::vector<std::int32_t>{1}));
  CHECK(t.labels[4] == 0 && t.labels[7] == -1);
  CHECK((t.done == Column{1}) && (t.base == Column{1}));
}

TEST(wrong_columns_of_turns_are_refused) {
  Pipeline p;
  p.add(0, 0, 0, 1);
  THROWS(p.write(), "action 0 has no pair");
  p.table[3] = 0, p.table[0] = 2;
  THROWS(p.write(), "no such kind");
  p.table[0] = 0, p.stage[0] = 2;
  THROWS(p.write(), "there is no stage 2");
  p.stage.clear();
  THROWS(p.write(), "unequal columns");
}
