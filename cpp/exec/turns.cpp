#include "exec/turns.h"

#include <array>
#include <cstddef>
#include <utility>

#include "base/check.h"

namespace wt::exec {

namespace {

std::size_t at(std::int64_t place) { return static_cast<std::size_t>(place); }

// Appends a row of a table.
template <std::size_t N>
void put(std::vector<std::int32_t>& table, const std::array<std::int64_t, N>& row) {
  const std::size_t end = table.size();
  table.resize(end + N);
  for (std::size_t place = 0; place < N; ++place) table[end + place] = static_cast<std::int32_t>(row[place]);
}

class Writer {
 public:
  Writer(const Actions& actions, const Meetings& meetings, const Recorded& recorded, const Tasks& tasks)
      : actions_(actions), meetings_(meetings), recorded_(recorded), tasks_(tasks), kinds_(tasks.of_kind.size()) {
    const std::size_t n = actions.stage.size(), stages = recorded.before.size(), ways = meetings.send_key.size();
    chunks_ = stages > 0 ? ways / (2 * stages) : 0;
    if (actions.table.size() != 4 * n || actions.tmpl.size() != n || actions.group.size() != n || actions.gather.size() != n ||
        ways != 2 * stages * chunks_ || meetings.receive_key.size() != ways || meetings.send_stream.size() != 2 * chunks_ ||
        meetings.receive_stream.size() != 2 * chunks_ || meetings.seconds.size() != 2 || meetings.way.size() != kinds_)
      fail("turns: unequal columns");
    const std::size_t passes = recorded.last.size(), instances = recorded.tmpl.size();
    if (recorded.start.size() != passes + 1 || recorded.task.size() != instances || recorded.of_pass.size() != instances ||
        recorded.wait_start.size() != instances + 1 || recorded.start[0] != 0 ||
        recorded.start[passes] != static_cast<std::int64_t>(instances) ||
        recorded.wait_start[instances] != static_cast<std::int64_t>(recorded.waits.size()))
      fail("turns: unequal columns of recorded passes");
    for (std::size_t g = 0; g < passes; ++g)
      if (recorded.start[g] >= recorded.start[g + 1]) fail("turns: recorded pass ", g, " has no instances");
    out_.base.resize(n);
    out_.rows.reserve(12 * n), out_.labels.reserve(9 * n), out_.waits.reserve(6 * n);
    out_.waits_start.push_back(0), out_.meets_start.push_back(0);
  }

  Turns write() {
    const std::size_t n = actions_.stage.size();
    for (std::size_t first = 0; first < n;) {
      if (first == 0 || actions_.stage[first] != actions_.stage[first - 1]) enter(actions_.stage[first]);
      const std::size_t behind = first + 1 + (actions_.table[4 * first + 3] != 0);
      if (behind > n || actions_.stage[behind - 1] != actions_.stage[first]) fail("turns: action ", first, " has no pair");
      for (std::size_t a = first; a < behind; ++a) check(a);
      turn(first, behind);
      first = behind;
    }
    out_.start.push_back(size());
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(out_.waits_start.size()) - 1; }
  [[nodiscard]] std::int64_t kind(std::size_t a) const { return actions_.table[4 * a]; }
  [[nodiscard]] std::int64_t chunk(std::size_t a) const { return actions_.table[4 * a + 1]; }
  [[nodiscard]] std::int64_t batch(std::size_t a) const { return actions_.table[4 * a + 2]; }

  void enter(std::int64_t stage) {
    if (stage < 0 || stage >= static_cast<std::int64_t>(recorded_.before.size())) fail("turns: there is no stage ", stage);
    stage_ = stage, shift_ = recorded_.before[at(stage)] - size(), sent_.clear();
  }

  void check(std::size_t a) const {
    if (kind(a) < 0 || kind(a) >= static_cast<std::int64_t>(kinds_) || chunk(a) < 0 ||
        chunk(a) >= static_cast<std::int64_t>(chunks_) || actions_.group[a] >= static_cast<std::int64_t>(recorded_.last.size()))
      fail("turns: action ", a, " has no such kind, virtual stage or recorded pass");
  }

  void wait(std::int64_t instance) { out_.waits.push_back(static_cast<std::int32_t>(instance)); }

