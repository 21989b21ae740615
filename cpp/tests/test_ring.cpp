// The rows of a ring, by hand: what is opened, closed, overtaken and left out.
#include <cstring>
#include <vector>

#include "ring/rows.h"
#include "tests/check.h"

using wt::ring::Call;
using wt::ring::Clock;
using wt::ring::Row;
using wt::ring::Rows;
using wt::ring::State;

namespace {

struct File {
  std::vector<Row> rows;
  std::int64_t head = 0, step = 0, dropped = 0;
  explicit File(std::size_t count) : rows(count) {}
};

}  // namespace

TEST(a_section_is_open_until_it_is_closed) {
  File file(4);
  Rows writer(std::as_writable_bytes(std::span(file.rows)), Rows::Words{&file.head, &file.step, &file.dropped}, Clock(0, 0.0));
  writer.step = 7;
  const std::int64_t row = writer.open(1, 3, 2);
  CHECK(row == 0 && file.head == 1);
  CHECK(file.rows[0].state == static_cast<std::uint8_t>(State::open) && file.rows[0].nanos == -1);
  CHECK(file.rows[0].step == 7 && file.rows[0].name == 3 && file.rows[0].micro_batch == 2 && file.rows[0].group == -1);
  writer.close(row);
  CHECK(file.rows[0].state == static_cast<std::uint8_t>(State::done) && file.rows[0].nanos >= 0);
  CHECK(file.rows[0].nanos == file.rows[0].host_nanos);
}

TEST(a_row_that_was_overtaken_stays_as_it_is) {
  File file(4);
  Rows writer(std::as_writable_bytes(std::span(file.rows)), Rows::Words{&file.head, &file.step, &file.dropped}, Clock(0, 0.0));
  writer.left = 100;
  const std::int64_t first = writer.open(1, -1, -1);
  for (int number = 0; number < 4; ++number) writer.past(7, -1, number, number);
  writer.close(first);
  CHECK(file.rows[0].section == 7 && file.rows[0].begin == 3 && file.rows[0].stamp_low == 4);
}

TEST(calls_beyond_a_steps_share_are_counted) {
  File file(16);
  Rows writer(std::as_writable_bytes(std::span(file.rows)), Rows::Words{&file.head, &file.step, &file.dropped}, Clock(0, 0.0));
  writer.left = 2;
  CHECK(writer.open_call(Call{0, 1, 0, 4096, 5, -1, false}).has_value());
  CHECK(file.rows[0].bytes == 4096 && file.rows[0].call == 5 && file.rows[0].comm == 1 && file.rows[0].peer == -1);
  CHECK(writer.open_call(Call{}).has_value() && !writer.open_call(Call{}).has_value());
  CHECK(writer.dropped == 1 && file.dropped == 1);
  writer.calls = false;
  CHECK(!writer.open_call(Call{}).has_value() && writer.dropped == 1);
}

TEST(a_step_ends_and_the_next_begins_at_once) {
  File file(8);
  Rows writer(std::as_writable_bytes(std::span(file.rows)), Rows::Words{&file.head, &file.step, &file.dropped}, Clock(0, 0.0));
  writer.rows_a_step = 100;
  writer.every = 2;
  const std::int64_t first = writer.next_step(-1);
  const std::int64_t second = writer.next_step(first);
  CHECK(file.rows[0].step == 0 && file.rows[0].nanos >= 0 && file.rows[1].step == 1 && file.rows[1].nanos == -1);
  CHECK(second == 1 && writer.step == 1 && writer.left == 99 && !writer.calls && file.step == 1);
  CHECK(file.rows[1].begin >= file.rows[0].begin + file.rows[0].nanos);
}

TEST(a_clock_can_be_set_wrong) {
  const Clock right(0, 0.0), ahead(500'000'000, 0.0);
  const std::int64_t difference = ahead.now() - right.now();
  CHECK(difference >= 499'000'000);
}
