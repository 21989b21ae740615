// The meetings of a run: who has posted, and when each begins and ends.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "dag/dag.h"

namespace wt::dag {

struct Meeting {
  std::int32_t channel = 0;
  std::int64_t number = 0;          // of its channel
  std::vector<std::int32_t> tasks;  // by slot, -1: has not posted
  std::vector<double> posted;       // by slot
  std::int32_t arrived = 0, last = -1;
  double seconds = 0.0;
  double sent = -1.0;  // eager: when the message is there; negative: not yet known
  std::int64_t key = -1;
};

class Meetings {
 public:
  explicit Meetings(const Channels& channels);

  // The meeting that the next post of this slot belongs to, as its index in all(); the post is entered.
  std::int32_t post(std::int32_t channel, std::int32_t slot, std::int32_t task, double time);
  [[nodiscard]] Meeting& at(std::int32_t index) { return all_[static_cast<std::size_t>(index)]; }
  // Lets go of a meeting's memory when its participants have ended.
  void close(std::int32_t index);
  [[nodiscard]] ChannelKind kind(std::int32_t channel) const {
    return static_cast<ChannelKind>(channels_.kind[static_cast<std::size_t>(channel)]);
  }
  // When a port is free again.
  [[nodiscard]] double& port(std::int32_t channel) { return port_[static_cast<std::size_t>(channel)]; }

 private:
  const Channels& channels_;
  std::vector<std::int64_t> first_slot_;        // [C+1]
  std::vector<std::int64_t> posts_;             // by slot of all channels
  std::vector<std::int64_t> closed_;            // [C] meetings before the first of open_
  std::vector<std::deque<std::int32_t>> open_;  // [C] indices of all_, -1 where closed
  std::vector<Meeting> all_;
  std::vector<std::int32_t> free_;
  std::vector<double> port_;
};

}  // namespace wt::dag