  void add(std::int64_t tmpl, std::int64_t flags, std::int64_t task, std::int64_t micro_batch, std::int64_t virtual_stage) {
    const auto waits = static_cast<std::int64_t>(out_.waits.size());
    put<4>(out_.rows, {tmpl, 1, flags, waits - out_.waits_start.back()});
    put<3>(out_.labels, {task, micro_batch, virtual_stage});
    out_.waits_start.push_back(waits);
    out_.meets_start.push_back(static_cast<std::int64_t>(out_.seconds.size()));
  }

  void meet(std::int64_t stream, std::int64_t key, double seconds) {
    put<4>(out_.meetings, {stream, meetings_.cat_wait, meetings_.cat_transfer, 1});
    out_.keys.insert(out_.keys.end(), {key, 2});
    out_.seconds.push_back(seconds);
  }

  // Posts what the action receives or sends; `moved`: its instance, if it is one.
  void move(std::size_t a, Longs keys, Longs streams, std::int64_t flags, std::int64_t task, std::int64_t after,
            std::vector<std::int64_t>& moved) {
    const std::int64_t way = meetings_.way[at(kind(a))];
    if (way < 0) return;
    const std::size_t of = at(2 * chunk(a) + way);
    const std::int64_t key = keys[2 * chunks_ * at(stage_) + of];
    if (key < 0) return;
    if (after >= 0) wait(after);
    moved.push_back(size());
    meet(streams[of], key + batch(a), meetings_.seconds[at(way)]);
    add(-1, flags, task, batch(a), chunk(a));
  }

  // Writes the instances of the action's recorded pass; returns its last run.
  std::int64_t replay(std::size_t a) {
    const std::size_t g = at(actions_.group[a]);
    const std::int64_t base = out_.base[a] = size(), first = recorded_.start[g];
    for (std::int64_t k = first; k < recorded_.start[g + 1]; ++k) {
      for (std::int64_t w = recorded_.wait_start[at(k)]; w < recorded_.wait_start[at(k) + 1]; ++w) {
        const std::int64_t own = recorded_.waits[at(w)], gather = actions_.gather[a] - 2 - own;
        if (own < 0 && (gather < 0 || gather >= static_cast<std::int64_t>(recorded_.gathers.size())))
          fail("turns: action ", a, " has too few gathers");
        wait(own >= 0 ? base + own : recorded_.gathers[at(gather)] - shift_);
      }
      add(recorded_.tmpl[at(k)], 0, recorded_.task[at(k)], recorded_.of_pass[at(k)] != 0 ? batch(a) : -1, chunk(a));
    }
    return base + recorded_.last[g];
  }

  void turn(std::size_t first, std::size_t behind) {
    out_.start.push_back(size());
    received_.clear();
    for (std::size_t a = first; a < behind; ++a)
      move(a, meetings_.receive_key, meetings_.receive_stream, meetings_.receive_flags, tasks_.receive, -1, received_);
    const std::int64_t run = size();
    for (const std::int64_t instance : received_) wait(instance);
    for (const std::int64_t instance : sent_)
      if (meetings_.senders_wait) wait(instance);
    std::int64_t done = run;
    for (std::size_t a = first; a < behind; ++a) {
      out_.base[a] = size();
      if (actions_.group[a] >= 0)
        done = replay(a);
      else if (a == first) {
        if (actions_.tmpl[a] < 0) meet(0, 0, 0.0);
        add(actions_.tmpl[a], 0, behind - first == 2 ? tasks_.pair : tasks_.of_kind[at(kind(a))], batch(a), chunk(a));
      }
    }
    sent_.clear();
    for (std::size_t a = first; a < behind; ++a) move(a, meetings_.send_key, meetings_.send_stream, 0, tasks_.send, done, sent_);
    out_.done.push_back(done);
    out_.moved.insert(out_.moved.end(), {static_cast<std::int64_t>(received_.size()), static_cast<std::int64_t>(sent_.size())});
  }

  const Actions& actions_;
  const Meetings& meetings_;
  const Recorded& recorded_;
  const Tasks& tasks_;
  std::size_t kinds_, chunks_ = 0;
  std::int64_t stage_ = -1, shift_ = 0;
  std::vector<std::int64_t> received_, sent_;
  Turns out_;
};

}  // namespace

Turns write_turns(const Actions& actions, const Meetings& meetings, const Recorded& recorded, const Tasks& tasks) {
  return Writer(actions, meetings, recorded, tasks).write();
}

}  // namespace wt::exec
