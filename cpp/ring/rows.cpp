#include "ring/rows.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace wt::ring {

namespace {

// ns for which an answer of the kernel counts as new: it costs some 5 µs where caches are cold.
constexpr std::int64_t fresh = 200'000;

// Steps for which sections ask the kernel, from the first one and from one that waited: who shares a core waits in many steps.
constexpr int watched_steps = 16;

// Steps between two answers while sections do not ask.
constexpr int asked_every = 8;

std::int64_t read_clock(clockid_t which) {
  timespec now{};
  clock_gettime(which, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

Clock::Clock(std::int64_t offset, double drift)
    : zero_(read_clock(CLOCK_REALTIME) - read_clock(CLOCK_MONOTONIC) + offset),
      start_(read_clock(CLOCK_MONOTONIC)),
      drift_(drift) {}

std::int64_t Clock::now() const {
  const std::int64_t monotonic = read_clock(CLOCK_MONOTONIC);
  const auto gained = drift_ == 0.0 ? 0 : static_cast<std::int64_t>(static_cast<double>(monotonic - start_) * drift_);
  return monotonic + zero_ + gained;
}

Rows::Rows(std::span<std::byte> rows, Words words, Clock clock)
    : rows_(reinterpret_cast<Row*>(rows.data()), rows.size() / sizeof(Row)), words_(words), clock_(clock) {}

Rows::~Rows() {
  if (schedule_ >= 0) ::close(schedule_);
}

std::int64_t Rows::write(const Row& row) {
  const std::int64_t number = next_++;
  Row& slot = at(number);
  slot = row;
  slot.stamp_low = static_cast<std::uint16_t>(number & 0xFFFF);
  slot.stamp_high = static_cast<std::uint16_t>((number >> 16) & 0xFFFF);
  std::atomic_ref<std::int64_t>(*words_.head).store(next_, std::memory_order_release);
  return number;
}

std::int64_t Rows::open(int section, int name, int micro_batch) {
  --left;
  Row row{};
  row.nanos = row.host_nanos = row.bytes = row.call = -1;
  row.step = step;
  row.peer = -1;
  row.name = static_cast<std::int16_t>(name);
  row.group = -1;
  row.micro_batch = static_cast<std::int16_t>(micro_batch);
  row.section = static_cast<std::uint8_t>(section);
  row.state = static_cast<std::uint8_t>(State::open);
  row.begin = clock_.now();
  const std::int64_t number = write(row);
  if (waits(section)) {
    if (row.begin - asked_ > fresh) {
      waited_ = core_wait();
      asked_ = row.begin;
    }
    const std::size_t place = static_cast<std::size_t>(number) % deep;
    waiting_row_[place] = number;
    waiting_[place] = waited_;
  }
  return number;
}

std::optional<std::int64_t> Rows::open_call(const Call& call) {
  if (!calls || !live) return std::nullopt;
  if (left <= 0) {
    drop(1);
    return std::nullopt;
  }
  --left;
  Row row{};
  row.nanos = row.host_nanos = -1;
  row.bytes = call.bytes;
  row.call = call.number;
  row.step = step;
  row.peer = call.peer;
  row.name = static_cast<std::int16_t>(call.name);
  row.group = static_cast<std::int16_t>(call.group);
  row.micro_batch = -1;
  row.section = 4;  // records.sections.Section.CALL
  row.comm = static_cast<std::uint8_t>(call.comm);
  row.state = static_cast<std::uint8_t>(State::open);
  row.sends = call.sends ? 1 : 0;
  row.begin = clock_.now();
  return write(row);
}

void Rows::close(std::int64_t row) {
  const std::int64_t end = clock_.now();
  if (!here(row)) return;
  Row& slot = at(row);
  slot.nanos = slot.host_nanos = end - slot.begin;
  slot.state = static_cast<std::uint8_t>(State::done);
  const std::size_t place = static_cast<std::size_t>(row) % deep;
  if (!waits(slot.section) || waiting_row_[place] != row) return;
  waited_ = core_wait();
  asked_ = end;
  const std::int64_t waited = std::min(waited_ - waiting_[place], slot.nanos);
  if (waited >= least_) past(gap_, gap_name_, end - waited, waited);
}

void Rows::at_step(std::int64_t number) {
  step = static_cast<std::int32_t>(number);
  std::atomic_ref<std::int64_t>(*words_.step).store(number, std::memory_order_relaxed);
}

void Rows::drop(std::int64_t count) {
  dropped += count;
  std::atomic_ref<std::int64_t>(*words_.dropped).store(dropped, std::memory_order_relaxed);
}

void Rows::begin_step() {
  at_step(step + 1);
  left = rows_a_step;
  calls = every > 0 && step % every == 0;
  if (schedule_ < 0 || (watchful_ == 0 && step % asked_every != 0)) return;
  const std::int64_t waited = core_wait();
  watchful_ = waited - at_begin_ >= least_ ? watched_steps : std::max(watchful_ - 1, 0);
  at_begin_ = waited;
}

std::int64_t Rows::next_step(std::int64_t open_row) {
  close(open_row);
  begin_step();
  return open(0, -1, -1);  // records.sections.Section.STEP
}

void Rows::issued(std::int64_t row) {
  if (here(row)) rewrite(row, -1, clock_.now() - at(row).begin, State::issued);
}

void Rows::settle(std::int64_t row, std::int64_t begin, std::int64_t nanos) {
  if (!here(row)) return;
  Row& slot = at(row);
  slot.begin = begin;
  slot.nanos = nanos;
  slot.state = static_cast<std::uint8_t>(State::done);
}

bool Rows::past(int section, int name, std::int64_t begin, std::int64_t nanos) {
  if (left <= 0) {
    drop(1);
    return false;
  }
  --left;
  Row row{};
  row.begin = begin;
  row.nanos = row.host_nanos = nanos;
  row.bytes = row.call = -1;
  row.step = step;
  row.peer = -1;
  row.name = static_cast<std::int16_t>(name);
  row.group = row.micro_batch = -1;
  row.section = static_cast<std::uint8_t>(section);
  row.state = static_cast<std::uint8_t>(State::done);
  write(row);
  return true;
}

void Rows::rewrite(std::int64_t row, std::int64_t nanos, std::int64_t host_nanos, State state) {
  if (!here(row)) return;
  Row& slot = at(row);
  slot.nanos = nanos;
  slot.host_nanos = host_nanos;
  slot.state = static_cast<std::uint8_t>(state);
}

std::int64_t Rows::begin_of(std::int64_t row) const { return rows_[static_cast<std::size_t>(row) % rows_.size()].begin; }

void Rows::watch_cores(int first, int last, int gap, int name, std::int64_t least) {
  first_ = first;
  last_ = last;
  gap_ = gap;
  gap_name_ = name;
  least_ = least;
  if (schedule_ < 0) schedule_ = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  waited_ = at_begin_ = core_wait();
  if (waited_ < 0 && schedule_ >= 0) {
    ::close(schedule_);
    schedule_ = -1;
  }
  watchful_ = schedule_ >= 0 ? watched_steps : 0;
}

std::int64_t Rows::core_wait() const {
  char text[64];
  const ssize_t size = schedule_ >= 0 ? pread(schedule_, text, sizeof text - 1, 0) : -1;
  if (size <= 0) return -1;
  text[size] = '\0';
  char* rest = nullptr;
  std::strtoull(text, &rest, 10);  // ns on a core; the second number is ns of waiting for one
  if (rest == nullptr || *rest != ' ') return -1;
  return static_cast<std::int64_t>(std::strtoull(rest, nullptr, 10));
}

}  // namespace wt::ring
