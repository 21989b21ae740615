#include "dag/validate.h"

#include <cmath>
#include <limits>

#include "base/check.h"

namespace wt::dag {

namespace {

template <class T>
void check_size(const char* name, std::span<const T> column, std::size_t wanted, bool may_be_empty = false) {
  if (column.size() == wanted || (may_be_empty && column.empty())) return;
  fail(name, " has ", column.size(), " entries; ", wanted, " are needed");
}

void check_seconds(const char* name, std::span<const double> column) {
  for (std::size_t i = 0; i < column.size(); ++i)
    if (!std::isfinite(column[i]) || column[i] < 0)
      fail("task ", i, ": ", name, " is ", column[i], "; it must be finite and not negative");
}

template <class T>
void check_range(const char* name, std::span<const T> column, std::int64_t low, std::int64_t high) {
  for (std::size_t i = 0; i < column.size(); ++i)
    if (column[i] < low || column[i] >= high)
      fail("entry ", i, ": ", name, " is ", column[i], "; ", low, " to ", high - 1, " exist");
}

void check_deps(const Tasks& tasks, std::size_t n) {
  check_size("dep_start", tasks.dep_start, n + 1);
  if (tasks.dep_start[0] != 0 || tasks.dep_start[n] != static_cast<std::int64_t>(tasks.deps.size()))
    fail("dep_start must begin at 0 and end at the number of deps");
  for (std::size_t i = 0; i < n; ++i)
    if (tasks.dep_start[i] > tasks.dep_start[i + 1]) fail("task ", i, ": dep_start falls");
  check_range("a dependency", tasks.deps, 0, static_cast<std::int64_t>(n));
}

}  // namespace

void validate(const Tasks& tasks, const Lanes& lanes, const Channels& channels, bool has_model) {
  const std::size_t n = tasks.seconds.size();
  if (n >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) fail("a graph has at most 2^31 - 1 tasks");
  check_size("tail", tasks.tail, n, true);
  check_size("lane", tasks.lane, n);
  check_size("release", tasks.release, n, true);
  check_size("priority", tasks.priority, n, true);
  check_size("channel", tasks.channel, n, true);
  check_size("slot", tasks.slot, tasks.channel.size());
  check_size("key", tasks.key, n, true);
  check_size("width", lanes.width, lanes.ordered.size());
  check_size("slots", channels.slots, channels.kind.size());
  check_seconds("seconds", tasks.seconds);
  check_seconds("tail", tasks.tail);
  check_deps(tasks, n);
  const auto lane_count = static_cast<std::int64_t>(lanes.ordered.size());
  check_range("lane", tasks.lane, -1, lane_count);
  check_range("release", tasks.release, -1, lane_count);
  check_range("channel", tasks.channel, -1, static_cast<std::int64_t>(channels.kind.size()));
  for (std::size_t l = 0; l < lanes.width.size(); ++l)
    if (lanes.width[l] < 1 || (lanes.ordered[l] != 0 && lanes.width[l] != 1))
      fail("lane ", l, ": width is ", lanes.width[l], "; at least 1, and 1 for an ordered lane");
  for (std::size_t c = 0; c < channels.kind.size(); ++c) {
    const auto kind = static_cast<ChannelKind>(channels.kind[c]);
    if (channels.kind[c] > static_cast<std::uint8_t>(ChannelKind::kModel)) fail("channel ", c, ": kind ", int{channels.kind[c]});
    if (channels.slots[c] < 1) fail("channel ", c, ": it has no slots");
    if ((kind == ChannelKind::kEager || kind == ChannelKind::kRendezvous) && channels.slots[c] != 2)
      fail("channel ", c, ": a sender and a receiver have 2 slots");
    if (kind == ChannelKind::kModel && !has_model) fail("channel ", c, ": no model was given");
  }
  for (std::size_t i = 0; i < tasks.channel.size(); ++i) {
    if (tasks.channel[i] < 0) continue;
    const std::int32_t slots = channels.slots[static_cast<std::size_t>(tasks.channel[i])];
    if (tasks.slot[i] < 0 || tasks.slot[i] >= slots) fail("task ", i, ": slot is ", tasks.slot[i], "; its channel has ", slots);
  }
}

}  // namespace wt::dag
