#include "dag/meetings.h"

namespace wt::dag {

Meetings::Meetings(const Channels& channels) : channels_(channels) {
  const std::size_t n = channels.kind.size();
  first_slot_.assign(n + 1, 0);
  for (std::size_t c = 0; c < n; ++c) first_slot_[c + 1] = first_slot_[c] + channels.slots[c];
  posts_.assign(static_cast<std::size_t>(first_slot_[n]), 0);
  closed_.assign(n, 0);
  open_.resize(n);
  port_.assign(n, 0.0);
}

std::int32_t Meetings::post(std::int32_t channel, std::int32_t slot, std::int32_t task, double time) {
  const auto c = static_cast<std::size_t>(channel);
  const auto s = static_cast<std::size_t>(slot);
  const std::int64_t number = posts_[static_cast<std::size_t>(first_slot_[c]) + s]++;
  auto& open = open_[c];
  while (closed_[c] + static_cast<std::int64_t>(open.size()) <= number) {
    std::int32_t index = 0;
    if (free_.empty()) {
      index = static_cast<std::int32_t>(all_.size());
      all_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    const auto slots = static_cast<std::size_t>(channels_.slots[c]);
    Meeting& meeting = at(index);
    meeting = Meeting{};
    meeting.channel = channel;
    meeting.number = closed_[c] + static_cast<std::int64_t>(open.size());
    meeting.tasks.assign(slots, -1);
    meeting.posted.assign(slots, 0.0);
    open.push_back(index);
  }
  const std::int32_t index = open[static_cast<std::size_t>(number - closed_[c])];
  Meeting& meeting = at(index);
  meeting.tasks[s] = task;
  meeting.posted[s] = time;
  meeting.last = task;
  ++meeting.arrived;
  return index;
}

void Meetings::close(std::int32_t index) {
  const auto c = static_cast<std::size_t>(at(index).channel);
  auto& open = open_[c];
  open[static_cast<std::size_t>(at(index).number - closed_[c])] = -1;
  while (!open.empty() && open.front() < 0) {
    open.pop_front();
    ++closed_[c];
  }
  free_.push_back(index);
}

}  // namespace wt::dag
