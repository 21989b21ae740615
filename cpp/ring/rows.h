// The rows of a rank's ring: opened when a section begins, closed when it ends. The hot path of the monitor in a training process.
// The layout is that of windtunnel/fleet/ring.py. One process writes; its threads take turns (the caller holds Python's lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace wt::ring {

enum class State : std::uint8_t { empty = 0, open = 1, issued = 2, done = 3 };

struct Row {
  std::int64_t begin, nanos, host_nanos, bytes, call;
  std::int32_t step, peer;
  std::int16_t name, group, micro_batch;
  std::uint8_t section, comm, state, sends;
  std::uint16_t stamp_low, stamp_high;  // of the row's number; two halves, as the field is not aligned to four bytes
  std::uint16_t spare;
};
static_assert(sizeof(Row) == 64);

// Unix time that runs with the monotonic clock. `offset` and `drift` (seconds a second) set it wrong, for tests of clocks.
class Clock {
 public:
  Clock(std::int64_t offset, double drift);
  std::int64_t now() const;

 private:
  std::int64_t zero_, start_;
  double drift_;
};

// What a call moves and between whom; -1 where a field says nothing.
struct Call {
  int group = -1, comm = 0, name = -1;
  std::int64_t bytes = -1, number = -1;
  int peer = -1;
  bool sends = false;
};

class Rows {
 public:
  // The words of the file that say how many rows were written, the step, and how many rows were left out.
  struct Words {
    std::int64_t *head, *step, *dropped;
  };
  Rows(std::span<std::byte> rows, Words words, Clock clock);
  ~Rows();
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  std::int64_t now() const { return clock_.now(); }
  std::int64_t head() const { return next_; }

  std::int64_t open(int section, int name, int micro_batch);
  // Nothing where calls are not recorded now, or the step has as many rows as it may have.
  std::optional<std::int64_t> open_call(const Call& call);
  void close(std::int64_t row);  // the section ends here
  // The step of row `open_row` (-1 none) ends and the next begins, with a row of its own: its number.
  std::int64_t next_step(std::int64_t open_row);
  void begin_step();  // the same without rows
  void at_step(std::int64_t number);
  void drop(std::int64_t count);                                             // rows that were not written
  void issued(std::int64_t row);                                             // the host is past it; its end is not known
  void settle(std::int64_t row, std::int64_t begin, std::int64_t nanos);     // as the device says
  bool past(int section, int name, std::int64_t begin, std::int64_t nanos);  // one that is over
  std::int64_t write(const Row& row);                                        // as it is, but for its stamp
  void rewrite(std::int64_t row, std::int64_t nanos, std::int64_t host_nanos, State state);
  std::int64_t begin_of(std::int64_t row) const;

  // Sections `first` to `last` tell at their end how long this thread waited for a core in them: a gap named `name` at their tail,
  // where it is `least` ns or more. The kernel is asked for each section only in the first steps and for some steps after one that
  // waited so long; else now and then.
  void watch_cores(int first, int last, int gap, int name, std::int64_t least);
  std::int64_t core_wait() const;  // ns so far; -1 where the kernel does not say

  std::int32_t step = -1;
  std::int64_t left = 0;  // rows that the step may still have
  std::int64_t rows_a_step = 0;
  std::int64_t every = 1;    // calls are recorded in every so many steps; 0 never
  std::int64_t dropped = 0;  // rows that it could not have
  bool calls = true;         // whether calls are recorded
  bool live = true;          // whether anything but sections is

 private:
  Row& at(std::int64_t row) { return rows_[static_cast<std::size_t>(row) % rows_.size()]; }
  bool here(std::int64_t row) const { return row >= 0 && next_ - row <= static_cast<std::int64_t>(rows_.size()); }

  std::span<Row> rows_;
  Words words_;
  Clock clock_;
  std::int64_t next_ = 0;
  bool waits(int section) const { return watchful_ > 0 && section >= first_ && section <= last_; }

  int schedule_ = -1, first_ = 0, last_ = -1, gap_ = 0, gap_name_ = -1;
  std::int64_t least_ = 0;
  int watchful_ = 0;                      // further steps in which sections ask
  std::int64_t waited_ = 0, asked_ = 0;   // the last answer of `core_wait`, and when
  std::int64_t at_begin_ = 0;             // the answer when a step last asked
  static constexpr std::size_t deep = 8;  // sections that may be open inside each other
  std::int64_t waiting_row_[deep] = {}, waiting_[deep] = {};
};

}  // namespace wt::ring
